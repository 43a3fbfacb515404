"""A world in a seed: the real engine and the real coordinator, and everything that can happen to them.

Theory. Exactly-once is a promise about every order in which things can happen, and a test on real servers
tries one order, the likely one. So here everything around the protocol is made up and obeys one random number
generator: clock, catalog, storage, brokers, workers, users, the moment at which a process is stopped, resumed
or killed. A seed is a whole history. Thousands of them run in minutes, and one that breaks a promise breaks it
again as often as it is asked to.

What is real, and what is not:

    real        engine.run.Engine, commit.Coordinator, commit.land, all of protocol, table.memory.MemoryTable
    made up     time, chance, processes, threads, workers and their files, Kafka, users, networks

Each coordinator lives on a thread of its own, but a thread runs only while it holds the baton, and it gives the
baton back wherever it touches the world: before and after every look at a table, before a commit, between its
judgement and its swap, after it landed and before the reply, while it sleeps, waits for a worker or tells an
observer something. Who goes on is drawn. At those points a process can be killed, or held back for as long
as others need to take over, compact the table and expire all of its history. Nothing runs at the same time, so
the same seed is the same history, to the letter of its trace.

    broker      partitions with transactions, gaps, retention; topics recreated, logs truncated
    table       the shipped table in memory, on a network where every call can fail or hang
    lake        a Delta table there: the product's adapter, on a log and a MERGE in memory
    workers     what Spark would do: read a span, write files, lose an attempt, report a file twice
    process     one life of one coordinator, from its start to its end, whatever ends it
    stage       puts the made-up clock, pool and workers where the engine looks for the real ones
    happenings  all that others do: produce, compact, expire, write, roll back, restore, recreate, kill
    world       draws what happens next, until it is enough; then the weather clears up
    oracle      what must be true now, computed from the broker's and the tables' complete past

When the weather has cleared up, one last coordinator must either bring the tables up to the end of every log
or stop with an error that is true. Then the oracle checks the promises: A every committed record once, B every
file there and referenced once, C the frontier never back and spans without gaps, D no stop without its cause.

`test_seeds` runs histories, `test_points` stops one coordinator at each of its moments in turn, and
`test_mutations` breaks the product on purpose and expects to be told so. `test_lake` does all that to Delta tables.

`make simulate` runs many seeds; `make simulate SEED=1234` tells one from beginning to end.
"""

"""The certification: real processes, real faults, and `frazil verify` after each of them.

The simulation tries every order of events in a made-up world. Here nothing is made up: a Kafka broker, Spark, an
Iceberg table in a SQLite catalog or a Delta table in a folder, and `frazil run` as a process of its own. A
supervisor breaks something, waits until the pipeline commits again or is started again, and asks `frazil verify`
whether anything was lost or doubled.

    workload    producers that never rest: plain records, transactions kept and aborted, values nobody can decode
    proxy       stands between the broker and all its clients: cuts, refuses, delays, swallows
    disk        a small file system that can be filled up, where the machine lets us mount one
    points      named places in the product at which a process kills itself once it is told to
    launch      `frazil run` with these places watched; `daemon` does the same for Spark's Python workers
    life        one `frazil run`, with all processes it started
    stage       broker, proxy, disk, pipeline file, and a Spark session for those who look and tend
    faults      everything that the supervisor can break, and what must be true afterwards
    script      which faults, in which order and after which pauses: drawn from a seed
    supervisor  plays a script and demands that every verification holds
    oracle      the topic, read by a plain consumer, beside the tables' rows
    report      what happened how often

`make certify KILLS=200 FORMAT=delta` runs it; `python -m tests.certify --seed 7` repeats a script. The same seed
draws the same faults in the same order after the same pauses; what they hit at that moment is up to the machine.
"""

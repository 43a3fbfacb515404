"""The protocol: what an epoch is, who may commit it, and what to do after a failure.

PURE. Standard library only, no clock, no I/O, no randomness. Others observe and perform; this room decides.

One idea carries it: **the table is the checkpoint**. An epoch is one span of source positions and becomes
exactly one snapshot. The frontier after it stands in the same atomic commit as its rows, in a register that
is replaced by compare-and-set. Whatever dies, the next coordinator reads the register and goes on from there:
rows that are in the table are behind its frontier, rows that are not are beyond it.

    positions   frontier, span, slice: where the source is
    register    the table's account of a writer: generation, coordinator, epoch, batch, frontier
    start       observe all tables → begin, resume, wait or stop
    plan        observe the source → where the next span begins and ends, and when
    commit      observe one table → proceed, already committed, fenced or stop
    entries     what a coordinator notes on its own disk, for people and for cleaning up
    recovery    observe journal and table → which files a crash left behind
    progress    the three frontiers of a running pipeline
    summary     the history written beside the data
    retry       how long to wait

Failure matrix, of the whole:

    the process dies …               what is left                      what the next start does
    before a file is closed          part of a file                    reads the span again
    after files, before the commit   files nobody references           reads the span again
    while the commit is under way    landed or not                     finds the register either way
    after the commit                 everything                        goes on behind it
    after a side table's commit      side table one commit ahead       leaves those rows out for it
    while paused, past a take-over   a coordinator with old ideas      its next commit finds itself fenced
"""

"""How long a program would take on a GPU that is not here: a *modelled* latency, never mixed with a
measured one.

`evaluators.model.traffic` decides which bytes come from DRAM, `evaluators.model.latency` turns bytes and operations
into microseconds. Both are meant to rank variants of a program, not to predict a stop-watch.
"""

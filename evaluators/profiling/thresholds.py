"""From where on a figure says something: the one table of a diagnosis, with sources.

The line between what is well used and what is not (60% and 80% of speed of light) is `db.measures`'s, which has it from
the rule SpeedOfLight of Nsight Compute.
"""

from __future__ import annotations

# Rule HighPipeUtilization of Nsight Compute 2025.3: a pipe below 20% is under-utilised, from 60% it is well used and
# may become the bottleneck, from 80% it is one. The same two lines hold for a second bottleneck here.
SECOND_THROUGHPUT = 0.6

# Rule CPIStall of Nsight Compute names a reason that takes about a third of the cycles between two instructions; the
# smallest share that it named in reports from an H200 is 31%.
NAMED_STALL = 0.3
SECOND_LATENCY = 0.3

# Rule TheoreticalOccupancy of Nsight Compute speaks below 80% of the warps that an SM can hold.
LOW_OCCUPANCY = 0.8

# Volkov, "Understanding latency hiding on GPUs" (2016): half of the warps are as a rule enough to hide the latency of
# memory when each has several loads in flight.
FEW_WARPS = 0.5

# Percentage points between two speeds of light that are read in different passes: the larger one is set by another
# unit only if it is larger by more.
SAME_UNIT_PCT = 5.0

# Bytes of stack for each thread: below, what is on the stack is rarely touched in a loop.
MANY_SPILLED_BYTES = 64

# Microseconds of a kernel that does nothing, inside a graph (configs/hardware.yaml, `launch_us`).
LAUNCH_US = 2.0

# Warps of a program from which on reductions wait for each other: a barrier and shared memory for each.
MANY_WARPS = 8

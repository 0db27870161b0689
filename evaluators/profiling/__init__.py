"""Why a program is not faster: what Nsight Compute and the compiler say of it, and what that means.

`ncu` reports become records in `report`, `tables`, `metrics`, `stalls`, `rules` and `whole`; `diagnosis` says from a
profile what limits a program. Neither imports torch or triton. `profiler.Profiler` profiles programs in batches, one
process of ncu for all that wait, inside the sandbox.
"""

"""What counters cost of the GPU's time: measured on an H200 under the sections of `ncu` (benchmarks/RESULTS.md, 10)."""

from __future__ import annotations

START_S = 1.5  # once for each process: its first launch takes so much longer than the next ones
LAUNCH_S = 0.5  # of each launch that is replayed, whatever its size up to some hundred megabytes

"""Values only: presets, hardware tables, tolerances. Read through `evolve.config` and `evaluators.hardware`."""

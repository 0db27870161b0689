"""Values only: presets, hardware tables, tolerances, the technique catalogue.

Read through `evolve.config`, `evaluators.hardware` and `db.techniques`.
"""

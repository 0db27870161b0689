"""The *command* `evolve`: one file for each sub-command, each a thin shell over a function that returns records.

`main` only lists the sub-commands; the module of the chosen one is imported when it is chosen. What is printed goes
through `console`, so that tables look alike, are plain without a terminal, and are JSON with `--json`.
"""

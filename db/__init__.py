"""What we know: records, the measure space and the archive.

An *archive* (`db.archive.ProgramArchive`) is one DuckDB file that keeps every candidate of every run with its verdict.
A *record* (`db.records`) is what the rooms exchange; a *cell* (`db.measures`) is where a program belongs in a grid.
Nothing here knows how candidates are proposed or judged.
"""

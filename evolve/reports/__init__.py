"""A *report* tells the story of one run in one HTML file that needs nothing else: no network, no script, no font.

`evolve.reports.build.build_report` reads a run's records and returns the page. It is made in three steps, each a pure
function: records to facts (`facts`), facts to pictures (`charts`), facts and pictures to a page (`build`).
`model` is the page of a whole model, made of its summary, and `bench` that of many.
"""

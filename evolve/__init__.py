"""The composition root: it puts islands, evaluators and the archive together, and is what people call.

A *run* (`evolve.run.run_search`) is one search for one problem; a *budget* (`evolve.budget`) says when it ends; an
*event* (`evolve.events`) is what it tells whoever watches. Whatever the command line can do, a function here can do.
"""

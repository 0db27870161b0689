"""Is it right, is it fast, and why not faster.

An *evaluator* (`evaluators.evaluator`) judges candidates for one problem on one device by a cascade of *gates*; each
gate asks one question and gives a reason when it refuses. Candidate code runs in the *sandbox* only.
"""

"""A problem is an operation to make faster: a reference, its workloads, its tolerances, and perhaps first programs.

`load_problem` reads one from a name of the built-in suite, a KernelBench-style file, a standalone Triton file, a file
with a Helion kernel, or a module of a package. It reads text only: no torch, and nothing of the file is run; what a
package holds and what Helion generates is asked of a process of its own (`aside`). `reference.Reference` runs the
reference (that needs torch).
"""

from evaluators.problems.loader import load_problem, read_seed, suite_problem
from evaluators.problems.suite import suite_names
from evaluators.suite.mutants import mutants

__all__ = ["load_problem", "mutants", "read_seed", "suite_names", "suite_problem"]

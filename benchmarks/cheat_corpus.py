"""Every cheat of `tests/corpus` must be refused, and every honest twin must pass, through the real evaluator.

    python -m benchmarks.cheat_corpus
    python -m benchmarks.cheat_corpus --device cuda --at-once 8

Without a GPU, cheats that only a GPU can tell are listed apart, with what the gates said to them. Real kernels are read
too: the seeds of the suite and the kernels of the tests, everything that structural operators make of them in two
generations, and the kernels of liger-kernel where it is installed. Ends with 1 when a cheat was accepted or an honest
program refused.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from db.records import Candidate, DeviceKind, EntryPoint, Lineage, Outcome, Problem, Verdict
from evaluators.evaluator import Evaluator, EvaluatorSettings
from evaluators.gates.kernel_code import kernel_findings
from evaluators.gates.reachable import is_kernel, module_aliases
from evaluators.gates.static import check_policy
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem, suite_names, suite_problem
from islands.operators import default_operators
from tests.support.corpus import Specimen, specimens
from tests.support.parents import kernel_sources, parent_of

RUN = "corpus"
DRAWS = 4  # of each operator, on each program


class Judged(NamedTuple):
    """A program of the corpus and what the evaluator said."""

    specimen: Specimen
    is_cheat: bool
    verdict: Verdict
    seconds: float

    @property
    def is_accepted(self) -> bool:
        return self.verdict.outcome is Outcome.CORRECT

    @property
    def by(self) -> str:
        """Which gate ended it."""
        return str(self.verdict.gates[-1].gate) if not self.is_accepted else "nobody"

    @property
    def is_as_it_should_be(self) -> bool:
        """Cheats are refused or, as honest programs may be, not to be judged here; those that need a GPU have one."""
        return (
            self.is_accepted is not self.is_cheat if self.verdict.outcome is not Outcome.UNSUPPORTED else self.is_cheat
        )


def judged(
    wanted: Sequence[tuple[Specimen, bool]], device: DeviceKind, target: str, n_at_once: int
) -> Iterator[Judged]:
    """Verdicts, problem by problem. One baseline will do: which programs are right is the question."""
    settings = EvaluatorSettings(target=target, baselines=("compile",))
    for name in sorted({specimen.problem for specimen, _ in wanted}):
        problem = load_problem(name)
        with open_evaluator(problem, settings, device) as evaluator, ThreadPoolExecutor(n_at_once) as threads:

            def judge(
                one: tuple[Specimen, bool], problem: Problem = problem, evaluator: Evaluator = evaluator
            ) -> Judged:
                start = time.perf_counter()
                verdict = evaluator.judge(_candidate(one[0], problem))
                return Judged(*one, verdict, time.perf_counter() - start)

            yield from threads.map(judge, [one for one in wanted if one[0].problem == name])


def _candidate(specimen: Specimen, problem: Problem) -> Candidate:
    return Candidate(
        candidate_id=f"{RUN}-0-{specimen.name}",
        run_id=RUN,
        problem_id=problem.problem_id,
        island=0,
        source=specimen.source,
        entry_point=EntryPoint.MODEL,
        lineage=Lineage(operator="seed"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--target", default="h100", help="the GPU that is modelled without one")
    parser.add_argument("--only", default="", help="programs whose names begin so")
    parser.add_argument("--problems", nargs="+", help="programs for these problems alone")
    parser.add_argument("--at-once", type=int, default=1, help="programs judged side by side")
    arguments = parser.parse_args()
    wanted = [*((s, True) for s in specimens("cheats")), *((s, False) for s in specimens("honest"))]
    wanted = [(s, is_cheat) for s, is_cheat in wanted if s.name.startswith(arguments.only)]
    if arguments.problems:
        wanted = [(s, is_cheat) for s, is_cheat in wanted if s.problem in arguments.problems]
    start = time.perf_counter()
    found = []
    for one in judged(wanted, DeviceKind(arguments.device), arguments.target, arguments.at_once):
        found.append(one)
        print(line(one), flush=True)
    print(f"{time.perf_counter() - start:.0f} s")
    status = summarise(found, has_gpu=arguments.device == "cuda")
    refusals = [] if arguments.only or arguments.problems else [*refused_programs(), *refused_kernels()]
    print("\n".join(refusals))
    sys.exit(1 if refusals else status)


def refused_programs() -> list[str]:
    """Real programs that the policy refuses, with its reason: seeds, kernels of the tests, and their descendants."""
    sources = {**kernel_sources(), **{name: suite_problem(name).seeds[0] for name in suite_names()}}
    operators = [operator for operator in default_operators() if operator.n_parents == 1]
    programs = dict(sources)
    for name, source in sources.items():
        for operator in operators:
            for seed in range(DRAWS):
                rng = random.Random(seed)
                child = operator.propose([parent_of(source)], rng)
                if child is None:
                    continue
                programs[f"{name}, {operator.name} {seed}"] = child.source
                second = rng.choice(operators)
                grandchild = second.propose([parent_of(child.source)], rng)
                if grandchild is not None:
                    programs[f"{name}, {operator.name} {seed}, {second.name}"] = grandchild.source
    reasons = {name: check_policy(source, _entry_of(source)).reason for name, source in programs.items()}
    print(f"{len(programs)} programs of structural operators and their parents read")
    return [f"refused: {name}: {reason}" for name, reason in reasons.items() if reason]


def _entry_of(source: str) -> str:
    return "ModelNew" if "class ModelNew" in source else "kernel_function"


def refused_kernels() -> list[str]:
    """Lines of liger-kernel's kernels that the policy refuses."""
    spec = importlib.util.find_spec("liger_kernel")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    n_kernels, refused = 0, []
    for path in (p for folder in folders for p in sorted(Path(folder, "ops").rglob("*.py"))):
        tree = ast.parse(path.read_text())
        aliases = module_aliases(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and is_kernel(node, aliases):
                n_kernels += 1
                refused += [f"refused: {path.name}:{at}: {what}" for at, what in kernel_findings(node, aliases)]
    print(f"{n_kernels} kernels of liger-kernel read")
    return refused


def line(one: Judged) -> str:
    mark = "  " if one.is_as_it_should_be else "??"
    what = "cheat " if one.is_cheat else "honest"
    speedup = f"{one.verdict.latency.speedup:.2f}x" if one.verdict.latency else ""
    reason = " ".join(one.verdict.reason.split())[:130]
    return f"{mark} {what} {one.specimen.name:32} {one.verdict.outcome:11} {one.by:11} {speedup:7} {reason}"


def summarise(found: Sequence[Judged], *, has_gpu: bool) -> int:
    """Prints the figures; the exit status."""
    cheats, honest = ([one for one in found if one.is_cheat is wanted] for wanted in (True, False))
    left = [one for one in cheats if one.specimen.needs_gpu and not has_gpu]
    accepted = [one for one in cheats if one.is_accepted and one not in left]
    refused = [one for one in honest if not one.is_as_it_should_be]
    print(
        f"\n{len(cheats)} cheats of {len({c.specimen.kind for c in cheats})} kinds; ended by",
        dict(Counter(c.by for c in cheats)),
    )
    print(f"accepted: {len(accepted)} {[one.specimen.name for one in accepted]}")
    print(f"{len(honest)} honest programs; refused: {len(refused)} {[one.specimen.name for one in refused]}")
    for one in left:
        print(f"only a GPU can tell: {one.specimen.name} ({one.specimen.claim}); here: {one.verdict.outcome}")
    return 1 if accepted or refused else 0


if __name__ == "__main__":
    main()

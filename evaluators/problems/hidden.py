"""Hidden workloads: sizes and layouts that no program has been written for, drawn from a run's secret seed.

What a problem says may vary is in `Problem.varies`: sizes by name, and `Problem.layouts`. Everything else stays as it
is at the small workload. A draw that the reference refuses is drawn again, and left out after some tries.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from db.errors import DeviceError, ProblemError
from db.records import Problem, Workload
from evaluators.problems.reference import Reference

HIDDEN = "hidden"
N_TRIES = 12  # of one workload
SHARES = ((0.25, 0.5), (0.5, 1.0))  # of the small workload's sizes, by workload: the first is run with many values

Sizes = dict[str, int | float]


def is_hidden(workload: Workload) -> bool:
    """Whether a workload was drawn by `hidden_workloads`."""
    return workload.name.startswith(HIDDEN)


def hidden_workloads(problem: Problem, secret_seed: int) -> list[Workload]:
    """Up to two workloads of other sizes, then one for each layout that the problem lets vary.

    Runs the reference on the CPU, whose faults harm nobody. A standalone Triton file has layouts alone unless it says
    that its sizes vary.
    """
    rng = random.Random(secret_seed)
    found: list[Workload] = []
    for k in range(len(SHARES) if varying_groups(problem) else 0):
        drawn = _drawn(problem, k, rng)
        if drawn is not None:
            found.append(drawn)
    sizes = problem.small.sizes
    return found + [
        Workload(name=f"{HIDDEN}-{layout}", role="small", sizes=sizes, layout=layout) for layout in problem.layouts
    ]


def varying_groups(problem: Problem) -> list[tuple[str, ...]]:
    """The sizes that vary; those that are equal at the small and at the full workload move together."""
    groups: dict[tuple[int | float, int | float], list[str]] = {}
    small, full = problem.small.sizes, problem.full.sizes
    for name in problem.varies:
        if isinstance(small.get(name), int) and isinstance(full.get(name), int):
            groups.setdefault((small[name], full[name]), []).append(name)
    return [tuple(names) for names in groups.values()]


def _drawn(problem: Problem, k: int, rng: random.Random) -> Workload | None:
    for sizes in _proposals(problem, k, rng):
        workload = Workload(name=f"{HIDDEN}-{k + 1}", role="small", sizes=sizes)
        if sizes != problem.small.sizes and _is_accepted(problem, workload):
            return workload
    return None


def _proposals(problem: Problem, k: int, rng: random.Random) -> Iterator[Sizes]:
    """Sizes to try: odd ones, the second time with one of them one. Odd numbers that do not fit together give way to
    fewer changes."""
    groups = varying_groups(problem)
    ones = rng.sample(groups, len(groups)) if k else []
    for i in range(N_TRIES):
        one = ones[i % len(ones)] if ones else ()
        changed = groups if i < N_TRIES // 2 else [] if one else [rng.choice(groups)]
        sizes = dict(problem.small.sizes)
        for names in changed:
            sizes.update(dict.fromkeys(names, odd_near(int(sizes[names[0]]), SHARES[k], rng)))
        yield sizes | dict.fromkeys(one, 1)


def odd_near(size: int, shares: tuple[float, float], rng: random.Random) -> int:
    """An odd number between two shares of a size; for a size under 16, from its half to a little above it. Never one,
    and never the size itself."""
    low, high = (shares[0] * size, shares[1] * size) if size >= 16 else (size / 2, size + 2)
    return rng.choice([value for value in range(max(3, int(low) | 1), int(high) + 1, 2) if value != size])


def _is_accepted(problem: Problem, workload: Workload) -> bool:
    """Whether the reference answers plain inputs of these sizes with finite numbers."""
    try:
        reference = Reference(problem, workload)
        outputs = reference.expected(reference.draw_inputs(0, "cpu"))
    except (ProblemError, DeviceError):
        return False
    return bool(outputs) and all(o.numel() > 0 and bool(o.isfinite().all()) for o in outputs)

"""Reading a problem from text. Nothing of the file is run here, and torch is not imported."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from db.errors import EvolveError, SeedError
from db.records import EntryPoint, Problem, Tolerance, Workload
from evaluators.problems.checks import check_kernelbench, check_triton, kind_of
from evaluators.problems.files import SourceFile
from evaluators.problems.helion_files import HelionFile, generated_programs, helion_kernels, read_helion
from evaluators.problems.importable import MODEL_TEXT, importable_file, read_importable
from evaluators.problems.parts import extract, needed_names, squeezed
from evaluators.problems.shrink import shrink
from evaluators.problems.sizes import Number, Size, module_sizes
from evaluators.problems.suite import SUITE_DIRECTORY, suite_names, unknown_problem

SMALL = "SMALL"
TOLERANCES = "TOLERANCES"
VARIES = "VARIES"
FIXED = "FIXED"
_ROOTS = {"kernelbench": ("Model", "get_inputs", "get_init_inputs"), "triton": ("kernel_function", "get_inputs")}
_SMALL_FORM = 'SMALL = {"batch_size": 4}: sizes of the file with values that the interpreter can run in a second'
_TOLERANCES_FORM = 'TOLERANCES = {"float32": (1e-4, 1e-5)}: dtype of an output to rtol and atol, both positive'
_VARIES_FORM = (
    'VARIES = {"sizes", "strides", "alignment"}: what may differ from the workloads of the file; any of the three'
)
_FIXED_FORM = 'FIXED = {"head_dim"}: sizes of SMALL that are the only ones beside those of the file'
_LAYOUTS: dict[str, Literal["transposed", "unaligned"]] = {"strides": "transposed", "alignment": "unaligned"}


def load_problem(spec: str, *, sizes: Mapping[str, Number] | None = None, seed_files: Sequence[Path] = ()) -> Problem:
    """The problem that `spec` names: a built-in name, the path of a KernelBench-style or standalone Triton file, or a
    module of a package (`mylib.blocks:Block@inputs.py`, see `importable`).

    A KernelBench file may define `ModelNew` too: it becomes the first seed. The small workload is `SMALL` of the file,
    or derived from its module-level sizes (see `shrink`), or, when there are none, the full one.

    Args:
        spec: name, path, or MODULE:NAME@INPUTS.
        sizes: values for module-level sizes of the file, by name, in the place of its own.
        seed_files: files with further first programs; each defines `ModelNew` or `kernel_function`.

    Raises:
        ProblemError: no such problem, or a file that is none; the message has file, line and missing piece.
        SeedError: a seed file that cannot be read or lacks the entry point.
    """
    if spec in suite_names():
        file = _suite_file(SUITE_DIRECTORY / f"{spec}.py")
        own_seeds = [_suite_file(SUITE_DIRECTORY / "seeds" / f"{spec}.py").text]
        return _problem(file, spec, sizes or {}, own_seeds, seed_files)
    path = Path(spec).expanduser()
    if not path.exists():
        wanted = read_importable(spec)
        if wanted is None:
            raise unknown_problem(spec)
        return _problem(importable_file(wanted), wanted.name, sizes or {}, [], seed_files)
    return _problem(SourceFile.read(path), path.stem, sizes or {}, [], seed_files)


def suite_problem(name: str) -> Problem:
    """A built-in problem with its seed.

    Raises:
        ProblemError: no problem of that name; the hint has the nearest.
    """
    if name not in suite_names():
        raise unknown_problem(name)
    return load_problem(name)


def _suite_file(path: Path) -> SourceFile:
    return SourceFile(path.read_text(encoding="utf-8"), path.relative_to(SUITE_DIRECTORY.parent.parent).as_posix())


def _problem(
    file: SourceFile, name: str, overrides: Mapping[str, Number], own_seeds: list[str], seed_files: Sequence[Path]
) -> Problem:
    if helion_kernels(file.tree):
        return _helion_problem(read_helion(file), name, overrides, seed_files)
    kind: Literal["kernelbench", "triton"] = "kernelbench" if kind_of(file) == "kernelbench" else "triton"
    (check_kernelbench if kind == "kernelbench" else check_triton)(file)
    entry_point = EntryPoint.MODEL if kind == "kernelbench" else EntryPoint.FUNCTION
    seeds = [*own_seeds]
    if file.defines(entry_point):
        seeds.append(_own_seed(file, entry_point))
    seeds += [read_seed(path, entry_point) for path in seed_files]
    workloads = _workloads(file, kind, overrides)
    return Problem(
        name=name,
        kind=kind,
        source=_reference_source(file, kind),
        workloads=workloads,
        tolerances=_tolerances(file),
        seeds=tuple(dict.fromkeys(seeds)),
        varies=_varying_sizes(file, workloads, by_itself=kind == "kernelbench" and file.defines(SMALL)),
        layouts=_layouts(file),
    )


def _helion_problem(
    held: HelionFile, name: str, overrides: Mapping[str, Number], seed_files: Sequence[Path]
) -> Problem:
    """A file with Helion kernels: what Helion generates for each configuration is a first program."""
    (check_kernelbench if held.kind == "kernelbench" else check_triton)(held.file)
    workloads = _workloads(held.file, held.kind, overrides)
    programs, fits_small = generated_programs(held, workloads[0].sizes, workloads[1].sizes)
    if not fits_small:
        workloads = (workloads[0], Workload(name="small", role="small", sizes=workloads[0].sizes))
    own = [_own_seed(SourceFile(held.program(texts), held.file.label), held.entry_point) for texts in programs]
    return Problem(
        name=name,
        kind=held.kind,
        source=held.reference(programs[0]),
        workloads=workloads,
        tolerances=_tolerances(held.file),
        seeds=tuple(dict.fromkeys([*own, *(read_seed(path, held.entry_point) for path in seed_files)])),
        varies=_varying_sizes(held.file, workloads, by_itself=False),  # what Helion generates may hold sizes like one
        layouts=_layouts(held.file),
    )


# -------------------------------------------------------------------------------------------------- reference, seeds


def _reference_source(file: SourceFile, kind: str) -> str:
    """The file as it stands, or, where it holds a `ModelNew` too, without what only that needs."""
    if kind == "kernelbench" and file.defines(EntryPoint.MODEL):
        return extract(file.text, [*_ROOTS[kind], SMALL, TOLERANCES, VARIES, FIXED, MODEL_TEXT])
    return file.text


def _own_seed(file: SourceFile, entry_point: EntryPoint) -> str:
    """The program inside a problem's file, without the reference."""
    held = needed_names(file.tree, [entry_point]) & {"Model", "get_inputs", "get_init_inputs"}
    class_ = file.class_(entry_point)
    if held:
        hint = "a program must stand on its own: it is judged where the reference is not to be had"
        raise file.error(f"{entry_point} uses {min(held)}", class_.lineno if class_ else None, hint)
    return squeezed(extract(file.text, [entry_point], keeps_imports=False))


def read_seed(path: Path, entry_point: EntryPoint) -> str:
    """The first program in a file, without the reference that may stand beside it.

    Raises:
        SeedError: it cannot be read, is not Python, or lacks the entry point.
    """
    file = SourceFile.read(path, SeedError)
    if not file.defines(entry_point):
        other = EntryPoint.FUNCTION if entry_point is EntryPoint.MODEL else EntryPoint.MODEL
        has = f", it has {other}" if file.defines(other) else ""
        raise file.error(
            f"no {entry_point}{has}", None, f"a seed of this problem defines {entry_point} at module level"
        )
    if file.defines("Model") or file.defines("get_inputs"):
        return _own_seed(file, entry_point)
    return file.text


# -------------------------------------------------------------------------------------------------------- workloads


def _workloads(file: SourceFile, kind: str, overrides: Mapping[str, Number]) -> tuple[Workload, ...]:
    sizes = module_sizes(file.tree)
    free = _free_sizes(file, kind, sizes)
    full = {name: size.value for name, size in free.items() if not size.is_derived}
    full |= {name: _override(file, name, value, free, sizes) for name, value in overrides.items()}
    smalls = [full | small for small in _named_small(file, free)] or [_derived_small(full, free)]
    workloads = [Workload(name="full", role="full", sizes=full)]
    for i, small in enumerate(smalls):
        workloads.append(Workload(name="small" if i == 0 else f"small-{i + 1}", role="small", sizes=small))
    return tuple(workloads)


def _free_sizes(file: SourceFile, kind: str, sizes: Mapping[str, Size]) -> dict[str, Size]:
    """The sizes that may vary: what the reference or its inputs use, and the program inside the file does not."""
    inputs = needed_names(file.tree, [root for root in _ROOTS[kind] if root != "kernel_function"])
    fixed = needed_names(file.tree, [EntryPoint.MODEL, EntryPoint.FUNCTION])
    return {name: size for name, size in sizes.items() if name in inputs and name not in fixed}


def _derived_small(full: Mapping[str, Number], free: Mapping[str, Size]) -> dict[str, Number]:
    overridden = {name for name in full if free[name].is_derived}
    return shrink({name: value for name, value in full.items() if name not in overridden}) | {
        name: full[name] for name in overridden
    }


def _override(
    file: SourceFile, name: str, value: Number, free: Mapping[str, Size], sizes: Mapping[str, Size]
) -> Number:
    if name in sizes and name not in free:
        line = sizes[name].line
        raise file.error(
            f"size {name!r} is fixed: the program in this file uses it, or no input does", line, _listed(free)
        )
    if name not in free:
        near = get_close_matches(name, free, n=1, cutoff=0.4)
        guess = f"did you mean {near[0]!r}? " if near else ""
        raise file.error(f"no size named {name!r}", None, guess + _listed(free))
    if isinstance(free[name].value, int) and (isinstance(value, bool) or int(value) != value or value < 1):
        raise file.error(
            f"size {name!r} must be a positive whole number, got {value!r}", free[name].line, _listed(free)
        )
    return int(value) if isinstance(free[name].value, int) else float(value)


def _listed(sizes: Mapping[str, Size]) -> str:
    if not sizes:
        return "the file has no sizes at module level: write batch_size = 64 above get_inputs and use it there"
    return "sizes of this problem: " + ", ".join(f"{size.name}={size.value}" for size in sizes.values())


def _named_small(file: SourceFile, free: Mapping[str, Size]) -> list[dict[str, Number]]:
    """What the file says in `SMALL`: a dict, or a list of them."""
    said = _literal(file, SMALL, _SMALL_FORM)
    if said is None:
        return []
    line = _line_of(file, SMALL)
    smalls = said if isinstance(said, list | tuple) else [said]
    if not smalls or not all(isinstance(small, dict) for small in smalls):
        raise file.error("SMALL must be a dict of sizes", line, _SMALL_FORM)
    for small in smalls:
        for name, value in small.items():
            if name not in free:
                raise file.error(f"SMALL names {name!r}, which is no size of this problem", line, _listed(free))
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise file.error(f"SMALL[{name!r}] must be a positive number, got {value!r}", line, _SMALL_FORM)
    return [dict(small) for small in smalls]


def _varying_sizes(file: SourceFile, workloads: Sequence[Workload], *, by_itself: bool) -> tuple[str, ...]:
    """The whole numbers that hidden workloads may change: those that differ between the small and the full workload,
    and that `FIXED` does not name.

    Args:
        by_itself: whether sizes vary though `VARIES` does not say so.
    """
    fixed = _words(file, FIXED, workloads[0].sizes, _FIXED_FORM)
    if not by_itself and "sizes" not in _words(file, VARIES, ("sizes", *_LAYOUTS), _VARIES_FORM):
        return ()
    full, small = workloads[0].sizes, workloads[1].sizes
    pairs = {name: (value, small.get(name)) for name, value in full.items() if name not in fixed}
    return tuple(name for name, (a, b) in pairs.items() if isinstance(a, int) and isinstance(b, int) and a != b)


def _layouts(file: SourceFile) -> tuple[Literal["transposed", "unaligned"], ...]:
    said = _words(file, VARIES, ("sizes", *_LAYOUTS), _VARIES_FORM)
    return tuple(layout for word, layout in _LAYOUTS.items() if word in said)


def _words(file: SourceFile, name: str, known: Collection[str], form: str) -> set[str]:
    """The set of known words that a file gives to a name; empty where it says nothing."""
    said = _literal(file, name, form)
    if said is None:
        return set()
    if not isinstance(said, set | list | tuple) or not all(isinstance(word, str) for word in said):
        raise file.error(f"{name} must be a set of words", _line_of(file, name), form)
    unknown = sorted(set(said) - set(known))
    if unknown:
        listed = ", ".join(known) or "nothing: the file has no sizes at module level"
        raise file.error(f"{name} names {unknown[0]!r}, it may name {listed}", _line_of(file, name), form)
    return set(said)


def _tolerances(file: SourceFile) -> dict[str, Tolerance]:
    said = _literal(file, TOLERANCES, _TOLERANCES_FORM)
    try:
        return {dtype: Tolerance(rtol=rtol, atol=atol) for dtype, (rtol, atol) in (said or {}).items()}
    except (AttributeError, TypeError, ValueError) as cause:
        raise file.error("TOLERANCES is not understood", _line_of(file, TOLERANCES), _TOLERANCES_FORM) from cause


def _literal(file: SourceFile, name: str, form: str) -> Any:
    expression = file.constant(name)
    try:
        return None if expression is None else ast.literal_eval(expression)
    except ValueError as cause:
        error: EvolveError = file.error(f"{name} must be spelt out, without names or calls", _line_of(file, name), form)
        raise error from cause


def _line_of(file: SourceFile, name: str) -> int | None:
    expression = file.constant(name)
    return None if expression is None else expression.lineno

"""fast_log: logarithms by the special function unit; the library takes ten instructions and more, with branches."""

from __future__ import annotations

import re
from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program
from islands.operators.structural.grids import above_kernel, fresh_name
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit

_MODULES = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")
_LIBRARY = ("extra.libdevice.", "extra.cuda.libdevice.")  # by either import
_LOG1P = tuple(f"{library}log1p" for library in _LIBRARY)
_LOG = ("log", "math.log", *(f"{library}log" for library in _LIBRARY))
_AFTER = re.compile(r"^import triton\.language as tl\n", re.MULTILINE)

# Goldberg 1991, "What Every Computer Scientist Should Know About Floating-Point Arithmetic", theorem 4: what is lost in
# 1 + x is lost in the logarithm and in the difference alike
_COMPENSATED = """\
@triton.jit
def {name}(x):
    whole = 1.0 + x
    is_whole = (whole == 1.0) | (whole == float("inf"))
    return tl.where(is_whole, x, {libdevice}.fast_logf(whole) * (x / tl.where(is_whole, 1.0, whole - 1.0)))


"""


class LogSite(NamedTuple):
    """The logarithms of one kernel, rewritten together."""

    kernel: str
    of_more: tuple[cst.Call, ...]  # log1p
    plain: tuple[cst.Call, ...]


class FastLog(Technique[LogSite]):
    """log(x) by `lg2.approx`, whose error near 1 is 2^-22, and log1p(x) as log(1 + x), with or without what 1 + x
    loses."""

    name = "fast_log"
    prior = 0.05
    citation = "lg2.approx, https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-lg2"

    def sites(self, program: Program) -> list[LogSite]:
        if program.alias("triton.language") != "tl" or not (_libdevice(program) or _can_import(program)):
            return []
        calls = program.device_calls
        found = [LogSite(n, tuple(calls(k, *_LOG1P)), tuple(calls(k, *_LOG))) for n, k in program.kernels.items()]
        return [site for site in found if site.of_more or site.plain]

    def rewrite(self, context: Context, site: LogSite) -> Rewrite | None:
        program, libdevice = context.program, _libdevice(context.program) or "libdevice"
        edits = [] if _libdevice(program) else [_import(program)]
        edits += [_by_name(program, call, f"{libdevice}.fast_logf") for call in site.plain]
        said = "log by the special function unit"
        if site.of_more and context.rng.random() < 0.5:
            name = fresh_name(program, "fast_log1p")
            text = _COMPENSATED.format(name=name, libdevice=libdevice)
            edits += [above_kernel(program, program.kernels[site.kernel], text)]
            edits += [_by_name(program, call, name) for call in site.of_more]
            said += ", with what 1 + x loses"
        elif site.of_more:
            edits += [edit for call in site.of_more for edit in _of_sum(program, call, f"{libdevice}.fast_logf")]
        return Rewrite(tuple(edits), f"{said}, in {site.kernel}")


def _libdevice(program: Program) -> str:
    """What the program calls the library, or the empty string."""
    return next((alias for module in _MODULES if (alias := program.alias(module))), "")


def _can_import(program: Program) -> bool:
    return _AFTER.search(program.source) is not None and fresh_name(program, "libdevice") == "libdevice"


def _import(program: Program) -> Edit:
    found = _AFTER.search(program.source)
    assert found is not None
    return Edit(found.end(), found.end(), "from triton.language.extra import libdevice\n")


def _by_name(program: Program, call: cst.Call, name: str) -> Edit:
    return Edit(*program.span(call.func), name)


def _of_sum(program: Program, call: cst.Call, name: str) -> tuple[Edit, ...]:
    """Insertions around the argument, so that a call inside it can be rewritten too."""
    inner = program.span(call.args[0])
    return (
        _by_name(program, call, name),
        Edit(inner.start, inner.start, "1.0 + ("),
        Edit(inner.end, inner.end, ")"),
    )

"""Which launches read memory that nobody has written in the same call, on a machine without a GPU."""

import textwrap

import pytest

from evaluators.gates.static import check_capture
from evaluators.sandbox import Zygote
from tests.support.programs import HEAD, capture, tensor

X = tensor(4096)


def kernel(name: str, body: str) -> str:
    begin = "at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\nvalue = tl.load(x + at)\n"
    arguments = "x, y, s, flags, n, beta, BLOCK: tl.constexpr"
    return f"@triton.jit\ndef {name}({arguments}):\n{textwrap.indent(begin + body, '    ')}\n\n\n"


KERNELS = (
    kernel("read", "tl.store(y + at, value + tl.load(s + at))")
    + kernel("write", "tl.store(s + at, value)")
    + kernel("write_and_read", "tl.store(s + at, value)\nvalue += tl.load(flags + at)\ntl.store(y + at, value)")
    + kernel("add", "tl.atomic_add(s + at, value)")
    + kernel("update", "tl.store(y + at, value + tl.load(s + at))\ntl.store(s + at, value)")
    + "@triton.jit\ndef described(y, d, BLOCK: tl.constexpr):\n    tl.store(y + tl.arange(0, BLOCK), d.load([0]))\n\n\n"
    + "@triton.jit\ndef paired(y, pair, n, BLOCK: tl.constexpr):\n"
    "    tl.store(y + tl.arange(0, BLOCK), tl.load(pair[1] + tl.arange(0, BLOCK)))\n\n\n"
    + "@triton.autotune([triton.Config({'BLOCK': 128})], key=[], reset_to_zero=['s'])\n"
    + kernel("zeroed_add", "tl.atomic_add(s + at, value)")
)
REST = "(x, y, s, flags, x.numel(), 0.0, BLOCK=128)"
CASES = {
    "nobody wrote it": ([f"read[(32,)]{REST}"], ["s"]),
    "a launch before wrote it": ([f"write[(32,)]{REST}", f"read[(32,)]{REST}"], []),
    "a launch after writes it": ([f"read[(32,)]{REST}", f"write[(32,)]{REST}"], ["s"]),
    "a launch before only read it": ([f"read[(32,)]{REST}", f"read[(32,)]{REST}"], ["s", "s"]),
    "a launch of no program": ([f"write[(0,)]{REST}", f"read[(32,)]{REST}"], ["s"]),
    "zeros": (["s = torch.zeros_like(x)", f"add[(32,)]{REST}"], []),
    "zeroed in place": (["s.zero_()", f"add[(32,)]{REST}"], []),
    "filled through a view": (["s.view(64, 64)[1:].fill_(1.0)", f"read[(32,)]{REST}"], []),
    "a copy of the input": (["s = x.clone()", f"update[(32,)]{REST}"], []),
    "copied to": (["s.copy_(x)", f"update[(32,)]{REST}"], []),
    "a copy of what nobody wrote": (["s = s.clone()", f"read[(32,)]{REST}"], ["s"]),
    "what a library makes of it": (
        ["m = s.view(1, 64, 64)", "s = torch.baddbmm(m, m, m, beta=0)", f"read[(32,)]{REST}"],
        [],
    ),
    "a copy into what somebody wrote": (["s.copy_(torch.empty_like(x))", f"read[(32,)]{REST}"], ["s"]),
    "in another type": (["s = s.to(torch.float16).to(torch.float32)", f"read[(32,)]{REST}"], ["s"]),
    "a place holder": (["s = torch.empty(0)", f"read[(32,)]{REST}"], []),
    "a view of what nobody wrote": (["s = s.view(64, 64).t()", f"read[(32,)]{REST}"], ["s"]),
    "other ways to allocate": (["s = x.new_empty(4096)", f"read[(32,)]{REST}"], ["s"]),
    "with strides": (["s = torch.empty_strided((64, 64), (64, 1))", f"read[(32,)]{REST}"], ["s"]),
    "numbers of the host": (["s = torch.tensor([0.0, 1.0])", f"update[(1,)]{REST}"], []),
    "the same memory twice": (["flags = s", f"write_and_read[(32,)]{REST}"], []),
    "a device was asked for": (["s = torch.empty(4096, device=s.device)", f"read[(32,)]{REST}"], ["s"]),
    "a descriptor of the host": (["described[(1,)](y, TensorDescriptor.from_tensor(s, [128]), BLOCK=128)"], ["d"]),
    "a part of a tuple": (["paired[(1,)](y, (x, s), x.numel(), BLOCK=128)"], ["pair[1]"]),
    "zeroed by the autotuner": (["zeroed_add[(32,)](x, y, s, flags, x.numel(), 0.0)"], []),
    "kept and updated": (["s = kept", f"update[(32,)]{REST}"], ["s"]),
    "kept, read and later written": (["s = kept", f"read[(32,)]{REST}", f"write[(32,)]{REST}"], ["s"]),
    "kept as it was made": (["s = kept", f"read[(32,)]{REST}"], []),
    "kept and zeroed": (["s = kept", "s.zero_()", f"update[(32,)]{REST}"], []),
    "kept and written first": (["s = kept", f"write[(32,)]{REST}", f"read[(32,)]{REST}"], []),
}


def program(*forwards: list[str]) -> str:
    """A program that runs the lines of each with an empty `s` of its own, an empty `y` and zeroed `flags`."""
    head = ["y, s = torch.empty_like(x), torch.empty_like(x)", "flags = torch.zeros(64, dtype=torch.int32)"]
    methods = [
        f"    def forward_{i}(self, x, kept):\n{textwrap.indent(chr(10).join([*head, *lines, 'return y']), 8 * ' ')}\n"
        for i, lines in enumerate(forwards)
    ]
    calls = [f"self.forward_{i}(x, self.kept_{i})" for i in range(len(forwards))]
    made = "".join(f"        self.register_buffer('kept_{i}', torch.zeros(4096))\n" for i in range(len(forwards)))
    return (
        f"{HEAD}from triton.tools.tensor_descriptor import TensorDescriptor\n\n\n{KERNELS}class ModelNew(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n{made}\n{chr(10).join(methods)}\n"
        f"    def forward(self, x):\n        return {', '.join(calls)}\n"
    )


@pytest.fixture(scope="module")
def reads(compiling: Zygote) -> dict[str, list[str]]:
    """By case, all in one call: the arguments through which its launches read what nobody wrote."""
    launches = iter(capture(compiling, program(*(lines for lines, _ in CASES.values())), X).launches)
    found = {}
    for name, (lines, _) in CASES.items():
        its = [next(launches) for line in lines if "[(" in line]
        found[name] = [argument for launch in its for argument in launch.unwritten_reads]
    assert next(launches, None) is None
    return found


@pytest.mark.parametrize("name", CASES)
def test_what_launches_and_operations_write_is_followed(reads: dict[str, list[str]], name: str) -> None:
    assert reads[name] == CASES[name][1]


def test_weights_of_the_reference_may_be_updated(compiling: Zygote) -> None:
    """As batch normalisation does with its running mean."""
    source = program(["s = kept", f"update[(32,)]{REST}"])
    own, given = (capture(compiling, source, X, weights=weights) for weights in ({}, {"kept_0": X}))
    assert [launch.unwritten_reads for capture in (own, given) for launch in capture.launches] == [("s",), ()]


def test_the_gate_names_kernel_and_argument_once_and_fingerprints_stay(compiling: Zygote) -> None:
    captured = capture(compiling, program([f"read[(32,)]{REST}", f"read[(4,)]{REST}"]), X)
    reason = check_capture(captured).reason
    assert reason.startswith("kernel read reads memory that nobody has written in this call (s)")
    assert reason.count("nobody has written") == 1
    without = tuple(launch.model_copy(update={"unwritten_reads": ()}) for launch in captured.launches)
    plain = captured.model_copy(update={"launches": without})
    assert check_capture(plain).passed and plain.fingerprint == captured.fingerprint

"""What Helion generates becomes plain Triton that runs without Helion.

The texts of `tests/data/helion` are what Helion 1.5.1 generated for kernels of our own, on tensors of the CPU.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from db.errors import ProblemError
from evaluators.decomposition.plain import Plain, definitions_text, import_text
from evaluators.problems.helion_code import plain_triton
from evaluators.problems.interpreted import InterpretedFunction

TEXTS = {path.stem: path.read_text() for path in (Path(__file__).parents[2] / "data" / "helion").glob("*.py")}
SOFTMAX = TEXTS["row_softmax"]

ALL = """
EPSILON = 1e-5

def kernel_function(x, weight, a, b):
    return row_softmax(x), rms_norm(x, weight), row_argmax(x), product(a, b), described_product(a, b)
"""


def plains() -> list[Plain]:
    return [plain_triton(text, name) for name, text in TEXTS.items()]


def host_of(name: str) -> str:
    return plain_triton(TEXTS[name], name).definitions[name]


def refusal(text: str) -> ProblemError:
    with pytest.raises(ProblemError, match="cannot run without Helion") as caught:
        plain_triton(text, "row_softmax")
    assert caught.value.hint
    return caught.value


def test_all_that_is_generated_computes_the_same_without_helion() -> None:
    source = import_text(plains()) + definitions_text(plains()) + ALL
    assert "helion." not in source and "import helion" not in source and "_inductor" not in source
    x = torch.randn(6, 64) * 100  # the exponential of what is not taken from the maximum overflows
    weight, a, b = torch.randn(64), torch.randn(32, 64), torch.randn(64, 48)
    softmax, norm, argmax, product, described = InterpretedFunction(source)(x, weight, a, b)
    torch.testing.assert_close(softmax, torch.softmax(x, 1))
    torch.testing.assert_close(norm, torch.nn.functional.rms_norm(x, (64,), weight, 1e-5), rtol=1e-4, atol=1e-5)
    assert argmax.equal(x.argmax(1))
    torch.testing.assert_close(product, a @ b, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(described, a @ b, rtol=1e-4, atol=1e-4)


def test_a_launch_is_tritons_own_with_its_constants_named() -> None:
    assert host_of("row_softmax") == (
        "def row_softmax(x: torch.Tensor):\n"
        "    n, _m = x.size()\n"
        "    out = torch.empty_like(x)\n"
        "    _RDIM_SIZE_1 = 64\n"
        "    _helion_row_softmax[(6,)](x, out, _RDIM_SIZE_1=_RDIM_SIZE_1, num_warps=4, num_stages=1)\n"
        "    return out"
    )


def test_block_sizes_of_the_configuration_are_arguments_of_the_launch() -> None:
    found = plain_triton(TEXTS["row_argmax"], "row_argmax")
    head = next(line for line in found.definitions["_helion_row_argmax"].splitlines() if line.startswith("def"))
    assert head == "def _helion_row_argmax(x, out, _RDIM_SIZE_1: tl.constexpr, _BLOCK_SIZE_0: tl.constexpr):"
    assert "    _BLOCK_SIZE_0 = 2\n" in found.definitions["row_argmax"]
    assert "_BLOCK_SIZE_0=_BLOCK_SIZE_0" in found.definitions["row_argmax"]
    assert any(name.startswith("inductor_") for name in found.definitions), "what Inductor has is copied"


def test_a_host_that_sets_a_block_size_itself_keeps_it() -> None:
    host = host_of("rms_norm")
    assert host.count("_BLOCK_SIZE_0 = 4") == 1
    assert "EPSILON" in host and "_source_module" not in host, "constants of the file are named plainly"


def test_what_helions_runtime_answers_is_asked_of_torch() -> None:
    assert "_NUM_SM = torch.cuda.get_device_properties(a.device).multi_processor_count" in host_of("product")
    kept = TEXTS["product"].replace("get_num_sm(a.device)", "get_num_sm(a.device, reserved_sms=8)")
    found = plain_triton(kept, "product").definitions["product"]
    assert "_NUM_SM = max(torch.cuda.get_device_properties(a.device).multi_processor_count - 8, 1)" in found


def test_descriptors_get_memory_for_themselves() -> None:
    definitions = plain_triton(TEXTS["described_product"], "described_product").definitions
    assert "triton.set_allocator(scratch_memory)" in definitions["described_product"]
    assert list(definitions).index("scratch_memory") < list(definitions).index("described_product")


def test_annotations_that_need_helion_are_left_out() -> None:
    text = SOFTMAX.replace("(x: torch.Tensor,", "(x: torch.Tensor, n: hl.constexpr=3,")
    assert "def row_softmax(x: torch.Tensor, n=3):" in plain_triton(text, "row_softmax").definitions["row_softmax"]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            "num_stages=1)",
            "num_stages=1, _minimum_resident_programs=6)",
            "its launch needs the launcher's _minimum_res",
        ),
        ("_launcher(_helion_row_softmax", "_launcher(other_kernel", "its launch needs the kernel other_kernel"),
        ("return out", "return helion.runtime.get_num_xcd()", "it says 'return helion.runtime.get_num_xcd()'"),
        ("pid_0 = ", "helion_dist_utils.wait(x); pid_0 = ", "it says 'helion_dist_utils.wait(x)'"),
        ("def row_softmax", "def other", "it defines the host function other"),
        ("@triton.jit", "print('loaded')\n\n@triton.jit", "it has \"print('loaded')\" at module level"),
    ],
)
def test_what_needs_helion_when_it_runs_is_refused_with_its_line(old: str, new: str, why: str) -> None:
    assert old in SOFTMAX
    assert why in refusal(SOFTMAX.replace(old, new)).message


def test_a_text_without_a_host_function_is_refused() -> None:
    tree = ast.parse(SOFTMAX)
    assert "it has no host function" in refusal(ast.unparse(ast.Module(tree.body[:-1], []))).message

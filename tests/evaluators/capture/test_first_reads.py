"""What a kernel reads before it has written there, from the TTIR of kernels compiled for a GPU that is not here."""

# ruff: noqa: E501  a table of kernels reads better unbroken

import importlib.util
import textwrap
from pathlib import Path
from typing import Any

import pytest
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource, make_backend

from evaluators.capture.first_reads import find_accesses
from tests.support.programs import HEAD, edited

BEGIN = "pid = tl.program_id(0)\ncols = tl.arange(0, BLOCK)\nat = pid * BLOCK + cols\nvalue = tl.load(x + at)\n"
SIGNATURE = {
    "x": "*fp32",
    "y": "*fp32",
    "s": "*fp32",
    "flags": "*i32",
    "n": "i32",
    "beta": "fp32",
    "BLOCK": "constexpr",
}
NUMBERS = {"n": 4096, "beta": 0.0}
H100 = GPUTarget("cuda", 90, 32)
HELPERS = """\
@triton.jit(noinline=True)
def peek(memory, i):
    return tl.load(memory + i)


@triton.jit
def hand_on(memory, i):
    return peek(memory + 1, i)


"""

# Bodies of kernels. `s` and `y` come from torch.empty, `flags` from torch.zeros, `beta` is 0 and `n` 4096.
READ = {
    "two_names": "tl.store(y + at, value)\ntl.store(y + at, tl.load(s + at))",
    "at_once": "tl.store(y + at, tl.load(s + at) + value)",
    "some_of_it": "old = tl.load(s + pid)\nif tl.abs(old - tl.load(x)) > 1e-5:\n    tl.store(s + at, value)\n    tl.store(y + at, value)",
    "in_a_loop_with_its_bound": "for start in range(0, n, BLOCK):\n    inside = start + cols < n\n    old = tl.load(s + start + cols, mask=inside, other=0.0)\n    tl.store(s + start + cols, old + value, mask=inside)",
    "in_a_loop_to_a_row": "for start in range(0, n - pid, BLOCK):\n    old = tl.load(s + start + cols)\n    tl.store(y + start + cols, old + value)",
    "through_helpers": "tl.store(y + at, value + hand_on(s, pid))",
    "through_a_number": "address = s.to(tl.int64) + 4 * pid\ntl.store(y + at, value + tl.load(address.to(tl.pointer_type(tl.float32))))",
    "through_a_choice": "here = tl.where(pid >= n, x, s)\ntl.store(y + at, value + tl.load(here + cols))",
    "through_swapped_pointers": "a = x\nb = s\nfor i in range(0, n):\n    value += tl.load(a + at)\n    a, b = b, a\ntl.store(y + at, value)",
    "through_a_descriptor": "d = tl.make_tensor_descriptor(s, [n], [1], [BLOCK])\ntl.store(y + at, value + d.load([pid * BLOCK]))",
    "after_a_way_out": "if pid >= n:\n    return\ntl.store(y + at, value + tl.load(s + at))",
    "after_a_store_of_the_other_way": "if tl.load(x) > 100.0:\n    tl.store(s + at, value)\ntl.store(y + at, value + tl.load(s + at))",
    "after_a_store_that_is_masked_off": "tl.store(s + at, value, mask=(at < n) & (beta != 0.0))\ntl.store(y + at, value + tl.load(s + at))",
    "behind_a_store_to_another_element": "tl.store(s + pid * 32 + 31, 0.0)\nold = tl.load(s + pid * 32 + tl.arange(0, 16))\ntl.store(y + pid, tl.sum(old))",
    "behind_a_store_to_the_end_of_a_row": "tl.store(s + pid * n + n - 1, 0.0)\ntl.store(y + at, value + tl.load(s + pid * n))",
    "behind_stores_to_another_half": "for i in range(0, 8):\n    tl.store(s + i * 16 + tl.arange(0, 16), 0.0)\ntl.store(y + at, value + tl.load(s + 128 + cols))",
    "after_a_store_of_no_program": "if pid * 2 < 0:\n    tl.store(s + at, value)\ntl.store(y + at, value + tl.load(s + at))",
    "after_a_store_masked_off_for_all": "tl.store(s + at, value, mask=(pid < 0) & (at < n))\ntl.store(y + at, value + tl.load(s + at, mask=at < n))",
    "under_a_condition_on_inputs": "if tl.load(x + pid) < 100.0:\n    value += tl.load(s + at)\ntl.store(y + at, value)\ntl.store(s + at, value)",
    "under_an_argument": "if beta == 0.0:\n    value += tl.load(s + at)\ntl.store(y + at, value)",
    "while_it_looks": "i = 0\nwhile tl.load(s + i) > 0.0:\n    i += 1\ntl.store(y + at, value + i)",
    "added_to": "tl.atomic_add(s + at, value)",
    "exchanged_and_taken": "tl.store(y + at, tl.atomic_xchg(s + at, value))",
    "compared": "old = tl.atomic_cas(s.to(tl.pointer_type(tl.int32)) + pid, 0, 1)\ntl.store(y + at, value + old)",
}

NOT_READ = {
    "its_own_part": "tl.store(s + at, value)\ntl.debug_barrier()\ntl.store(y + at, tl.load(s + pid))",
    "the_end_of_its_own_row": "for i in range(0, 8):\n    tl.store(s + pid * n + i * 16 + tl.arange(0, 16), 0.0)\ntl.store(y + at, value + tl.load(s + pid * n + 127))",
    "where_the_inputs_say": "first = tl.load(flags + pid)\ntl.store(s + first, 0.0)\ntl.store(y + at, value + tl.load(s + pid + 1))",
    "in_blocks_that_the_inputs_say": "places = tl.load(flags + cols)\ntl.store(s + places, value)\ntl.store(y + at, value + tl.load(s + places + 1))",
    "in_blocks_that_a_branch_has_made": "places = cols\nif tl.load(x) > 0.0:\n    places = tl.load(flags + cols)\ntl.store(s + places, value)\ntl.store(y + at, value + tl.load(s + places + 1))",
    "of_its_last_tile": "for tile in range(pid, n, 4):\n    tl.store(s + tile * BLOCK + cols, value)\n    tl.debug_barrier()\n    value += tl.load(s + (tile - 4) * BLOCK + cols, mask=cols >= 0)",
    "what_a_loop_before_wrote": "for start in range(0, n, BLOCK):\n    tl.store(s + start + cols, value)\nfor start in range(0, n, BLOCK):\n    tl.store(y + start + cols, tl.load(s + start + cols))",
    "not_with_this_argument": "if beta != 0.0:\n    value += beta * tl.load(s + at)\ntl.store(s + at, value)",
    "not_with_this_choice": "here = tl.where(beta != 0.0, s, x)\ntl.store(y + at, value + tl.load(here + at))",
    "not_with_this_mask": "value += tl.load(s + at, mask=(at < n) & (beta != 0.0), other=0.0)\ntl.store(s + at, value)",
    "from_the_second_iteration_on": "for k in range(0, n):\n    value += tl.load(s + at, mask=(at < n) & (k > 0), other=0.0)\n    tl.store(s + at, value)",
    "from_some_iteration_on": "for k in range(pid, n):\n    if k % 4 != 0:\n        value += tl.load(s + at)\n    tl.store(s + at, value)",
    "of_the_same_condition": "keep = tl.load(x) > 0.0\nif keep:\n    tl.store(s + at, value)\nif keep:\n    value += tl.load(s + at)\ntl.store(y + at, value)",
    "with_the_same_mask": "mask = (pid < n - 3) & (at < n)\ntl.store(s + at, value, mask=mask)\ntl.store(y + at, tl.load(s + at, mask=mask))",
    "of_a_mask_that_its_branch_has": "keep = pid < n - 3\ntl.store(s + at, value, mask=keep & (at < n))\nif keep:\n    value += tl.load(s + at)\ntl.store(y + at, value)",
    "of_one_of_the_iterations": "for i in range(0, n):\n    if i == n - 1:\n        tl.store(s + at, value)\ntl.store(y + at, tl.load(s + at))",
    "of_the_iterations_that_found_it": "for i in range(0, n):\n    if tl.load(x + i) > 1.0:\n        tl.store(s + pid, 1.0)\ntl.store(y + at, value + tl.load(s + pid))",
    "of_three_ways": "if pid < 2:\n    tl.store(s + at, value)\nelif pid < 3:\n    tl.store(s + at, 2 * value)\nelse:\n    tl.store(s + at, 3 * value)\ntl.store(y + at, tl.load(s + at))",
    "of_both_ways": "if tl.load(x) > 0.0:\n    tl.store(s + at, value)\nelse:\n    tl.store(s + at, 2 * value)\ntl.store(y + at, tl.load(s + at))",
    "behind_a_lock": "while tl.atomic_cas(flags, 0, 1) == 1:\n    pass\ncount = tl.load(flags + 1)\nif count == 0:\n    tl.atomic_xchg(flags + 1, 1)\nelse:\n    value += tl.load(s + cols)\ntl.store(s + cols, value)\ntl.atomic_xchg(flags, 0)",
    "in_turns": "if pid > 0:\n    while tl.atomic_add(flags, 0) != pid:\n        pass\n    value += tl.load(s + cols)\ntl.store(s + cols, value)\ntl.atomic_xchg(flags, pid + 1)",
    "looking_back": "tl.store(s + pid, tl.sum(value))\ntl.atomic_xchg(flags + pid, 1)\ntotal = 0.0\nfor before in range(0, pid):\n    while tl.atomic_add(flags + before, 0) == 0:\n        pass\n    total += tl.load(s + before)\ntl.store(y + at, value + total)",
    "by_the_last_program": "tl.store(s + pid, tl.sum(value))\nif tl.atomic_add(flags, 1) == tl.num_programs(0) - 1:\n    tl.store(y + at, tl.load(s + cols, mask=cols < n))",
    "set_by_an_exchange": "tl.atomic_xchg(s + at, value)\ntl.store(y + at, tl.load(s + at))",
    "by_what_is_not_known": "tl.inline_asm_elementwise('st.global.b32 [$1], 0; mov.b32 $0, 0;', '=r,l', [s + at], dtype=tl.int32, is_pure=False, pack=1)\ntl.store(y + at, tl.load(s + at))",
    "never": "tl.store(s + at, value)",
}


def kernel(name: str, body: str) -> str:
    return (
        f"@triton.jit\ndef {name}({', '.join(SIGNATURE)}: tl.constexpr):\n{textwrap.indent(BEGIN + body, '    ')}\n\n\n"
    )


def ttir_of(function: Any) -> str:
    """The first stage of Triton's compiler alone."""
    source, backend, context = ASTSource(function, SIGNATURE, {"BLOCK": 128}), make_backend(H100), ir.context()
    options = backend.parse_options({})
    ir.load_dialects(context)
    backend.load_dialects(context)
    codegen, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    return str(stages["ttir"](source.make_ir(H100, options, codegen, modules, context), {}))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A module with all kernels."""
    path = tmp_path_factory.mktemp("kernels") / "first_reads_kernels.py"
    path.write_text(HEAD + HELPERS + "".join(kernel(name, body) for name, body in {**READ, **NOT_READ}.items()))
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first_reads(kernels: Any, name: str) -> frozenset[Any]:
    """What a kernel reads first, of `y` and `s`: nothing is said against reading what others have filled."""
    found = find_accesses(ttir_of(getattr(kernels, name)), ["x", "y", "s", "flags"], NUMBERS)
    assert found is not None
    return (found.loads | found.atomics) - {"x", "flags"}


@pytest.mark.parametrize("name", READ)
def test_what_a_kernel_reads_first_is_told(kernels: Any, name: str) -> None:
    assert first_reads(kernels, name) == {"s"}


@pytest.mark.parametrize("name", NOT_READ)
def test_what_it_may_have_written_itself_is_not(kernels: Any, name: str) -> None:
    assert first_reads(kernels, name) == frozenset()


def test_memory_that_two_arguments_share_is_one(kernels: Any) -> None:
    text = ttir_of(kernels.two_names)
    assert first_reads(kernels, "two_names") == {"s"}
    found = find_accesses(text, ["x", "shared", "shared", "flags"], NUMBERS)
    assert found is not None and found.loads == {"x"} and found.stores == {"shared"}


TEXT = """\
module {
  tt.func public @k(%s: !tt.ptr<f32> loc("s"(#loc)), %n: i32 loc("n"(#loc))) attributes {noinline = false} {
    %0 = tt.addptr %s, %n : !tt.ptr<f32>, i32 loc("a) {b"(#loc))
    %1 = tt.load %0 : !tt.ptr<f32> loc(#loc1)
    tt.store %0, %1 : !tt.ptr<f32> loc(#loc1)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""


@pytest.mark.parametrize(
    "edit",
    [
        ("    tt.return", "    tt.return\n  }"),  # braces that do not match
        (" public ", " private "),  # no entry
        ("%1 = tt.load", "= !"),  # no operation
        ("    tt.return", "    cf.br ^bb7 loc(#loc)\n"),  # a branch to nowhere
        ("    %1 = tt.load", "    %9 = tt.call @missing(%0) : (!tt.ptr<f32>) -> f32\n    %1 = tt.load"),
    ],
)
def test_what_is_not_understood_has_no_answer(edit: tuple[str, str]) -> None:
    found = find_accesses(TEXT, ["s"])
    assert found is not None and found.loads == {"s"}
    assert find_accesses(edited(TEXT, edit), ["s"]) is None
    assert find_accesses(TEXT, ["s", "t"]) is None


def test_an_operation_that_is_not_known_may_write() -> None:
    found = find_accesses(edited(TEXT, ("    %1 = tt", "    ttx.fill %0 : !tt.ptr<f32>\n    %1 = tt")), ["s"])
    assert found is not None and found.loads == frozenset() and found.writes == {"s"}

"""fuse_launches: two launches become one where the second reads, element by element, what the first wrote."""

from __future__ import annotations

import random

import pytest
from support.compiling import interpret_all
from support.parents import kernel_sources, parent_of

from islands.operators.structural.fuse_launches import FuseLaunches
from islands.operators.structural.mask_elision import MaskElision

SOURCES = kernel_sources()
RETURNS, GELU, WEIGHTS = (SOURCES[f"two_launches_{name}"] for name in ("returns", "gelu", "weights"))


def fused(source: str) -> str | None:
    proposal = FuseLaunches().propose([parent_of(source)], random.Random(0))
    return None if proposal is None else proposal.source


def changed(source: str, *changes: tuple[str, str]) -> str:
    """The source with texts replaced, each of which must be there."""
    for before, after in changes:
        assert before in source, before
        source = source.replace(before, after)
    return source


# each row's sum, stored behind the loop, then a line of the sums
SUMS = (
    SOURCES["inductor_mean_magnitude"].rsplit("    for r0_offset", 1)[0]
    + """    tl.store(out_ptr1 + (x0), tmp3, xmask)


@triton.jit
def triton_poi_fused_1(in_ptr0, in_ptr1, out_ptr0, xnumel: tl.constexpr, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    x1 = (xindex % 3)
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.load(in_ptr1 + (x1), xmask, eviction_policy='evict_last')
    tmp2 = tl.full([XBLOCK], 0.25, tl.float32)
    tmp3 = tmp0 * tmp2 + tmp1
    tl.store(out_ptr0 + (x0), tmp3, xmask)


class ModelNew(nn.Module):
    def forward(self, arg1_1, arg0_1):
        buf0 = torch.empty_strided((6,), (1,), dtype=torch.float32, device=arg1_1.device)
        triton_red_fused_0[(triton.cdiv(6, 4),)](
            arg1_1, arg0_1, out_ptr1=buf0, xnumel=6, r0_numel=2048, XBLOCK=4, R0_BLOCK=512
        )
        buf1 = torch.empty_strided((6,), (1,), dtype=torch.float32, device=arg1_1.device)
        triton_poi_fused_1[(triton.cdiv(6, 4),)](buf0, arg0_1, buf1, 6, XBLOCK=4, num_warps=4, num_stages=1)
        return buf1


def get_inputs(aligned):
    return [torch.randn(6, 2048), torch.randn(2048)]
"""
)
_SIXTY_FOUR = (
    ("% 40)", "% 64)"),
    ("// 40)", "// 64)"),
    ("% 6)", "% 4)"),
    ("// 240", "// 256"),
    ("(240, 40, 1)", "(256, 64, 1)"),
    ("1200", "1280"),
    ("40, 6), (240, 6, 1)", "64, 4), (256, 4, 1)"),
    ("6*x0 + 240*x2", "4*x0 + 256*x2"),
    ("randn(40), torch.randn(6)", "randn(64), torch.randn(4)"),
    ("XBLOCK_1 = 512", "XBLOCK_1 = 256"),
)


def two_tensors() -> str:
    """The first kernel stores what it scans, too, and the second reads both."""
    return changed(
        RETURNS,
        (STORE, f"tl.store(out_ptr1 + (r0_1 + 300*x0), tmp3, r0_mask & xmask)\n        {STORE}"),
        ("out_ptr0, xnumel: tl.constexpr, r0_numel", "out_ptr0, out_ptr1, xnumel: tl.constexpr, r0_numel"),
        ("arg0_1, buf0, 5,", "arg0_1, buf0, buf9, 5,"),
        ("        XBLOCK_0 = 4", f"        buf9 = {NEW}\n        XBLOCK_0 = 4"),
        ("in_ptr2, out_ptr0, xnumel", "in_ptr2, in_ptr3, out_ptr0, xnumel"),
        ("buf0, arg0_1, arg2_1, buf1", "buf0, arg0_1, arg2_1, buf9, buf1"),
        ("tmp2 - tmp3", f"tmp2 - tmp3 * {LOAD.replace('in_ptr0', 'in_ptr3')}"),
    )


def elided(source: str) -> str:
    """The program without masks where tiles divide the elements, in both kernels."""
    for seed in range(2):
        proposal = MaskElision().propose([parent_of(source)], random.Random(seed))
        assert proposal is not None
        source = proposal.source
    assert source.count(": tl.constexpr = False") == 2
    return source


STORE = "tl.store(out_ptr0 + (r0_1 + 300*x0), tmp10, r0_mask & xmask)"
LOAD = "tl.load(in_ptr0 + (299 + ((-1)*x0) + 300*x1), xmask, eviction_policy='evict_last')"
NEW = "torch.empty_strided((5, 300), (300, 1), dtype=torch.float32, device=arg1_1.device)"
ADDRESS = "299 + ((-1)*x0) + 300*x1"
ARGUMENTS = "buf0, arg0_1, arg2_1, buf1, 1500"
MAXIMUM = """@triton.jit
def inductor_is_floating(x):
    return (x + tl.zeros((1,), tl.int1)).dtype.is_floating()


@triton.jit
def inductor_maximum(a, b):
    mask = a > b
    if inductor_is_floating(a):
        mask |= a != a
    return tl.where(mask, a, b)


"""
RETURNED = ("return buf1", "return buf1, buf0")
EVEN = (("5, 300)", "8, 300)"), ("cdiv(5,", "cdiv(8,"), ("buf0, 5, 300", "buf0, 8, 300"), ("1500", "2400"))
VARIANTS = {
    "a scan read from behind": RETURNS,
    "its tensor is returned": changed(RETURNS, RETURNED),
    "rows read from behind, too": changed(RETURNS, ("299 + ((-1)*x0) + 300*x1", "1499 + ((-1)*x0) + ((-300)*x1)")),
    "tiles that divide rows, no mask for them": changed(
        RETURNS,
        *EVEN,
        ("randn(5)", "randn(8)"),
        ("xmask = xindex < xnumel\n    r0_base", "xmask = tl.full([XBLOCK], True, tl.int1)[:, None]\n    r0_base"),
    ),
    "a block that holds the row": changed(
        RETURNS, ("R0_BLOCK_0 = 256", "R0_BLOCK_0 = 512"), ("tl.range(0, r0_numel, R0_BLOCK)", "tl.static_range(0, 1)")
    ),
    "two halves of rows as digits": changed(
        RETURNS,
        ("x0 = (xindex % 300)", "x0 = (xindex % 150)\n    x3 = ((xindex // 150) % 2)"),
        ("299 + ((-1)*x0) + 300*x1", "149 + ((-1)*x0) + 150*x3 + 300*x1"),
        ("in_ptr1 + (x0), xmask", "in_ptr1 + (x0 + 150*x3), xmask"),
    ),
    "half precision between two elementwise kernels": GELU,
    "bfloat16": changed(GELU, ("torch.float16", "torch.bfloat16")),
    "a longer and a shorter block": changed(
        GELU, ("XBLOCK_0 = 256", "XBLOCK_0 = 1024"), ("XBLOCK_1 = 512", "XBLOCK_1 = 64")
    ),
    "a condition beside the mask": changed(
        GELU,
        (
            "tmp10 = tl.load(in_ptr1 + (x1), xmask,",
            "tmp20 = x0 >= tl.full([1], 7, tl.int32)\n    tmp10 = tl.load(in_ptr1 + (x1), tmp20 & xmask, other=3.0,",
        ),
    ),
    "functions of each element, and what they say of types": changed(
        GELU,
        ("tmp1 = tl.full([1], 0.5, tl.float32)", "tmp1 = inductor_maximum(tl.full(tmp0.shape, 0.5, tmp0.dtype), tmp0)"),
        ("@triton.jit\ndef triton_poi_fused_1", f"{MAXIMUM}@triton.jit\ndef triton_poi_fused_1"),
    ),
    "elements below a bound": changed(
        GELU,
        (
            "tmp10 = tl.load(in_ptr1 + (x1), xmask,",
            "below = xindex < 700\n    tmp10 = tl.load(in_ptr1 + (x1), below, other=3.0,",
        ),
    ),
    "what the first kernel loads, under a name that it uses again": changed(
        RETURNS, ("tmp3 = tmp2.to(tl.float32)", "tmp1 = tmp2\n        tmp3 = tmp2.to(tl.float32)")
    ),
    "another value where a condition is false": changed(
        GELU,
        (
            "tmp10 = tl.load(in_ptr1 + (x1), xmask,",
            "tmp20 = x0 >= tl.full([1], 7, tl.int32)\n    tmp21 = x0.to(tl.float32)\n    "
            "tmp10 = tl.load(in_ptr1 + (x1), tmp20 & xmask, other=tmp21,",
        ),
    ),
    "tiles of two grid axes": changed(
        GELU,
        (
            "out_ptr0, xnumel: tl.constexpr, XBLOCK: tl.constexpr):\n    xoffset = tl.program_id(0) * XBLOCK\n"
            "    xindex = xoffset + tl.arange(0, XBLOCK)[:]\n    xmask = xindex < xnumel\n    x2 = xindex\n"
            "    x0 = (xindex % 40)\n    tmp0 = tl.load(in_ptr0 + (x2), xmask)",
            "out_ptr0, ynumel, xnumel, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):\n"
            "    yindex = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[:, None]\n    ymask = yindex < ynumel\n"
            "    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[None, :]\n    xmask = xindex < xnumel\n"
            "    y1 = yindex\n    x0 = xindex\n    tmp0 = tl.load(in_ptr0 + (x0 + 40*y1), xmask & ymask)",
        ),
        ("tl.store(out_ptr0 + (x2), tmp2, xmask)", "tl.store(out_ptr0 + (x0 + 40*y1), tmp2, xmask & ymask)"),
        ("XBLOCK_0 = 256", "XBLOCK_0 = 32"),
        ("(triton.cdiv(1200, XBLOCK_0),)", "(triton.cdiv(40, XBLOCK_0), triton.cdiv(30, 4))"),
        ("buf0, 1200, XBLOCK", "buf0, 30, 40, YBLOCK=4, XBLOCK"),
    ),
    "padded rows that are returned": WEIGHTS,
    "the second kernel is launched twice": changed(
        WEIGHTS,
        (
            "        return buf2, buf3",
            "        buf4 = torch.empty_strided((7, 100), (100, 1), dtype=torch.float32, device=arg0_1.device)\n"
            "        triton_poi_fused_1[(3,)](buf2, buf3, arg2_1, buf4, 700, XBLOCK=256)\n        return buf3, buf4",
        ),
    ),
    "digits in 64 bits": changed(
        WEIGHTS, ("x2 = xindex\n", "x2 = xindex.to(tl.int64)\n    tmp9 = x2\n"), ("tmp2 + tmp3", "tmp2 + tmp3 + tmp9")
    ),
    "sums of rows": SUMS,
    "the second counts in 64 bits": changed(
        RETURNS,
        ("xindex = xoffset + tl.arange(0, XBLOCK)[:]\n", "xindex = xoffset.to(tl.int64) + tl.arange(0, XBLOCK)[:]\n"),
        ("tmp2 - tmp3", "tmp2 - tmp3 * (x0 - x1)"),
    ),
    "some elements are stored": changed(
        RETURNS,
        (
            "    tl.store(out_ptr0 + (x2)",
            "    tmp5 = tmp4 > tl.full([1], 0.5, tl.float32)\n    tl.store(out_ptr0 + (x2)",
        ),
        ("tmp4, xmask)", "tmp4, tmp5 & xmask)"),
        ("buf1 = torch.empty_strided((5, 300), (300, 1), ", "buf1 = torch.zeros((5, 300), "),
    ),
    "what the first kernel loads in part": changed(
        RETURNS, ("in_ptr1 + (299 + ((-1)*r0_1)), r0_mask,", "in_ptr1 + (299 + ((-1)*r0_1)), r0_1 < 200,")
    ),
    "two tensors": two_tensors(),
    "two tensors of which one is returned": changed(two_tensors(), ("return buf1", "return buf1, buf9")),
    "masks that a flag takes away": elided(changed(GELU, ("6, 40)", "4, 64)"), *_SIXTY_FOUR)),
    "the first kernel is launched twice": changed(
        WEIGHTS,
        (
            "        return buf2, buf3",
            "        buf4 = torch.empty_strided((7, 100), (112, 1), dtype=torch.float32, "
            "device=arg0_1.device)\n        triton_per_fused_0[(triton.cdiv(7, XBLOCK_0),)](arg1_1, buf4, 7, 100, "
            "XBLOCK=XBLOCK_0)\n        return buf2, buf3, buf4",
        ),
    ),
}


def test_one_launch_has_the_results_of_two() -> None:
    written = {name: fused(source) for name, source in VARIANTS.items()}
    assert [name for name, source in written.items() if source is None] == []
    outputs = interpret_all([*VARIANTS.values(), *(str(source) for source in written.values())])
    before, after = outputs[: len(VARIANTS)], outputs[len(VARIANTS) :]
    assert all(isinstance(result, list) and sum(map(len, result)) > 5 for result in before), before
    assert [name for name, old, new in zip(VARIANTS, before, after, strict=True) if str(old) != str(new)] == []


def test_not_where_a_function_would_be_something_else() -> None:
    with_function = changed(
        GELU,
        ("tmp1 = tl.full([1], 0.5, tl.float32)", "tmp1 = inductor_maximum(tl.full([1], 0.5, tl.float32), tmp0)"),
        ("@triton.jit\ndef triton_poi_fused_1", f"{MAXIMUM}@triton.jit\ndef triton_poi_fused_1"),
    )
    hidden = changed(
        with_function, ("tmp2 = tmp0 + tmp1", "inductor_maximum = tmp0\n    tmp2 = inductor_maximum + tmp1")
    )
    assert fused(with_function) is not None and fused(hidden) is None


def test_what_nothing_reads_goes() -> None:
    source = fused(RETURNS)
    assert source is not None
    assert not [word for word in ("buf0 =", "triton_poi_fused_1", "XBLOCK_1", "1500") if word in source]
    assert source.count("tl.store(") == 1
    # what the first kernel had loaded from there is not loaded again
    assert source.count("tl.load(") == 3


def test_what_is_read_later_is_still_stored() -> None:
    for source in (WEIGHTS, changed(RETURNS, RETURNED)):
        written = fused(source)
        assert written is not None and written.count("tl.store(") == 2


def test_rows_are_loaded_as_rows() -> None:
    """What differs by row alone is loaded once a row, under the mask of rows."""
    source = fused(RETURNS)
    assert source is not None and "tl.load(in_ptr2 + (x0), xmask, eviction_policy='evict_last')" in source


SECOND = "        triton_poi_fused_1[(triton.cdiv(1500, XBLOCK_1),)](\n            buf0, arg0_1, arg2_1, buf1, 1500,"

REFUSED = {
    "the first adds atomically": [(STORE, STORE.replace("tl.store", "tl.atomic_add"))],
    "the second adds atomically": [("tl.store(out_ptr0 + (x2)", "tl.atomic_add(out_ptr0 + (x2)")],
    "the second reads the tensor twice": [
        ("tmp2 = (tmp0", "tmp9 = tl.load(in_ptr0 + (x2), xmask)\n    tmp2 = (tmp9 + tmp0")
    ],
    "the first reads what it wrote": [(STORE, STORE + "\n        tmp8 += tl.load(out_ptr0 + (x0), xmask)")],
    "the first reads it at a place that it looks up": [
        (STORE, f"{STORE}\n        tmp8 += tl.load(out_ptr0 + tl.load(in_ptr1).to(tl.int32))")
    ],
    "the second leaves out a mask that it needs": [
        (
            "out_ptr0, xnumel: tl.constexpr, XBLOCK : tl.constexpr):",
            "out_ptr0, xnumel: tl.constexpr, XBLOCK: tl.constexpr, EVEN: tl.constexpr = True):",
        ),
        ("x1), xmask,", "x1), None if EVEN else xmask,"),
    ],
    "the first stores it twice": [(STORE, STORE + "\n        " + STORE)],
    "a neighbour is read": [(ADDRESS, "298 + ((-1)*x0) + 300*x1")],
    "elements are read twice": [(ADDRESS, "299 + ((-1)*x0) + 150*x1")],
    "all rows read one": [(ADDRESS, "299 + ((-1)*x0)")],
    "an address that is looked up": [(ADDRESS, "x0 + 300*tl.load(in_ptr2 + (x1))")],
    "digits that do not divide": [("x1 = xindex // 300", "x1 = xindex // 7")],
    "an index that wraps around": [(ADDRESS, "(x0 + 300*x1 + 1) % 1500")],
    "the second launch leaves out rows": [("cdiv(1500,", "cdiv(1200,"), ("buf1, 1500", "buf1, 1200")],
    "the first launch leaves out rows": [("cdiv(5, XBLOCK_0)", "cdiv(4, XBLOCK_0)")],
    "every row by two programs": [("(triton.cdiv(5, XBLOCK_0),)", "(triton.cdiv(5, XBLOCK_0), 2)")],
    "the first stores some elements": [(STORE, STORE.replace("& xmask", "& xmask & (tmp10 > 0)"))],
    "the first stores in some programs": [(STORE, f"if xoffset < 2:\n            {STORE}")],
    "a store in every round of another loop": [(STORE, f"for i in tl.range(0, 2):\n            {STORE}")],
    "the second reads some elements": [(LOAD, LOAD.replace("xmask,", "xmask & (x0 < 7),"))],
    "the second stores some elements": [("tmp4, xmask)", "tmp4, xmask & (tmp4 > 0))")],
    "the second joins elements": [("tl.store(out_ptr0 + (x2)", "tl.store(out_ptr0 + (x1)")],
    "the second sums": [("tmp4 = tmp2 - tmp3", "tmp4 = tmp2 - tl.sum(tmp3, 0)")],
    "the second sums in a helper": [("tmp4 = tmp2 - tmp3", "tmp4 = inductor_select_one(tmp2, tmp3, 0)")],
    "the second branches": [("    tmp2 = (tmp0", "    if XBLOCK > 1:\n        tmp1 += 1.0\n    tmp2 = (tmp0")],
    "the second asks for the size of its tiles": [("tmp2 - tmp3", "tmp2 - tmp3 * XBLOCK")],
    "the second asks which program it is": [("tmp2 - tmp3", "tmp2 - tmp3 * tl.num_programs(0)")],
    "the second asks where its program starts": [("tmp2 - tmp3", "tmp2 - tmp3 * xoffset")],
    "the second asks for its lanes": [("tmp2 - tmp3", "tmp2 - tmp3 * tl.arange(0, XBLOCK)")],
    "the second asks for the shape of a tile": [("tmp2 - tmp3", "tmp2 - tmp3 * tmp2.shape[0]")],
    "the second turns a tile": [("tmp2 - tmp3", "tl.sum(tmp2[:, None] - tmp3[None, :], 1)")],
    "a function that calls itself": [
        ("tmp2 - tmp3", "endless(tmp2)"),
        (
            "@triton.jit\ndef inductor_select_one",
            "@triton.jit\ndef endless(x):\n    return endless(x)\n\n\n@triton.jit\ndef inductor_select_one",
        ),
    ],
    "the second works in place": [(ARGUMENTS, "buf0, arg0_1, arg2_1, buf0, 1500")],
    "the second writes what the first reads": [(ARGUMENTS, "buf0, arg0_1, arg2_1, arg1_1, 1500")],
    "the second writes an argument": [(ARGUMENTS, "buf0, arg0_1, arg2_1, arg2_1, 1500")],
    "the second writes a part of what the first reads": [
        ("        XBLOCK_1 = 256", "        buf1 = arg1_1.view(1500)\n        XBLOCK_1 = 256")
    ],
    "the second reads the tensor by another name": [
        ("        XBLOCK_1 = 256", "        buf9 = buf0.view(1500)\n        XBLOCK_1 = 256"),
        (ARGUMENTS, "buf0, arg0_1, buf9, buf1, 1500"),
    ],
    "the first has the tensor twice": [("arg1_1, arg0_1, buf0, 5", "buf0, arg0_1, buf0, 5")],
    "a launch between writes what the second reads": [
        (SECOND, SECOND.replace("buf0, arg0_1", "arg1_1, buf0") + " XBLOCK=XBLOCK_1)\n" + SECOND)
    ],
    "host code reads the tensor between": [
        ("        XBLOCK_1 = 256", "        arg2_1 = buf0.sum(1)\n        XBLOCK_1 = 256")
    ],
    "host code changes it between": [("        XBLOCK_1 = 256", "        buf0.zero_()\n        XBLOCK_1 = 256")],
    "host code rebinds what the first reads": [
        ("        XBLOCK_1 = 256", "        arg1_1 = arg2_1\n        XBLOCK_1 = 256")
    ],
    "the tensor is an argument": [
        ("        buf0 = torch.empty_strided((5, 300), (300, 1), dtype=torch.float32, device=arg1_1.device)\n", ""),
        ("buf0", "arg1_1"),
    ],
    "the tensor is not new": [
        (
            "buf0 = torch.empty_strided((5, 300), (300, 1), dtype=torch.float32, device=arg1_1.device)",
            "buf0 = arg1_1.view(5, 300)",
        )
    ],
    "another name for the tensor": [("        XBLOCK_0 = 4", "        buf9 = buf0.view(1500)\n        XBLOCK_0 = 4")],
    "a list has the tensor": [("        XBLOCK_0 = 4", "        kept.append(buf0)\n        XBLOCK_0 = 4")],
    "elements of an unknown type": [
        (
            "buf0 = torch.empty_strided((5, 300), (300, 1), dtype=torch.float32, device=arg1_1.device)",
            "buf0 = torch.empty_like(arg1_1)",
        )
    ],
    "sizes that only a run shows": [(", buf0, 5, 300,", ", buf0, 5, arg1_1.shape[1],")],
    "a launch in a branch": [
        (
            SECOND,
            SECOND.replace("        triton", "        if arg1_1.is_cuda:\n          triton").replace(
                "\n            buf0", "\n            buf0"
            ),
        )
    ],
}


REFUSED_OF_TWO = {
    "the second reads one in another order": [(LOAD.replace("in_ptr0", "in_ptr3"), "tl.load(in_ptr3 + (x2), xmask)")],
    "the second reads one by row": [(LOAD.replace("in_ptr0", "in_ptr3"), "tl.load(in_ptr3 + (x1), xmask)")],
    "the second writes one": [("arg2_1, buf9, buf1,", "arg2_1, buf2, buf9,")],
    "the second writes what the first reads, a new tensor": [
        ("            arg1_1, arg0_1, buf0, buf9,", "            buf1, arg0_1, buf0, buf9,"),
        ("        XBLOCK_0 = 4", f"        buf1 = {NEW}\n        XBLOCK_0 = 4"),
        (f"        buf1 = {NEW}\n        XBLOCK_1", "        XBLOCK_1"),
    ],
}


@pytest.mark.parametrize("cause", REFUSED_OF_TWO)
def test_not_where_one_of_two_tensors_is_in_the_way(cause: str) -> None:
    source = changed(two_tensors(), *REFUSED_OF_TWO[cause])
    compile(source, "program", "exec")
    assert fused(source) is None


@pytest.mark.parametrize("cause", REFUSED)
def test_not_where(cause: str) -> None:
    source = changed(RETURNS, *REFUSED[cause])
    compile(source, "program", "exec")
    assert fused(source) is None

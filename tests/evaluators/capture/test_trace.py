"""What a trace counts, against what the kernels are known to do."""

import pytest

from evaluators.capture.capture import CaptureFailed
from evaluators.capture.traffic import LaunchTrace, TensorTraffic
from evaluators.sandbox import Zygote
from tests.support.programs import HEAD, MATMUL, SOFTMAX, TWO_WALKS, edited, tensor, trace

ROW_BYTES = 65536 * 4


def traffic(launch: LaunchTrace, name: str) -> TensorTraffic:
    return next(t for t in launch.tensors if t.name == name)


def test_a_softmax_reads_and_writes_each_row_once(interpreting: Zygote) -> None:
    (launch,) = trace(interpreting, SOFTMAX, tensor(4096, 4096))
    assert (launch.n_programs, launch.load_bytes, launch.store_bytes) == (4096, 16384, 16384)
    source, sink = traffic(launch, "x0"), traffic(launch, "t1")
    assert (source.first_read_bytes, source.written_bytes, source.overlap) == (16384, 0, 0)
    assert (sink.first_read_bytes, sink.written_bytes) == (0, 16384)
    assert launch.sfu_ops == 2 * 4096  # exp, and the division
    assert 4 * 4096 < launch.plain_ops < 20 * 4096
    assert launch.n_syncs == 2
    assert launch.n_rounds == 1


def test_a_masked_part_is_not_read(interpreting: Zygote) -> None:
    (launch,) = trace(interpreting, SOFTMAX, tensor(64, 1000))
    assert launch.load_bytes == 4000
    assert launch.load_sector_bytes == 4000


def test_a_matmul_counts_its_products_and_what_programs_share(interpreting: Zygote) -> None:
    half = tensor(2048, 2048, dtype="float16")
    (launch,) = trace(interpreting, MATMUL, half, half)
    assert launch.n_programs == 256
    assert launch.dot_flops["fp16"] * 256 == pytest.approx(2 * 2048**3)
    assert launch.load_bytes * 256 == pytest.approx(2 * 16 * 2048 * 2048 * 2)
    for name in ("x0", "x1"):  # 16 of 256 programs have a tile row in common: a share of 15 in 255
        assert traffic(launch, name).first_read_bytes == pytest.approx(128 * 2048 * 2)
        assert 0.01 < traffic(launch, name).overlap < 0.15


def test_a_long_loop_is_extrapolated_to_what_it_would_do(interpreting: Zygote) -> None:
    (launch,) = trace(interpreting, TWO_WALKS, tensor(256, 65536))
    source = traffic(launch, "x0")
    assert launch.load_bytes == pytest.approx(2 * ROW_BYTES)
    assert launch.store_bytes == pytest.approx(ROW_BYTES)
    assert source.first_read_bytes == pytest.approx(ROW_BYTES)
    assert launch.n_rounds == pytest.approx(2 * 64)
    assert launch.n_syncs == pytest.approx(64)


def test_the_second_walk_is_a_reread_over_the_distance_of_a_row(interpreting: Zygote) -> None:
    (launch,) = trace(interpreting, TWO_WALKS, tensor(256, 65536))
    rereads = traffic(launch, "x0").rereads
    assert sum(r.n_bytes for r in rereads) == pytest.approx(ROW_BYTES)
    assert all(ROW_BYTES / 2 <= r.distance_bytes <= 4 * ROW_BYTES for r in rereads)


def test_a_walk_backwards_finds_what_was_read_last(interpreting: Zygote) -> None:
    backwards = edited(TWO_WALKS, ("        at = row * n + start", "        at = row * n + n - BLOCK - start"))
    forwards, back = (trace(interpreting, s, tensor(256, 65536))[0] for s in (TWO_WALKS, backwards))
    near = [
        sum(r.n_bytes for r in traffic(t, "x0").rereads if r.distance_bytes <= ROW_BYTES / 2) for t in (forwards, back)
    ]
    assert near[0] == 0
    assert near[1] > ROW_BYTES / 8


def test_an_eviction_policy_keeps_data_longer(interpreting: Zygote) -> None:
    kept = edited(TWO_WALKS, ("+ start + offsets), 0)", '+ start + offsets, eviction_policy="evict_last"), 0)'))
    plain, last = (trace(interpreting, s, tensor(256, 65536))[0] for s in (TWO_WALKS, kept))
    farthest = [max(r.distance_bytes for r in traffic(t, "x0").rereads) for t in (plain, last)]
    assert farthest[1] < farthest[0]


def test_weights_that_all_read_are_the_same_everywhere(interpreting: Zygote) -> None:
    source = edited(
        SOFTMAX,
        ("(x, y, n, BLOCK", "(x, w, y, n, BLOCK"),
        ("numerator / tl.sum", "tl.load(w + offsets, mask=mask) * numerator / tl.sum"),
        ("forward(self, x)", "forward(self, x, w)"),
        ("(x, y, x.shape", "(x, w, y, x.shape"),
    )
    (launch,) = trace(interpreting, source, tensor(4096, 4096), tensor(4096))
    weights = traffic(launch, "x1")
    assert weights.is_same_everywhere
    assert weights.overlap == 1.0
    assert weights.first_read_bytes == 16384


def test_weights_in_a_loop_over_rows_are_reread_over_the_distance_of_a_row(interpreting: Zygote) -> None:
    source = edited(
        SOFTMAX,
        ("(x, y, n, BLOCK", "(x, w, y, n, rows, BLOCK"),
        ("    row = tl.program_id(0).to(tl.int64)\n", ""),
        (SOFTMAX[SOFTMAX.index("    offsets =") : SOFTMAX.index("\n\nclass")], ROWS_OF_A_PROGRAM),
        ("forward(self, x)", "forward(self, x, w)"),
        ("[(x.shape[0],)](x, y, x.shape[1]", "[(16,)](x, w, y, x.shape[1], x.shape[0]"),
    )
    (launch,) = trace(interpreting, source, tensor(16384, 4096), tensor(4096))
    weights = traffic(launch, "x1")
    assert weights.first_read_bytes == 16384
    assert sum(r.n_bytes for r in weights.rereads) == pytest.approx(1023 * 16384)
    assert all(16384 <= r.distance_bytes <= 4 * 16384 for r in weights.rereads)  # a row of x, of w and of y


ROWS_OF_A_PROGRAM = """\
    offsets = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        value = tl.load(x + row * n + offsets) * tl.load(w + offsets)
        tl.store(y + row * n + offsets, value)
"""

LOOP = (
    HEAD
    + """\
@triton.jit
def walk_kernel(x, y, n):
    i = tl.load(y).to(tl.int32)
    total = 0.0
    while i < n:
        total += tl.load(x + i)
        i += 1
    tl.atomic_add(y, total)


def kernel_function(x):
    y = torch.zeros(1, device=x.device)
    walk_kernel[(8,)](x, y, x.numel())
    return y
"""
)


def test_a_loop_without_a_known_end_is_cut_and_says_so(interpreting: Zygote) -> None:
    (long,) = trace(interpreting, LOOP, tensor(100_000), entry_point="kernel_function")
    assert long.is_bounded
    (short,) = trace(interpreting, LOOP, tensor(9), entry_point="kernel_function")
    assert not short.is_bounded
    assert short.load_bytes == 4 + 8 * 4 + 4  # y, eight of x, and what the atomic reads


def test_functions_of_libdevice_and_custom_reductions_are_counted(interpreting: Zygote) -> None:
    source = edited(
        SOFTMAX,
        (
            "import triton.language as tl\n",
            "import triton.language as tl\nfrom triton.language.extra import libdevice\n",
        ),
        ("@triton.jit\n", "@triton.jit\ndef larger(a, b):\n    return tl.maximum(a, b) * 2.0\n\n\n@triton.jit\n"),
        ("tl.max(value, 0)", "tl.reduce(libdevice.tanh(value), 0, larger)"),
    )
    plain, more = (trace(interpreting, s, tensor(64, 4096))[0] for s in (SOFTMAX, source))
    assert more.sfu_ops == plain.sfu_ops + 2 * 4096  # two special functions for a tanh
    assert more.plain_ops == plain.plain_ops + 10 * 4096 + 4096  # ten more around it, and the product in `larger`


def test_what_cannot_be_traced_is_unsupported(interpreting: Zygote) -> None:
    with pytest.raises(CaptureFailed) as failed:
        trace(interpreting, edited(SOFTMAX, ("tl.exp(value)", "tl.nothing(value)")), tensor(64, 4096))
    assert failed.value.is_unsupported


@pytest.mark.parametrize(
    ("loop", "n_rounds"),
    [
        ("range(0, n, BLOCK)", 64),
        ("tl.range(0, n, BLOCK)", 64),
        ("tl.range(0, n, BLOCK, loop_unroll_factor=4)", 16),
        ("tl.static_range(0, 65536, BLOCK)", 1),
    ],
)
def test_an_unrolled_loop_has_more_loads_under_way(interpreting: Zygote, loop: str, n_rounds: int) -> None:
    body = "total += tl.sum(tl.load(x + row * n + start + offsets), 0)"
    source = edited(
        TWO_WALKS,
        ("    total = 0.0\n", "    total = tl.zeros((BLOCK,), tl.float32)\n"),
        ("range(0, n, BLOCK):\n        " + body, loop + ":\n        total += tl.load(x + row * n + start + offsets)"),
        ("    for start in range(0, n, BLOCK):\n        at", "    start = 0\n    for _ in range(0, 1):\n        at"),
        ("/ total)", "/ tl.sum(total, 0))"),
    )
    (launch,) = trace(interpreting, source, tensor(64, 65536))
    assert launch.load_bytes == pytest.approx(ROW_BYTES + 4096)
    assert launch.n_rounds == pytest.approx(n_rounds + 1, rel=0.1)

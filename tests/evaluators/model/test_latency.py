"""The model ranks variants as an H200 did, and each of its terms goes the right way."""

import pytest

from db.records import Capture, Launch, TorchOp
from evaluators.capture.traffic import LaunchTrace, Reread, TensorTraffic
from evaluators.hardware import load_hardware
from evaluators.model.constants import FITTED
from evaluators.model.latency import ModelledLatency, model_latency
from evaluators.sandbox import Zygote
from tests.support.programs import HEAD, SOFTMAX, capture, edited, tensor, trace

H200 = load_hardware("h200")
MB = 1 << 20


# ---------------------------------------------------------------------------------------------- a launch made by hand


def make_launch(**changes: object) -> Launch:
    """4096 programs of 4 warps, 8 of them on an SM."""
    launch = Launch(
        kernel="k", grid=(4096, 1, 1), num_warps=4, shared_bytes=0, text_hash="", binding_hash="", n_registers=64
    )
    return launch.model_copy(update={"load_vector_bytes": 16, **changes})


def make_trace(**changes: object) -> LaunchTrace:
    """Each program reads 64 KiB of its own in four rounds and writes as much."""
    n_bytes = 65536.0
    trace = LaunchTrace(
        kernel="k",
        grid=(4096, 1, 1),
        n_sampled=4,
        load_bytes=n_bytes,
        store_bytes=n_bytes,
        load_sector_bytes=n_bytes,
        store_sector_bytes=n_bytes,
        n_segments=8,
        load_block_bytes=n_bytes,
        store_block_bytes=n_bytes,
        tensors=(
            TensorTraffic(name="x0", storage_bytes=256 * MB, first_read_bytes=n_bytes),
            TensorTraffic(name="t1", storage_bytes=256 * MB, written_bytes=n_bytes),
        ),
        plain_ops=10 * n_bytes / 4,
        n_rounds=4,
        n_syncs=1,
        n_barriers=1,
    )
    return trace.model_copy(update=changes)


def model(launch: Launch, trace: LaunchTrace, *operations: TorchOp) -> ModelledLatency:
    trace = trace.model_copy(update={"grid": launch.grid})
    captured = Capture(workload="full", target="h200", triton_version="3", launches=(launch,), torch_ops=operations)
    return model_latency(captured, [trace], H200)


def device_us(launch: Launch, trace: LaunchTrace, *operations: TorchOp) -> float:
    return model(launch, trace, *operations).device_us


BASE = device_us(make_launch(), make_trace())


def test_a_plain_copy_is_near_the_bandwidth() -> None:
    modelled = model(make_launch(), make_trace())
    assert modelled.floor_us == pytest.approx(512 * MB / 4.3008e6 / FITTED.read_gain, rel=0.01)
    assert modelled.device_us == pytest.approx(512 * MB / 4.3008e6, rel=0.1)
    assert modelled.profile.memory_sol_pct > 90
    assert modelled.profile.dram_read_bytes == 256 * MB


def test_spills_cost() -> None:
    times = [device_us(make_launch(spill_bytes=n), make_trace()) for n in (0, 256, 1024, 4096)]
    assert times == sorted(times)
    assert times[-1] > 1.5 * times[0]


def test_fewer_programs_than_sms_cost() -> None:
    def with_programs(n: int) -> float:
        share = 4096 / n
        tensors = tuple(
            t.model_copy(
                update={"first_read_bytes": t.first_read_bytes * share, "written_bytes": t.written_bytes * share}
            )
            for t in make_trace().tensors
        )
        whole = make_trace()
        more = {
            name: getattr(whole, name) * share
            for name in (
                "load_bytes",
                "store_bytes",
                "load_sector_bytes",
                "store_sector_bytes",
                "load_block_bytes",
                "store_block_bytes",
                "plain_ops",
                "n_rounds",
            )
        }
        return device_us(make_launch(grid=(n, 1, 1)), whole.model_copy(update={**more, "tensors": tensors}))

    assert with_programs(16) > 2 * with_programs(132)
    assert with_programs(132) > with_programs(1056)


def test_few_sms_do_not_reach_all_of_l2() -> None:
    few, all_sms = (model(make_launch(grid=(n, 1, 1)), make_trace()).launches[0].l2_us for n in (16, 160))
    assert few > 0.2 * all_sms  # for a tenth of the bytes


def test_more_bytes_in_flight_are_better_until_bandwidth_is_reached() -> None:
    """Few warps and many small rounds of loads: latency decides."""
    slow = make_launch(num_warps=1, n_registers=255)
    times = [device_us(slow, make_trace(n_rounds=n)) for n in (256, 64, 16, 4)]
    assert times[0] > 1.5 * times[-1]
    assert times == sorted(times, reverse=True)


def test_a_round_waits_more_than_once_when_registers_do_not_hold_it() -> None:
    few, many = (model(make_launch(num_warps=1, n_registers=n), make_trace(n_rounds=1)) for n in (40, 200))
    assert few.launches[0].wait_us > 5 * many.launches[0].wait_us
    assert few.device_us > many.device_us


def test_narrow_accesses_take_more_instructions() -> None:
    narrow, wide = (model(make_launch(load_vector_bytes=n), make_trace()).launches[0] for n in (4, 16))
    assert narrow.busy_us > 1.2 * wide.busy_us


def test_narrow_copies_into_shared_memory_are_slow() -> None:
    pipelined = {"has_async_copies": True, "shared_bytes": 16384, "load_vector_bytes": 4}
    copied, loaded = (device_us(make_launch(**kind), make_trace()) for kind in (pipelined, {"load_vector_bytes": 4}))
    assert copied > 1.1 * loaded


def test_short_stretches_of_sectors_take_longer() -> None:
    times = [device_us(make_launch(), make_trace(n_segments=131072 / n)) for n in (8192, 128, 64, 32)]
    assert times[0] == times[1] < times[2] < times[3]


def test_few_programs_one_after_the_other_do_not_end_together() -> None:
    """The same work by 32 programs on an SM slot, or by one."""
    many, one = (device_us(make_launch(grid=(132 * 8 * n, 1, 1)), make_trace()) / n for n in (32, 1))
    assert one > 1.1 * many


def test_an_asynchronous_pipeline_brings_more_with_more_stages() -> None:
    few = {"num_warps": 4, "n_registers": 255, "has_async_copies": True}
    times = [device_us(make_launch(shared_bytes=n * 1024, **few), make_trace(n_rounds=64)) for n in (1, 2, 4)]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_one_group_of_warps_cannot_load_and_compute_at_once() -> None:
    busy = make_trace(plain_ops=400_000, n_syncs=4, n_barriers=4)
    alone, several = (device_us(make_launch(num_warps=w, n_registers=r), busy) for w, r in ((32, 64), (8, 32)))
    assert alone > 1.2 * several


def reread_trace(distance: float) -> LaunchTrace:
    trace = make_trace(load_bytes=131072.0, load_sector_bytes=131072.0)
    source = trace.tensors[0].model_copy(update={"rereads": (Reread(n_bytes=65536.0, distance_bytes=distance),)})
    return trace.model_copy(update={"tensors": (source, trace.tensors[1])})


def test_rereads_come_from_l2_until_it_is_full() -> None:
    """1056 programs are resident: 32 KiB each fit in 50 MiB, 128 KiB do not."""
    near, far = (model(make_launch(), reread_trace(kib * 1024.0)) for kib in (32, 128))
    assert near.profile.dram_read_bytes == 256 * MB
    assert far.profile.dram_read_bytes == 512 * MB
    assert near.device_us < far.device_us


def test_data_that_programs_of_a_wave_share_counts_once() -> None:
    def read(**tensor: object) -> float:
        source = TensorTraffic(name="x0", storage_bytes=4096 * MB, first_read_bytes=MB).model_copy(update=tensor)
        return model(make_launch(), make_trace(tensors=(source,))).profile.dram_read_bytes or 0.0

    assert read() == 4096 * MB
    assert read(overlap=0.5) < 16 * MB  # half of 1056 resident programs touch the same: two parts, four waves
    assert read(overlap=1.0, is_same_everywhere=True) == MB
    assert read(storage_bytes=MB) == MB


def test_data_that_waves_share_is_read_again_when_a_wave_is_larger_than_l2() -> None:
    """4096 programs in four waves read the same 256 MiB, each wave all of it; or 16 MiB."""
    large, small = (
        model(
            make_launch(),
            make_trace(tensors=(TensorTraffic(name="x0", storage_bytes=n * MB, first_read_bytes=MB),)),
        )
        for n in (256, 16)
    )
    assert large.profile.dram_read_bytes == pytest.approx(4096 / 1056 * 256 * MB)
    assert small.profile.dram_read_bytes == 16 * MB


def test_special_functions_and_products_bound_a_launch() -> None:
    special = model(make_launch(), make_trace(sfu_ops=1e6))
    assert special.profile.compute_sol_pct > 80
    products = model(make_launch(), make_trace(dot_flops={"fp16": 1e9}))
    assert products.floor_us == pytest.approx(4096 * 1e9 / (H200.tflops["fp16"] * 1e6))
    assert products.device_us > products.floor_us
    exact = model(make_launch(), make_trace(dot_flops={"fp32": 1e9}))
    assert exact.device_us > 5 * products.device_us


def test_a_program_with_more_to_do_than_the_mean_makes_the_launch_longer() -> None:
    even, uneven = (
        device_us(make_launch(grid=(132, 1, 1)), make_trace(imbalance=i, plain_ops=1e7)) for i in (1.0, 2.0)
    )
    assert uneven > 1.5 * even


def test_torch_operations_take_their_bytes_and_a_launch() -> None:
    moved = TorchOp(name="aten.clone.default", moved_bytes=512 * MB)
    assert device_us(make_launch(), make_trace(), moved) == pytest.approx(BASE + 512 * MB / 4.3008e6 + 1, rel=0.01)


def test_traffic_goes_into_the_capture() -> None:
    (launch,) = model(make_launch(), make_trace()).capture.launches
    assert launch.traffic is not None
    assert launch.traffic.load_bytes == 256 * MB
    assert launch.traffic.dram_write_bytes == 256 * MB
    assert launch.traffic.flops["fp32"] == 4096 * 10 * 16384
    assert launch.traffic.latency_us == pytest.approx(BASE)


def test_traces_of_other_launches_are_refused() -> None:
    captured = Capture(workload="full", target="h200", triton_version="3", launches=(make_launch(),))
    with pytest.raises(ValueError, match="0 traces"):
        model_latency(captured, [], H200)


# -------------------------------------------------------------------------------- variants that were timed on an H200


ONLINE = (
    HEAD
    + """\
@triton.jit
def softmax_kernel(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    top = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        value = tl.load(x + row * n + start + offsets)
        higher = tl.maximum(top, tl.max(value, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(value - higher), 0)
        top = higher
    for start in range(0, n, BLOCK):
        value = tl.load(x + row * n + start + offsets)
        tl.store(y + row * n + start + offsets, tl.exp(value - top) / total)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096, num_warps=8)
        return y
"""
)


def modelled_us(compiling: Zygote, interpreting: Zygote, source: str, rows: int, columns: int) -> float:
    captured = capture(compiling, source, tensor(rows, columns), hardware=H200)
    traces = trace(interpreting, source, tensor(rows, columns), hardware=H200)
    return model_latency(captured, traces, H200).device_us


def test_softmax_8192_4096_in_one_pass(compiling: Zygote, interpreting: Zygote) -> None:
    """Nsight Compute: 62.4 us with 8 warps, 86.8 us with 32."""
    eight, all_warps = (
        modelled_us(compiling, interpreting, edited(SOFTMAX, ("num_warps=8", f"num_warps={w}")), 8192, 4096)
        for w in (8, 32)
    )
    assert eight == pytest.approx(62.4, rel=0.1)
    assert all_warps == pytest.approx(86.8, rel=0.2)


def test_softmax_4096_65536_in_two_walks(compiling: Zygote, interpreting: Zygote) -> None:
    """Timed: 655 us with tiles of 16384 and 32 warps, 793 us with 4096 and 8; 499 us is the floor."""
    wide = edited(ONLINE, ("BLOCK=4096, num_warps=8", "BLOCK=16384, num_warps=32"))
    fast, slow = (modelled_us(compiling, interpreting, source, 4096, 65536) for source in (wide, ONLINE))
    assert fast == pytest.approx(655, rel=0.15)
    assert slow == pytest.approx(793, rel=0.15)
    assert fast < slow

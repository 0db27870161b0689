from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from db.measures import Tier, classify
from db.profile import Bottleneck, BottleneckReport, KernelKind, KernelProfile, Profile, Rule, Stall
from db.records import Capture, Launch, LaunchTraffic, PrecisionClass, TorchOp
from db.techniques import load_catalogue
from evaluators.problems import load_problem
from evaluators.profiling.diagnosis import architecture_of, diagnose
from evaluators.profiling.report import read_report
from evaluators.profiling.whole import combine

DATA = Path(__file__).parents[2] / "data" / "ncu"
SOURCES = """
import triton
import triton.language as tl


@triton.jit
def sm(x):
    v = tl.load(x)
    tl.store(x, v / tl.sum(v, 0))


@triton.jit
def mm(x, n):
    for k in range(n):
        acc = tl.dot(tl.load(x), tl.load(x))
    tl.store(x, acc)
"""


def diagnosed(profile: Profile, source: str = SOURCES, captures: tuple[Capture, ...] = (), **rest: Any):
    tier = classify(profile.compute_sol_pct, profile.memory_sol_pct)
    return diagnose(profile, source, captures, "sm_90", tier, **rest)


def launch(kernel: str = "sm", **changes: Any) -> Launch:
    fields = {
        "kernel": kernel,
        "grid": (64, 1, 1),
        "num_warps": 4,
        "shared_bytes": 0,
        "text_hash": "",
        "binding_hash": "",
    }
    return Launch.model_validate({**fields, **changes})


def captured(*launches: Launch, n_torch_ops: int = 0) -> tuple[Capture, ...]:
    operations = tuple(TorchOp(name="aten.sum", moved_bytes=8) for _ in range(n_torch_ops))
    return (Capture(workload="full", target="h200", triton_version="3", launches=launches, torch_ops=operations),)


def counted(stalls: dict[str, float], **fields: Any) -> Profile:
    found = tuple(Stall(reason=r, cycles=10 * share, share=share) for r, share in stalls.items())
    return Profile(source="ncu", dominant="sm", stalls=found, **fields)


@pytest.fixture(scope="module")
def reports() -> list[BottleneckReport]:
    """Of a softmax and a product of an H200, one after the other."""
    pages = [(DATA / f"two_kernels_{page}.csv").read_text() for page in ("details", "raw")]
    kernels = [launch.kernel for launch in read_report(*pages, nonce="")]
    return [diagnosed(combine([kernel])) for kernel in kernels]


def test_a_softmax_near_the_bandwidth_of_dram(reports: list[BottleneckReport]):
    state = reports[0].state
    assert state.key == "dram_bandwidth/memory_latency/long_scoreboard/row/sm_90"
    assert reports[0].tier is Tier.MEMORY_BOUND and reports[0].roofline_efficiency == pytest.approx(0.7968)
    assert "80% of speed of light" in reports[0].limit and "3834 GB/s" in reports[0].limit
    assert reports[0].rules[0].scope == "global" and len(reports[0].rules) == 3


def test_a_product_that_waits_for_caches_and_tensor_cores(reports: list[BottleneckReport]):
    assert reports[1].state.key == "cache_bandwidth/tensor_cores/barrier/matmul/sm_90"


def test_evidence_names_figures_with_units_and_meanings(reports: list[BottleneckReport]):
    evidence = {e.metric: e for e in reports[0].evidence}
    assert evidence["memory_sol_pct"].value == 79.68 and evidence["occupancy"].value == 75
    assert evidence["stall_long_scoreboard"].value == pytest.approx(48.3) and evidence["dram_gb_s"].unit == "GB/s"
    assert evidence["dram_read_bytes"].value == pytest.approx(134.231) and evidence["dram_read_bytes"].unit == "MB"
    assert all(e.meaning for e in reports[0].evidence)


@pytest.mark.parametrize(
    ("profile", "primary", "limiter"),
    [
        (counted({"barrier": 0.5, "long_scoreboard": 0.2}, memory_sol_pct=30.0), Bottleneck.SYNCHRONISATION, "barrier"),
        (counted({"long_scoreboard": 0.7}, memory_sol_pct=30.0), Bottleneck.MEMORY_LATENCY, "long_scoreboard"),
        (
            counted({"long_scoreboard": 0.5}, memory_sol_pct=30.0, waves_per_sm=0.2, occupancy_limiter="grid"),
            Bottleneck.PARALLELISM,
            "grid",
        ),
        (counted({"wait": 0.6}, compute_sol_pct=40.0), Bottleneck.ARITHMETIC, "wait"),
        (counted({"wait": 0.2}, compute_sol_pct=75.0, tensor_pct=0.0), Bottleneck.ARITHMETIC, ""),
        (counted({"wait": 0.2}, compute_sol_pct=75.0, tensor_pct=74.0), Bottleneck.TENSOR_CORES, ""),
        (counted({}, memory_sol_pct=85.0, dram_pct=84.0), Bottleneck.DRAM_BANDWIDTH, ""),
        (counted({}, memory_sol_pct=85.0, dram_pct=40.0, l2_pct=85.0), Bottleneck.CACHE_BANDWIDTH, ""),
        (
            Profile(
                source="compiled", memory_sol_pct=20.0, spill_bytes=200, occupancy=0.25, occupancy_limiter="registers"
            ),
            Bottleneck.SPILLS,
            "registers",
        ),
    ],
)
def test_what_takes_most_is_the_bottleneck(profile: Profile, primary: Bottleneck, limiter: str):
    report = diagnosed(profile)
    assert report.state.primary is primary and report.state.limiter == limiter, report.limit


def test_a_spill_of_a_few_bytes_is_not_the_limit():
    profile = Profile(source="compiled", memory_sol_pct=30.0, spill_bytes=8, occupancy=0.5)
    assert diagnosed(profile).state.primary is Bottleneck.MEMORY_LATENCY


def test_many_short_kernels_are_limited_by_their_starts():
    one = KernelProfile(kernel="sm", duration_us=2.0, memory_sol_pct=20.0)
    profile = combine([one] * 12)
    report = diagnosed(profile)
    assert report.state.primary is Bottleneck.LAUNCHES and "12 kernels" in report.limit
    alone = diagnosed(combine([one]))
    assert alone.state.primary is not Bottleneck.LAUNCHES


def test_captures_tell_without_counters_how_much_is_started():
    profile = Profile(source="compiled", memory_sol_pct=10.0, duration_us=30.0, occupancy=1.0)
    assert diagnosed(profile, captures=captured(launch(), n_torch_ops=11)).state.primary is Bottleneck.LAUNCHES
    assert diagnosed(profile, captures=captured(launch())).state.primary is not Bottleneck.LAUNCHES


def test_the_compiler_alone_tells_a_small_grid_and_waiting_warps():
    small = Profile(source="compiled", memory_sol_pct=10.0, occupancy=0.06, occupancy_limiter="grid")
    assert diagnosed(small).state.primary is Bottleneck.PARALLELISM and "too few programs" in diagnosed(small).limit
    wide = Profile(source="compiled", memory_sol_pct=40.0, occupancy=1.0)
    assert diagnosed(wide, captures=captured(launch(num_warps=16))).state.primary is Bottleneck.SYNCHRONISATION
    assert diagnosed(wide, captures=captured(launch(num_warps=4))).state.primary is Bottleneck.MEMORY_LATENCY


def test_without_counters_products_on_tensor_cores_are_known_by_their_traffic():
    profile = Profile(source="compiled", compute_sol_pct=70.0, memory_sol_pct=20.0)
    traffic = {"load_bytes": 1.0, "store_bytes": 1.0, "dram_read_bytes": 1.0, "dram_write_bytes": 1.0}
    for kind, bottleneck in (("tf32", Bottleneck.TENSOR_CORES), ("fp32", Bottleneck.ARITHMETIC)):
        flops = LaunchTraffic.model_validate({**traffic, "flops": {kind: 1e9}})
        report = diagnosed(profile, captures=captured(launch("mm", traffic=flops)))
        assert report.state.primary is bottleneck and report.state.kernel_kind is KernelKind.MATMUL


def test_the_kind_is_that_of_the_kernel_that_takes_longest():
    traffic = LaunchTraffic(load_bytes=1, store_bytes=1, dram_read_bytes=1, dram_write_bytes=1, latency_us=9.0)
    both = captured(launch("sm", grid=(999, 1, 1)), launch("mm", traffic=traffic))
    assert diagnosed(Profile(source="compiled"), captures=both).state.kernel_kind is KernelKind.MATMUL
    assert diagnosed(Profile(source="ncu", dominant="sm"), captures=both).state.kernel_kind is KernelKind.ROW


def test_techniques_come_from_the_catalogue_and_fit_the_search():
    profile = Profile(source="compiled", compute_sol_pct=70.0, memory_sol_pct=20.0, tensor_pct=69.0)
    catalogue = load_catalogue()
    strict = diagnosed(profile, captures=captured(launch("mm"))).techniques
    assert strict and all(catalogue[name].precision is PrecisionClass.REFERENCE for name in strict)
    assert Bottleneck.TENSOR_CORES in catalogue[strict[0]].addresses
    loose = diagnosed(profile, captures=captured(launch("mm")), precision=PrecisionClass.RELAXED).techniques
    assert any(catalogue[name].precision is PrecisionClass.RELAXED for name in loose)


def test_a_profile_of_nothing_still_has_an_answer():
    report = diagnosed(Profile(source="none"), source="no kernel here")
    assert report.tier is Tier.UNDERUTILIZED and report.state.kernel_kind is KernelKind.OTHER and report.limit


@pytest.mark.parametrize("compute", range(0, 101, 20))
@pytest.mark.parametrize("memory", range(0, 101, 20))
def test_every_profile_gets_one_sentence_and_a_state_that_can_be_kept(compute: int, memory: int):
    rules = tuple(Rule(name=str(n), section="s", message="m") for n in range(5))
    profile = Profile(source="compiled", compute_sol_pct=compute, memory_sol_pct=memory, rules=rules)
    report = diagnosed(profile)
    assert report == diagnosed(profile)
    assert type(report.state).parse(report.state.key) == report.state
    assert (
        report.limit.count(". ") == 0 and report.limit.endswith(".") and report.state.secondary != report.state.primary
    )
    assert len(report.rules) == 3 and 0 <= report.roofline_efficiency <= 1


def test_a_diagnosis_costs_less_than_three_milliseconds():
    source = load_problem("group_norm").seeds[0]
    diagnosed(Profile(source="compiled"), source)  # reads the catalogue
    took = []
    for n in range(20):
        start = time.process_time()
        diagnosed(Profile(source="compiled", memory_sol_pct=50.0), f"{source}\n# {n}")
        took.append(time.process_time() - start)
    assert min(took) < 0.003


def test_architectures_are_named_as_compilers_do():
    assert architecture_of((9, 0)) == "sm_90" and architecture_of((10, 3)) == "sm_103"

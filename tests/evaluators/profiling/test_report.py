"""Reports as Nsight Compute 2025.3 wrote them on an H200, and as other versions and accidents would have them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from db.profile import KernelProfile
from evaluators.profiling import report
from evaluators.profiling.errors import ProfileError
from evaluators.profiling.ncu import SECTIONS
from evaluators.profiling.ranges import new_nonce, program_in, range_name

DATA = Path(__file__).parents[2] / "data" / "ncu"
DETAILS = (DATA / "two_kernels_details.csv").read_text()
RAW = (DATA / "two_kernels_raw.csv").read_text()
RANGED = [(DATA / f"nvtx_column_added_{page}.csv").read_text() for page in ("details", "raw")]
NONCE = "3f2a9c0d51e8b746"  # in the names of the ranges there
EIGHT = (DATA / "eight_variants_details.csv").read_text()

SMALL_HEADER = (
    '"ID","Kernel Name","Block Size","Grid Size","Section Name","Metric Name","Metric Unit","Metric Value",'
    '"Rule Name","Rule Type","Rule Description"'
)


def read_report(*pages: str | bytes) -> tuple[KernelProfile, ...]:
    """Every launch of a report, whoever made it."""
    return tuple(launch.kernel for launch in report.read_report(*pages, nonce=""))


def small(*rows: str, header: str = SMALL_HEADER) -> KernelProfile:
    """The first kernel of a details page with rows of section, metric, unit, value, rule, type and text."""
    lines = [f'"0","k","(128, 1, 1)","(7, 1, 1)",{row}' for row in rows]
    return read_report("\n".join([header, *lines]))[0]


def metric(label: str, unit: str, value: str, section: str = "S") -> str:
    return f'"{section}","{label}","{unit}","{value}","","",""'


def rule(name: str, kind: str, text: str) -> str:
    return f'"S","","","","{name}","{kind}","{text}"'


def test_both_pages_of_a_report_become_its_launches_in_order():
    softmax, product = read_report(DETAILS, RAW)
    assert (softmax.kernel, product.kernel) == ("sm", "mm")
    assert softmax.grid == (8192, 1, 1) and product.grid == (32, 32, 1) and softmax.n_threads == 256
    assert softmax.duration_us == pytest.approx(63.36) and product.duration_us == pytest.approx(244.352)
    assert softmax.memory_sol_pct == 79.68 and softmax.compute_sol_pct == 28.06
    assert softmax.dram_gb_s == pytest.approx(3833.628, rel=1e-5) and softmax.dram_read_bytes == 134_231_040
    assert (softmax.l2_pct, softmax.l2_hit_pct, softmax.issue_pct) == (88.82, 50.83, 30.28)
    assert product.tensor_pct == 68.92 and softmax.tensor_pct == 0
    assert product.n_registers == 112 and product.shared_bytes == 98_304 and product.spill_bytes == 0
    assert product.occupancy == 0.25 and product.occupancy_limiter == "registers" and product.waves_per_sm == 3.88


def test_the_details_page_alone_tells_nearly_the_same():
    both, alone = read_report(DETAILS, RAW)[0], read_report(DETAILS)[0]
    for name in ("memory_sol_pct", "compute_sol_pct", "duration_us", "achieved_occupancy", "dram_gb_s", "l2_hit_pct"):
        assert getattr(alone, name) == pytest.approx(getattr(both, name), rel=0.04), name
    assert alone.n_registers == both.n_registers and alone.occupancy == both.occupancy
    assert alone.tensor_pct is None and alone.dram_read_bytes is None


def test_the_two_rows_called_memory_throughput_are_told_apart_by_their_unit():
    rows = [metric("Memory Throughput", "byte/s", "3,827,983,870,967.74"), metric("Memory Throughput", "%", "79.61")]
    for order in (rows, rows[::-1]):
        found = small(*order)
        assert found.memory_sol_pct == 79.61 and found.dram_gb_s == pytest.approx(3827.98, rel=1e-5)


def test_eight_launches_of_one_process_stay_apart():
    found = read_report(EIGHT)
    assert [k.n_threads for k in found] == [32, 64, 128, 256, 512, 1024, 256, 128]
    assert found[5].memory_sol_pct == 59.33 and found[5].occupancy_limiter == ""
    assert all(k.stalls[0].reason == "long_scoreboard" for k in found)


def test_stalls_are_counted_or_else_read_from_the_rule():
    counted, told = read_report(RAW)[1].stalls, read_report(DETAILS)[1].stalls
    assert counted[0].reason == told[0].reason == "barrier" and len(told) == 1
    assert counted[0].cycles == 7.03 and told[0].cycles == 7.1
    assert counted[0].share == pytest.approx(0.505, abs=0.01) and told[0].share == pytest.approx(0.509)
    assert [s.cycles for s in counted] == sorted((s.cycles for s in counted), reverse=True)
    assert "selected" not in {s.reason for s in counted} and sum(s.share for s in counted) <= 1


def test_rules_come_with_their_estimates_those_for_the_whole_kernel_first():
    rules = read_report(DETAILS)[0].rules
    found = [(r.name, r.speedup_pct, r.scope) for r in rules]
    assert found.index(("MemoryL2Compression", 29.58, "global")) < found.index(("HighPipeUtilization", 84.73, "local"))
    for scope in ("global", "local"):
        estimates = [pct for _, pct, its_scope in found if its_scope == scope and pct is not None]
        assert estimates and estimates == sorted(estimates, reverse=True)
    assert rules[-1].name == "SOLBottleneck" and rules[-1].speedup_pct is None
    assert all(r.message and r.section for r in rules)
    assert not any("optional metric" in r.message or r.name == "SOLFPRoofline" for r in rules)


@pytest.mark.parametrize(
    ("text", "speedup", "scope"),
    [
        ("Est. Speedup: 12.3% Stalls are long.", 12.3, ""),
        ("Estimated Speedup: 7% Stalls are long.", 7.0, ""),
        ("Est. Local Speedup: 84.73% Stalls are long.", 84.73, "local"),
        ("Stalls are long.", None, ""),
    ],
)
def test_older_versions_put_the_estimate_into_the_text(text: str, speedup: float | None, scope: str):
    found = small(rule("CPIStall", "WRN", text)).rules[0]
    assert (found.speedup_pct, found.scope, found.message) == (speedup, scope, "Stalls are long.")


def test_a_name_with_commas_quotes_and_line_breaks_is_one_cell():
    header = SMALL_HEADER
    rows = '"3","void k<a, b=""c"">(\nint, float)","(32, 2, 2)","(5, 6, 7)","S","Duration","usecond","1,234.5","","",""'
    found = read_report(f"{header}\n{rows}")
    assert found[0].kernel == 'void k<a, b="c">(\nint, float)' and found[0].duration_us == 1234.5
    assert found[0].n_threads == 128 and found[0].grid == (5, 6, 7)


@pytest.mark.parametrize(
    ("unit", "microseconds"), [("ns", 0.002), ("us", 2.0), ("msecond", 2000.0), ("second", 2e6), ("usecond", 2.0)]
)
def test_durations_in_any_unit_become_microseconds(unit: str, microseconds: float):
    assert small(metric("Duration", unit, "2")).duration_us == pytest.approx(microseconds)


@pytest.mark.parametrize(
    ("unit", "n_bytes"), [("byte/block", 3), ("Kbyte/block", 3000), ("Mbyte", 3_000_000), ("Kibyte", 3072)]
)
def test_sizes_in_any_unit_become_bytes(unit: str, n_bytes: int):
    assert small(metric("Dynamic Shared Memory Per Block", unit, "3")).shared_bytes == n_bytes


@pytest.mark.parametrize("unit", ["Gbyte/s", "Gbyte/second"])
def test_bandwidths_become_gigabytes_a_second(unit: str):
    assert small(metric("Memory Throughput", unit, "3.5")).dram_gb_s == pytest.approx(3.5)
    assert small(metric("Memory Throughput", "Tbyte/s", "3.5")).dram_gb_s == pytest.approx(3500)


@pytest.mark.parametrize("value", ["n/a", "no data", "", "nan", "inf", "-3", "1e999", "12,34", "(!) nothing"])
def test_a_cell_without_a_value_fills_no_field(value: str):
    found = small(metric("L2 Hit Rate", "%", value), metric("Duration", "us", value))
    assert found.l2_hit_pct is None and found.duration_us is None


def test_a_unit_of_another_quantity_is_no_value():
    found = small(metric("Duration", "%", "5"), metric("Achieved Occupancy", "warp", "5"))
    assert found.duration_us is None and found.achieved_occupancy is None


def test_percentages_a_little_above_the_peak_are_the_peak():
    assert small(metric("L2 Hit Rate", "%", "100.4")).l2_hit_pct == 100
    assert small(metric("L2 Hit Rate", "%", "1e9")).l2_hit_pct is None


def test_a_grid_below_one_wave_limits_occupancy_itself():
    rows = [metric("Waves Per SM", "", "0.4"), metric("Block Limit Registers", "block", "2")]
    assert small(*rows).occupancy_limiter == "grid"
    assert small(rows[1], metric("Block Limit Shared Mem", "block", "1")).occupancy_limiter == "shared"


def test_noise_between_rows_is_passed_over():
    lines = DETAILS.splitlines()
    noisy = "\n".join(f'{line}\n==PROF== Profiling "sm" - {n}: 0%' for n, line in enumerate(lines))
    assert read_report("prints of the program\n" + noisy) == read_report(DETAILS)


def test_a_truncated_report_keeps_the_launches_before_the_cut():
    found = read_report(RAW[: RAW.rindex('\n"1"') + 400])
    assert found[0] == read_report(RAW)[0] and found[1].kernel == "mm" and found[1].duration_us is None
    cut = read_report(DETAILS[: DETAILS.index("Check memory replay")])
    assert cut[0].memory_sol_pct == 79.61 and len(cut) == 1


def test_a_quotation_mark_that_does_not_close_costs_one_row_only():
    broken = re.sub(r'"Uses Green Context".*', '"Uses Green Context', DETAILS, count=1)
    assert read_report(broken)[0] == read_report(DETAILS)[0]
    assert read_report(broken)[1] == read_report(DETAILS)[1]


def test_without_sections_there_is_what_is_left():
    found = read_report(re.sub(r'.*"(Occupancy|Warp State Statistics|WarpStateStats)".*\n', "", DETAILS))
    assert found[0].occupancy is None and found[0].stalls == () and found[0].memory_sol_pct == 79.61


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "ERR_NVGPUCTRPERM"),
        (DETAILS.splitlines()[6], "no row of a kernel"),
    ],
)
def test_what_is_no_report_says_what_it_is(text: str, says: str):
    with pytest.raises(ProfileError, match=says):
        read_report(text)


def test_every_launch_is_that_of_the_program_in_whose_range_it_was_made():
    product = read_report(DETAILS, RAW)[1]
    found = report.read_report(*RANGED, nonce=NONCE)
    assert [(launch.program, launch.kernel.kernel) for launch in found] == [(0, "sm"), (2, "mm"), (None, "sm")]
    assert found[1].kernel.model_copy(update={"rules": product.rules}) == product
    assert found[0].kernel.duration_us == pytest.approx(63.36) and found[2].kernel.duration_us == pytest.approx(63.36)
    assert [launch.program for launch in report.read_report(RANGED[0], nonce=NONCE)] == [0, 2, None]
    assert {launch.program for launch in report.read_report(*RANGED, nonce="another")} == {None}


def test_a_row_that_is_not_of_the_program_is_kept_from_its_launch():
    forged = [line for line in RANGED[0].splitlines() if line.startswith('"2"') and "Duration" in line]
    forged = [line.replace('"2"', '"1"', 1).replace("63,", "1,") for line in forged]
    page = RANGED[0] + "\n".join(forged)
    assert forged and [launch.program for launch in report.read_report(page, nonce=NONCE)] == [0, 2, None, None]
    found = {launch.program: launch.kernel for launch in report.read_report(page, nonce=NONCE)}
    assert found[2].duration_us == read_report(RANGED[0])[1].duration_us


OWN, OTHER = range_name(NONCE, 3), range_name(NONCE, 31)


@pytest.mark.parametrize(
    ("cell", "program"),
    [
        (f'13364  "<default domain>:{OWN}:none:none:none:none:none:none" ', 3),
        (f'13364  "<default domain>:{OTHER}:none:none:none:none:none:none" ', 31),
        (f'1  "<default domain>:{OWN}:none:none"  "<default domain>:evolve-program-7:none:none" ', 3),
        (f'1  "<default domain>:{OWN}:none:none"  "<default domain>:{range_name("0" * 16, 7)}:none:none" ', 3),
        (f'1  "<default domain>:{OWN}:none:none"  "<default domain>:{OTHER}:none:none" ', None),
        (f"1  <default domain>:{OWN}:none:none", 3),
        ('1  "<default domain>:evolve-program-7:none:none" ', None),
        (f'1  "<default domain>:evolve-program-{NONCE}-:none:none" ', None),
        (f'1  "<default domain>:evolve-program-{NONCE}-99999:none:none" ', None),
        ("", None),
    ],
)
def test_a_range_names_its_program_whatever_ranges_that_opens(cell: str, program: int | None):
    assert program_in(cell, NONCE) == program


def test_the_programs_of_another_batch_have_other_names():
    assert len({range_name(new_nonce(), 0) for _ in range(100)}) == 100


# as rows of metrics call them; rows of rules have the name by which ncu is asked
TITLES = {
    "SpeedOfLight": "GPU Speed Of Light Throughput",
    "Occupancy": "Occupancy",
    "LaunchStats": "Launch Statistics",
    "MemoryWorkloadAnalysis": "Memory Workload Analysis",
    "WarpStateStats": "Warp State Statistics",
    "SchedulerStats": "Scheduler Statistics",
    "ComputeWorkloadAnalysis": "Compute Workload Analysis",
}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_brings_what_no_other_does(section: str):
    """A section that nothing is missed without would be replayed in vain."""
    names = f'"9.0","({re.escape(TITLES[section])}|{section})"'
    rows = re.split(r'(?m)^(?="\d+","505",)', RANGED[0])
    without = read_report("".join(row for row in rows if not re.search(names, row)))
    for less, whole in zip(without, read_report(RANGED[0]), strict=False):
        if less.model_fields_set < whole.model_fields_set or less.stalls != whole.stalls or less.rules != whole.rules:
            return
    pytest.fail(f"{section} brings nothing of its own")

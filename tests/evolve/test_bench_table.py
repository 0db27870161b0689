"""What is printed of many modules: figures over rows that the tests choose, and the same in Markdown and HTML."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pydantic import ValidationError

from db.errors import ArchiveError
from db.records import LatencyKind, PrecisionClass
from evaluators.decomposition.classify import ModelOutcome, ModelResult, RootCause
from evaluators.decomposition.records import Share
from evaluators.report import BaselineReport, BaselineTime
from evolve.cli.bench import summary_lines
from evolve.models.dominant import Operation, dominant_operation, operation_of
from evolve.models.figures import distribution_of, fast_p_curve, figures_of, spread_of
from evolve.models.markdown import markdown_of
from evolve.models.output import summary_of
from evolve.models.records import Attempt, Conditions, ModelRun
from evolve.models.rows import BenchRow, level_of, row_of
from evolve.models.sheets import module_sheet, setting_lines, sheets_of
from evolve.models.table import BenchTable, as_values
from evolve.models.written import write_table
from evolve.reports.bench import fast_p_picture, page_of
from tests.support.decompositions import decomposition_of

OPTIMIZED, FALLBACK, MATCHED = ModelOutcome.OPTIMIZED, ModelOutcome.FALLBACK, ModelOutcome.MATCHED


def row(module: str, speedup: float = 1.0, **more: Any) -> BenchRow:
    outcome = OPTIMIZED if speedup > 1.03 else FALLBACK if "cause" in more else MATCHED
    return BenchRow(module=module, **{"outcome": outcome, "speedup": speedup, "degenerate": "", **more})


ROWS = (
    row("a", 1.5, level=1, dominant=Operation.SOFTMAX, against={"eager": 3.0, "compile": 1.5}, program_speedup=1.5),
    row("b", 1.2, level=1, dominant=Operation.SOFTMAX, against={"eager": 2.0, "compile": 1.3}, program_speedup=1.2),
    row("c", level=2, dominant=Operation.GEMM, cause=RootCause.GEMM, against={"eager": 1.0, "compile": 1.01}),
    row("d", level=2, dominant=Operation.SCAN, cause=RootCause.SPEED, program_speedup=0.8),
    row("e", 4.0, level=2, dominant=Operation.REDUCTION, degenerate="an output is constant", program_speedup=4.0),
    BenchRow(module="f", level=2, error="<b>no</b> Model | `none`"),
)


# ------------------------------------------------------------------------------------------------------------ figures


def test_counts_and_shares_are_over_all_modules() -> None:
    figures = figures_of(ROWS)
    assert {name: found.n for name, found in figures.outcomes.items()} == {
        **{"optimized": 3, "matched": 0, "matched (synthesis failed)": 0, "fallback": 2}
    }
    assert figures.outcomes["optimized"].share == 0.5 and figures.n_errors == 1
    assert figures.causes["GEMM-dominant"].share == pytest.approx(1 / 6)
    assert figures.valid.n == 4  # c has no program at all, f could not be run


def test_programs_that_were_not_delivered_count_apart() -> None:
    figures = figures_of(ROWS)
    assert figures.delivered is not None and figures.programs is not None
    assert figures.delivered.smallest == 1.0 and figures.delivered.share_below == 0.0
    assert figures.delivered.share_above == 0.6  # a baseline that is kept is not above 1
    assert figures.programs.smallest == 0.8 and figures.programs.share_below == 0.25 and figures.programs.n == 4


def test_a_spread_is_what_it_says() -> None:
    spread = spread_of([0.5, 2.0, 4.0])
    assert spread is not None and spread.geomean == pytest.approx(4.0 ** (1 / 3))
    assert (spread.mean, spread.median, spread.smallest, spread.largest) == (pytest.approx(6.5 / 3), 2.0, 0.5, 4.0)
    assert (spread.share_above, spread.share_below) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert spread_of([]) is None


def test_every_speedup_is_in_one_bucket_and_the_edge_in_the_lower_one() -> None:
    buckets = distribution_of([0.5, 1.0, 1.03, 1.031, 1.1, 9.0], 6)
    assert [b.counted.n for b in buckets] == [1, 2, 2, 0, 0, 0, 0, 1]
    assert buckets[0].low is None and buckets[-1].high is None


def test_the_curve_falls_at_every_speedup() -> None:
    assert fast_p_curve([1.0, 1.5, 1.2], 4) == ((1.0, 0.5), (1.2, 0.25), (1.5, 0.0))
    assert fast_p_curve([], 0) == ((1.0, 0.0),)


def test_modules_are_grouped_by_what_dominates_them_and_by_level() -> None:
    figures = figures_of(ROWS)
    softmax = figures.dominant["softmax"]
    assert (softmax.n, softmax.geomean) == (2, pytest.approx(1.8**0.5)) and figures.dominant["unknown"].n == 1
    assert figures.levels["2"].causes == {"GEMM-dominant": 1, "speed gate": 1} and figures.levels["1"].causes == {}


def test_levels_are_broken_down_by_speed_operation_and_cause() -> None:
    sheets = {sheet.title: sheet for sheet in sheets_of(BenchTable(rows=ROWS).classes[0])}
    operations = sheets["Dominant operation by level"]
    assert operations.columns == ("level", "softmax", "gemm", "reduction", "scan", "unknown")
    assert operations.rows == (("1", "2", "0", "0", "0", "0"), ("2", "0", "1", "1", "1", "1"))
    speeds = sheets["Speed-ups by level"]
    assert speeds.columns[1:3] == ("up to 0.97", "0.97 to 1.03") and speeds.columns[-1] == "above 3.00"
    assert speeds.rows == (("1", "0", "0", "0", "1", "1", "0", "0", "0"), ("2", "0", "2", "0", "0", "0", "0", "0", "1"))
    assert sheets["Root causes by level"].rows == (("1", "0", "0"), ("2", "1", "1"))


def test_every_baseline_has_its_own_wins() -> None:
    against = figures_of(ROWS).against
    assert (against["eager"].n_wins, against["eager"].n_ties, against["eager"].n_losses) == (2, 1, 0)
    assert against["compile"].spread.largest == 1.5 and against["eager"].fast_p["1.5"] == pytest.approx(2 / 3)


def test_degenerate_problems_and_precision_classes_are_kept_apart() -> None:
    relaxed = row("g", 2.0, precision=PrecisionClass.RELAXED, degenerate=None)
    first, second = BenchTable(rows=(*ROWS, relaxed)).classes
    assert (first.all.n, first.sound.n, first.degenerate) == (6, 5, {"e": "an output is constant"})
    assert first.n_unlooked == 0  # what could not be run is told as that
    assert first.sound.delivered is not None and first.sound.delivered.largest == 1.5
    assert (second.precision, second.all.n, second.n_unlooked) == (PrecisionClass.RELAXED, 1, 1)


def test_modules_that_ask_for_needless_work_are_kept_apart() -> None:
    lean = row("h", 90.0, left_out=("a product with a diagonal matrix",))
    (figures,) = BenchTable(rows=(*ROWS, lean)).classes
    assert (figures.all.n, figures.sound.n, figures.lean.n) == (7, 6, 5)
    assert figures.lean.delivered is not None and figures.lean.delivered.largest == 1.5
    sheet = next(sheet for sheet in sheets_of(figures) if sheet.title == "Needless work")
    assert sheet.rows == (("h", "a product with a diagonal matrix"),) and "over the others" in sheet.lead
    assert module_sheet([lean]).rows[0][-1] == "needless work left out"
    page = page_of(BenchTable(rows=(*ROWS, lean)))
    assert "without those that ask for needless work" in page and ">needless work left out</td></tr>" in page
    assert "without 1 that ask for needless work, either: h" in summary_lines(BenchTable(rows=(*ROWS, lean)))


@pytest.mark.parametrize(("outcome", "left_out"), [("optimized", ("half",)), ("matched", ())])
def test_work_is_left_out_where_the_file_is_delivered(outcome: str, left_out: tuple[str, ...]) -> None:
    attempt = {"parts": [], "is_correct": True, "speedup": 1.2, "replaces_baseline": True}
    told = {"outcome": outcome, "root_cause": None, "reason": "", "speedup": 1.2, "parts": [], "best_path": ""}
    told |= {"attempts": [attempt], "seconds": {"all": 1.0}, "left_out": ["half"]}
    found = row_of(Path("m.py"), told)
    assert (found.left_out, found.program_speedup) == (left_out, 1.2)


# ----------------------------------------------------------------------------------------------------------- settings

H200: dict[str, Any] = {
    "hardware": "NVIDIA H200",
    "versions": {"torch": "2.11.0", "driver": "580.1", "python": "3.12.3"},
}
DAY = 24 * 3600.0


def at(day: int, **more: Any) -> Conditions:
    return Conditions(started_at=20000 * DAY + day * DAY, **{"evaluations": 120, "islands": 8, **more})


def test_modules_that_ran_alike_share_a_line_and_others_have_their_own() -> None:
    alike = (
        row("a", **H200, conditions=at(3, time_s=300.0)),
        row("b", **H200, conditions=at(1, time_s=300.0)),
        BenchRow(module="f", error="it was no module"),
    )
    assert setting_lines(BenchTable(rows=alike)) == [
        "NVIDIA H200; driver 580.1, torch 2.11.0, python 3.12.3; 2024-10-05 to 2024-10-07; "
        "at most 120 verdicts and 5m for a module, 8 islands"
    ]
    asked = row("c", hardware="NVIDIA <A10>", conditions=at(1, islands=1, models=("openai/any",)))
    table = BenchTable(rows=(*alike, asked, row("d")))
    first, second, third, mixed = setting_lines(table)
    assert first.startswith("a, b: NVIDIA H200;")
    assert second == "c: NVIDIA <A10>; 2024-10-05; at most 120 verdicts for a module, 1 island, with openai/any"
    assert third == "d: a GPU that is not known" and "different GPUs" in mixed
    assert "a, b: NVIDIA H200; driver 580.1" in markdown_of(table) and "NVIDIA &lt;A10&gt;" in page_of(table)
    values = as_values(table)["settings"]
    assert isinstance(values, list) and [one["modules"] for one in values] == [["a", "b"], ["c"], ["d"]]


def test_of_many_modules_a_line_names_the_first() -> None:
    many = [row(f"m{n}", **H200) for n in range(9)]
    assert setting_lines(BenchTable(rows=(*many, row("d"))))[0].startswith("m0, m1, m2, m3, m4, m5 and 3 more: NVIDIA")


def test_a_row_says_what_it_was_run_on() -> None:
    summary = {**ended(OPTIMIZED, 1.25, ()), **H200, "conditions": at(1).model_dump(mode="json")}
    found = row_of(Path("m.py"), summary)
    assert (found.hardware, found.versions["driver"], found.conditions) == ("NVIDIA H200", "580.1", at(1))
    assert row_of(Path("m.py"), {**summary, "conditions": "some"}).conditions is None


# --------------------------------------------------------------------------------------------------------------- rows


def test_what_a_model_spends_its_time_on() -> None:
    found = {name: dominant_operation(decomposition_of(name))[0] for name in ("softmax_pool", "gated_scan", "lstm")}
    assert found == {"softmax_pool": Operation.SOFTMAX, "gated_scan": Operation.SCAN, "lstm": Operation.RNN}
    assert dominant_operation(decomposition_of("wide_mlp")) == (Operation.GEMM, pytest.approx(0.996, abs=0.001))


@pytest.mark.parametrize(
    ("name", "is_extern", "operation"),
    [
        ("extern_kernels.addmm", True, Operation.GEMM),
        ("torch.ops.aten._scaled_dot_product_flash_attention.default", True, Operation.ATTENTION),
        ("extern_kernels.convolution", True, Operation.CONVOLUTION),
        ("torch.ops.aten._cudnn_rnn.default", True, Operation.RNN),
        ("zero_", True, Operation.OTHER),
        ("triton_tem_fused_addmm_relu_3", False, Operation.GEMM),
        ("triton_tem_fused_flex_attention_0", False, Operation.ATTENTION),
        ("triton_red_fused_native_layer_norm_0", False, Operation.NORMALISATION),
        ("triton_poi_fused__native_batch_norm_legit_no_training_relu_1", False, Operation.ELEMENTWISE),
        ("triton_per_fused_mean_mul_pow_rsqrt_0", False, Operation.NORMALISATION),
        ("triton_poi_fused_mul_rsqrt_0", False, Operation.ELEMENTWISE),
        ("triton_red_fused__log_softmax_nll_loss_forward_1", False, Operation.LOSS),
        ("triton_red_fused_abs_mean_0", False, Operation.REDUCTION),
        ("triton_red_fused_cumsum_flip_0", False, Operation.SCAN),
    ],
)
def test_kernels_are_told_by_their_names(name: str, is_extern: bool, operation: Operation) -> None:
    assert operation_of(Share(step=0, name=name, device_us=1.0, share=1.0, is_extern=is_extern)) is operation


@pytest.mark.parametrize(
    ("path", "level"),
    [("KernelBench/level2/12_mlp.py", 2), ("Level_3/a.py", 3), ("models/level2.py", None), ("a.py", None)],
)
def test_the_level_is_the_folders(path: str, level: int | None) -> None:
    assert level_of(Path("/data") / path) == level


def ended(outcome: ModelOutcome, speedup: float, attempts: tuple[Attempt, ...]) -> dict[str, Any]:
    times = tuple(
        BaselineTime(name=name, method=method, device_us=us)
        for name, method, us in (
            ("eager", "graph", 300.0),
            ("compile", "graph", 100.0),
            ("max-autotune", "events", 90.0),
        )
    )
    baseline = BaselineReport(name="compile", kind=LatencyKind.MEASURED, method="graph", device_us=100.0, times=times)
    decomposition = decomposition_of("softmax_pool").model_copy(update={"degenerate": "an output is constant"})
    result = ModelResult(outcome=outcome, speedup=speedup)
    run = ModelRun(problem_name="x", result=result, decomposition=decomposition, attempts=attempts, baseline=baseline)
    return json.loads(json.dumps(summary_of(run)))  # type: ignore[no-any-return]


def test_a_row_holds_what_the_summary_says_against_each_baseline() -> None:
    won = Attempt(parts=(), is_correct=True, replaces_baseline=True, speedup=1.25, roofline_efficiency=0.7)
    found = row_of(Path("m.py"), ended(OPTIMIZED, 1.25, (won,)))
    assert found.against == {"eager": 3.75, "compile": 1.25}  # events are compared with their like only
    assert (found.baseline, found.roofline_efficiency, found.program_speedup) == ("compile", 0.7, 1.25)
    assert (found.dominant, found.degenerate) == (Operation.SOFTMAX, "an output is constant")


def test_a_model_that_keeps_its_baseline_still_beats_the_slower_ways() -> None:
    slow = Attempt(parts=("part",), is_correct=True, speedup=0.9, roofline_efficiency=0.4)
    compilers = Attempt(parts=(), is_correct=True, speedup=0.99)
    found = row_of(Path("m.py"), ended(FALLBACK, 0.9, (slow, compilers)))
    assert found.against == {"eager": 3.0, "compile": 1.0} and found.roofline_efficiency is None
    assert (found.speedup, found.program_speedup, found.is_valid) == (1.0, 0.9, True)


def test_what_the_compiler_wrote_is_no_program_of_ours() -> None:
    compilers = Attempt(parts=(), is_correct=True, speedup=0.99)
    assert not row_of(Path("m.py"), ended(FALLBACK, 0.99, (compilers,))).is_valid


def test_a_correct_program_of_the_module_itself_counts_as_one() -> None:
    summary = ended(FALLBACK, 1.0, ())
    whole = {"speedup": 0.8, "n_judged": 40}
    found = row_of(Path("m.py"), {**summary, "whole": whole})
    assert (found.is_valid, found.program_speedup, found.speedup) == (True, 0.8, 1.0)
    assert not row_of(Path("m.py"), {**summary, "whole": {**whole, "speedup": None}}).is_valid


def test_the_efficiency_is_that_of_what_is_delivered() -> None:
    """Here a program of the module itself is, which is faster than the file that was put together."""
    won = Attempt(parts=("part",), is_correct=True, replaces_baseline=True, speedup=1.25, roofline_efficiency=0.7)
    found = row_of(Path("m.py"), ended(OPTIMIZED, 1.5, (won,)))
    assert (found.speedup, found.roofline_efficiency) == (1.5, None)


def test_a_summary_of_an_earlier_version_leaves_what_it_lacks_unknown() -> None:
    summary = ended(OPTIMIZED, 1.25, ())
    for key in ("baseline", "baselines", "dominant", "degenerate", "precision"):
        del summary[key]
    found = row_of(Path("m.py"), summary)
    assert (found.speedup, found.against, found.dominant, found.degenerate) == (1.25, {}, None, None)


@pytest.mark.parametrize(("key", "value"), [("dominant", "softmax"), ("baselines", []), ("baseline", "fastest")])
def test_what_somebody_changed_in_a_summary_is_unknown(key: str, value: object) -> None:
    found = row_of(Path("m.py"), {**ended(OPTIMIZED, 1.25, ()), key: value})
    assert found.speedup == 1.25 and (found.against == {} or found.dominant is None)


@pytest.mark.parametrize("speedup", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speedup_that_is_none_is_no_row(speedup: float) -> None:
    with pytest.raises(ValidationError):
        row_of(Path("m.py"), {**ended(OPTIMIZED, 1.25, ()), "speedup": speedup})


# -------------------------------------------------------------------------------------------------------------- texts


class Balance(HTMLParser):
    """Notes tags that are opened and not closed, and every address that the page would fetch."""

    VOID = frozenset({"meta", "line"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in {"src", "href", "srcset", "data"}]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)


def test_the_page_is_well_formed_escaped_and_needs_nothing_else() -> None:
    html = page_of(BenchTable(rows=ROWS))
    balance = Balance()
    balance.feed(html)
    assert not balance.wrong and not balance.open and not balance.addresses
    assert "&lt;b&gt;no&lt;/b&gt;" in html and "<b>no" not in html
    assert "url(" not in html and "@import" not in html and "<script" not in html
    assert "prefers-color-scheme: dark" in html and "1.48x" in html  # the geometric mean over all


def test_the_curve_is_xml_and_absent_where_nothing_got_faster() -> None:
    root = ElementTree.fromstring(fast_p_picture([("all", figures_of(ROWS))]))
    paths = [element.attrib["d"] for element in root.iter() if element.tag == "path"]
    assert len(paths) == 1 and paths[0].count("V") == 3  # it falls at 1.2, 1.5 and 4
    assert fast_p_picture([("all", figures_of([row("a")]))]) == ""


def test_markdown_keeps_to_its_columns_whatever_a_module_says() -> None:
    text = markdown_of(BenchTable(rows=ROWS))
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) >= 10
    for lines in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1, lines[0]
    assert "&lt;b&gt;no&lt;/b&gt; Model \\| \\`none\\`" in text


def test_every_sheet_has_both_figures_and_equal_rows() -> None:
    sheets = sheets_of(BenchTable(rows=ROWS).classes[0])
    assert [sheet.title for sheet in sheets] == [
        *("Outcomes", "Speed-ups", "Against each baseline", "Distribution", "Dominant operation", "Level"),
        *("Speed-ups by level", "Dominant operation by level", "Root causes by level", "fast_p"),
        "Degenerate problems",
    ]
    assert all(len(cells) == len(sheet.columns) for sheet in sheets for cells in sheet.rows)
    assert sheets[0].rows[1] == ("optimized", "3 (50%)", "2 (40%)")
    assert sheets[1].rows[0][:3] == ("delivered, all", "5", "1.48x")


def test_the_terminal_says_both(tmp_path: Path) -> None:
    lines = summary_lines(BenchTable(rows=ROWS))
    assert "geometric mean 1.48x over all, 1.93x over the optimized" in lines
    assert "without 1 degenerate: e" in lines and "geometric mean 1.16x over all, 1.34x over the optimized" in lines
    assert "over eager: 1.82x, 2 won, 1 equal, 0 lost" in lines
    assert any(line.startswith("levels: 1: 2 (1.34x), 2: 4 (1.59x)") for line in lines)


@pytest.mark.parametrize("rows", [(), (BenchRow(module="f", error="x"),), ROWS])
def test_three_files_are_written_of_any_table(rows: tuple[BenchRow, ...], tmp_path: Path) -> None:
    paths = write_table(BenchTable(rows=rows), tmp_path / "out")
    assert [path.name for path in paths] == ["bench.json", "bench.md", "bench.html"]
    assert len(json.loads(paths[0].read_text())["modules"]) == len(rows)
    assert all(path.stat().st_size for path in paths)


def test_names_lead_to_the_pages_that_there_are(tmp_path: Path) -> None:
    for place in ("a-0123456789abcdef", "b b"):
        (tmp_path / place).mkdir()
    (tmp_path / "b b" / "report.html").touch()
    rows = (row("a", folder="a-0123456789abcdef"), row("b", folder="b b"), BenchRow(module="f", error="x"))
    page = write_table(BenchTable(rows=rows), tmp_path)[2]
    balance = Balance()
    balance.feed(page.read_text())
    assert balance.addresses == ["b%20b/report.html"] and not balance.wrong and not balance.open


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ArchiveError, match="cannot write the table"):
        write_table(BenchTable(rows=ROWS), tmp_path / "out")

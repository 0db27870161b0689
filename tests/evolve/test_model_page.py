"""The page of a whole model: what it says of every outcome, where it leads, and that nothing in it becomes markup."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from db.archive import ProgramArchive
from db.records import LatencyKind
from evaluators.decomposition.classify import ModelOutcome, ModelResult, RootCause
from evaluators.decomposition.records import Decomposition
from evaluators.report import BaselineReport, BaselineTime
from evolve.models.output import summary_of, write_model
from evolve.models.records import Attempt, Conditions, Found, ModelRun, PartResult
from evolve.queries import latest_run, reading
from evolve.reports.model import facts_of, links_in, page_of, shares_by_kind, step_facts, write_page, write_report_of
from tests.support.decompositions import decomposition_of
from tests.support.runs import make_problem, make_run, one_evaluation

WAYS = (
    BaselineTime(name="eager", device_us=1300.0, low_us=1290.0, high_us=1310.0, call_us=1350.0),
    BaselineTime(name="compile", device_us=389.6, call_us=420.0),
    BaselineTime(name="max-autotune", error="no <valid> configuration"),
)
BASELINE = BaselineReport(name="compile", kind=LatencyKind.MEASURED, method="graph", device_us=389.6, times=WAYS)
REFUSED = Attempt(parts=("part_9_9", "part_20_20"), speedup=0.97, refused_by="speed", reason="a call takes <i>long</i>")
WON = Attempt(
    parts=("part_20_20",), program_id="p", is_correct=True, replaces_baseline=True, speedup=1.06, latency_us=367.5
)
OPTIMIZED = ModelResult(outcome=ModelOutcome.OPTIMIZED, speedup=1.06)


def part(name: str, share: float, used: bool = False, **found: Any) -> PartResult:
    first, last = map(int, name.split("_")[1:])
    return PartResult(
        name=name, first=first, last=last, kernels=(f"k_{first}",), share=share, is_used=used, found=Found(**found)
    )


PARTS = (
    part("part_20_20", 0.098, used=True, speedup=2.0, n_judged=60, elapsed_s=65.0, error_ratio=0.5),
    part("part_28_28", 0.054, reason="the budget was spent on parts that take more time"),
    part("part_9_9", 0.041, speedup=1.2, n_judged=40, over_baseline=1.1),
)


def model(result: ModelResult = OPTIMIZED, apart: str = "conv_epilogue", **more: Any) -> ModelRun:
    values = {"parts": PARTS, "attempts": (REFUSED, WON), "hardware": "NVIDIA H200", "baseline": BASELINE, **more}
    return ModelRun(
        problem_name="my_model",
        run_id="r1",
        result=result,
        decomposition=decomposition_of(apart),
        elapsed_s=9,
        **values,
    )


def summary(ended: ModelRun) -> dict[str, Any]:
    return json.loads(json.dumps(summary_of(ended)))  # type: ignore[no-any-return]


class Page(HTMLParser):
    """The words of a page by section, and every address in it; notes tags that are not closed."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.addresses: list[str] = []
        self.feed(html)
        sections = re.split(r"<section[^>]*>", html)
        self.sections = {unescape(re.sub(r"<[^>]+>", " ", one)).split("\n")[1].strip(): one for one in sections[1:]}

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.open += [] if tag in self.VOID else [tag]
        self.addresses += [value or "" for name, value in attributes if name in {"src", "href", "srcset", "data"}]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html.split("</style>")[-1])).split())


def test_an_optimized_model_tells_its_parts_and_files_in_order() -> None:
    html = page_of(summary(model()), {"part_20_20": "searches/part_20_20/report.html", "best.py": "best.py"})
    page, text = Page(html), words(html)
    assert not page.wrong and not page.open
    assert page.addresses == ["best.py", "searches/part_20_20/report.html"]
    assert "1.06× as fast as torch.compile , the fastest way" in text and "1 of 4 parts" not in text
    assert "part_20_20 9.8% 2.00× 4.9% 60 1 min 05 s 0.50 yes k_20" in text
    assert "part_28_28 5.4% – – – – – – k_28 the budget was spent on parts that take more time" in text
    assert "part_9_9 4.1% 1.20× 0.7% 40 – – no k_9 1.10× over the part compiled by itself" in text
    assert "80.5% of the device time goes to calls of libraries" in text
    assert text.index("part_9_9, part_20_20 refused by speed a call takes") < text.index("part_20_20 delivered")
    assert "PyTorch eager 1300.0 1290.0 to 1310.0 1350.0 3.54×" in text
    assert "part_12_12 0.3% it takes 0.3% of device time" in text
    assert "evaluation mode" in text and "torch 2.11.0+cu130" in text


def test_a_file_with_a_runner_up_says_why_it_was_put_together() -> None:
    second = WON.model_copy(update={"note": "part_9_9 with a runner-up, because <speed> refused the first"})
    html = page_of(summary(model(attempts=(REFUSED, second))), {})
    assert "part_9_9 with a runner-up, because <speed> refused the first" in words(html)


def test_what_names_and_reasons_say_is_text_and_the_page_needs_nothing_else() -> None:
    html = page_of(summary(model()), {})
    assert "&lt;i&gt;long&lt;/i&gt;" in html and "no &lt;valid&gt; configuration" in html and "<i>long" not in html
    assert Page(html).addresses == []
    assert "<script" not in html and "url(" not in html and "@import" not in html
    assert "prefers-color-scheme: dark" in html


@pytest.mark.parametrize(
    ("apart", "cause", "said"),
    [
        ("wide_mlp", RootCause.GEMM, "goes to matrix products of a library"),
        ("lstm", RootCause.NO_KERNELS, "The compiler wrote no Triton kernel for it"),
    ],
)
def test_a_fallback_without_a_file_has_a_page_with_its_cause(apart: str, cause: RootCause, said: str) -> None:
    result = ModelResult(outcome=ModelOutcome.FALLBACK, speedup=1.0, cause=cause, reason="99% in <mm>")
    html = page_of(summary(model(result, apart, parts=(), attempts=())), {})
    text = words(html)
    assert "baseline kept" in text and said in text and f"{cause}: 99% in <mm>" in text.replace(" :", ":")
    assert "Put together" not in text and "Parts and their searches" not in text and "--model provider/name" in text
    assert "PyTorch eager 1300.0 1290.0 to 1310.0 1350.0 3.34×" in text


def test_a_program_of_the_whole_module_is_told_as_that() -> None:
    whole = Found(speedup=1.4, n_judged=40, elapsed_s=5.0)
    result = ModelResult(outcome=ModelOutcome.OPTIMIZED, speedup=1.4)
    html = page_of(summary(model(result, whole=whole)), {"whole": "searches/whole/report.html"})
    text = words(html)
    assert Page(html).addresses == ["searches/whole/report.html"]
    assert "the whole module 100% 1.40× – 40 5 s – it is the file" in text
    assert "part_20_20 delivered" not in text and "accepted , and the program of the whole module is faster" in text


@pytest.mark.parametrize("cause", list(RootCause))
def test_every_cause_is_explained(cause: RootCause) -> None:
    result = ModelResult(outcome=ModelOutcome.FALLBACK, speedup=1.0, cause=cause)
    assert "Why the baseline stays" in words(page_of(summary(model(result)), {}))


def test_a_match_says_what_came_of_the_files_and_a_failed_synthesis_says_that() -> None:
    matched = ModelResult(outcome=ModelOutcome.MATCHED, speedup=1.0, reason="no part got faster")
    assert "within 3% of the fastest baseline: no part got faster" in words(page_of(summary(model(matched)), {}))
    failed = ModelResult(outcome=ModelOutcome.SYNTHESIS_FAILED, speedup=1.0, reason="no first kernel was right")
    text = words(page_of(summary(model(failed, whole=Found(n_judged=9))), {}))
    assert "was asked for a first program of the module: no first kernel was right" in text
    assert "What was found is within 3%" not in text


def test_needless_work_and_a_degenerate_problem_are_told() -> None:
    apart = decomposition_of("conv_epilogue").model_copy(
        update={"left_out": ("a <b>diagonal</b>",), "degenerate": "an output is constant"}
    )
    text = words(page_of(summary(model().model_copy(update={"decomposition": apart})), {}))
    assert "Needless work left out" in text and "a <b>diagonal</b>" in text
    assert "says little: an output is constant" in text


def test_every_step_has_its_fate_and_shares_add_up() -> None:
    facts = facts_of(summary(model()))
    steps = step_facts(facts)
    assert [(step.kind, step.fate) for step in steps] == [
        ("passed", "searched in part_9_9"),
        ("alone", "it takes 0.3% of device time"),
        ("repeated", "library call"),
        ("improved", "replaced by part_20_20"),
        ("alone", "the budget was spent on parts that take more time"),
    ]
    assert sum(shares_by_kind(steps).values()) == pytest.approx(1.0)
    few = step_facts(facts, most=2)
    assert [step.name for step in few[2:]] == ["1 shorter one", "2 shorter ones"]
    assert sum(step.share for step in few) == pytest.approx(1.0)


def test_a_summary_of_an_earlier_version_still_has_a_page() -> None:
    told = summary(model())
    for key in ("steps", "conditions", "hardware", "baseline", "baselines", "dominant", "degenerate", "left_out"):
        del told[key]
    for row in told["parts"]:
        del row["first"], row["last"]
    text = words(page_of(told, {}))
    assert "1.06×" in text and "Where the time goes" not in text and "part_20_20 delivered" in text


@pytest.mark.parametrize("told", [{}, {"run": "r1", "attempts": []}, {"run": "r1", "parts": [3], "speedup": 1}])
def test_another_summary_is_no_models(told: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no summary of a model|validation error"):
        facts_of(told)


def test_links_are_seen_from_the_page_and_lead_to_what_is_there(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "out put", tmp_path / "pages"
    (place / "searches" / "part_9_9").mkdir(parents=True)
    (place / "searches" / "part_9_9" / "report.html").touch()
    (place / "best.py").touch()
    names = ["part_9_9", "part_20_20"]
    assert links_in(place, place, names) == {"best.py": "best.py", "part_9_9": "searches/part_9_9/report.html"}
    assert links_in(place, elsewhere, names)["part_9_9"] == "../out%20put/searches/part_9_9/report.html"


def written(tmp_path: Path, attempts: Sequence[Attempt]) -> Path:
    """A model whose run is in an archive, on disk."""
    problem = make_problem()
    run = make_run(problem)
    run = run.model_copy(update={"config": {"problem": "m.py", "evaluations": 77, "time_s": 300.0, "islands": 3}})
    with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
        archive.add_problem(problem)
        archive.add_run(run)
        archive.insert([one_evaluation(problem, run, 1, 50.0)])
    ended = model(attempts=tuple(attempts)).model_copy(update={"run_id": run.run_id})
    return Path(write_model(ended, tmp_path / "a.duckdb", tmp_path / "out").report_path)


def test_the_page_is_written_with_budget_and_date_and_beside_it_what_was_judged(tmp_path: Path) -> None:
    path = written(tmp_path, (REFUSED, WON))
    text = words(path.read_text())
    assert path == tmp_path / "out" / "report.html" and "evolve run" in text
    assert "77 verdicts, 5 min 00 s for all searches together, 3 islands" in text and "started 20" in text
    assert 'href="files.html"' in path.read_text() and "Convergence" in (path.parent / "files.html").read_text()
    told = json.loads((path.parent / "summary.json").read_text())
    assert Conditions.model_validate(told["conditions"]).evaluations == 77


def test_without_a_judged_file_there_is_the_page_alone(tmp_path: Path) -> None:
    path = written(tmp_path, ())
    assert path.exists() and not (path.parent / "files.html").exists() and "files.html" not in path.read_text()


def test_the_same_page_is_made_again_from_the_summary(tmp_path: Path) -> None:
    path = written(tmp_path, (REFUSED, WON))
    told = json.loads((path.parent / "summary.json").read_text())
    again = write_page(told, path.parent, tmp_path / "again")
    assert again.read_text().replace("../out/", "") == path.read_text()


def model_in(archive: Path, out: Path) -> tuple[str, str]:
    """The runs of a model and of the search of one of its parts, in an archive."""
    problem = make_problem()
    whole = make_run(problem, run_id="whole")
    whole = whole.model_copy(update={"config": {"problem": "m.py", "out": str(out)}})
    search = {"config": {"problem": "p", "out": str(out / "searches" / "part_9_9")}}
    part_run = make_run(problem, run_id="part").model_copy(update={**search, "started_at": whole.started_at + 9})
    with ProgramArchive.open(archive) as opened:
        opened.add_problem(problem)
        for run in (whole, part_run):
            opened.add_run(run)
            opened.insert([one_evaluation(problem, run, 1, 50.0)])
    return whole.run_id, part_run.run_id


def report(archive: Path, run: str | None, folder: Path) -> str:
    with reading(archive) as reader:
        return write_report_of(reader, reader.run(run) if run else latest_run(reader), folder).read_text()


def test_the_report_after_a_model_is_that_of_the_model(tmp_path: Path) -> None:
    archive, out = tmp_path / "a.duckdb", tmp_path / "out"
    whole, part_run = model_in(archive, out)
    write_model(model().model_copy(update={"run_id": whole}), archive, out)
    pages = [report(archive, run, tmp_path / "again") for run in (None, whole, part_run)]
    assert ["a whole model" in page for page in pages] == [True, True, False]
    assert 'href="../out/files.html"' in pages[0]
    (out / "summary.json").write_text(json.dumps({"run": whole, "attempts": 3}))
    changed = report(archive, None, tmp_path / "again")
    assert "a whole model" not in changed and f"evolve run {whole}" in changed


def test_a_search_whose_model_is_not_in_the_archive_is_the_latest_run(tmp_path: Path) -> None:
    problem = make_problem()
    alone = make_run(problem).model_copy(update={"config": {"problem": "p", "out": "gone/searches/part_9_9"}})
    with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
        archive.add_problem(problem)
        archive.add_run(alone)
        assert latest_run(archive).run_id == alone.run_id


def test_a_model_of_many_kernels_lists_the_longest() -> None:
    apart: Decomposition = decomposition_of("softmax_pool")
    many = tuple(share.model_copy(update={"step": 100 * n + share.step}) for n in range(9) for share in apart.shares)
    ended = model().model_copy(update={"decomposition": apart.model_copy(update={"shares": many})})
    steps = step_facts(facts_of(summary(ended)))
    assert len(many) > 30 and len(steps) <= 28 and steps[-1].name.endswith("shorter ones")

"""The page itself: complete, self-contained, honest about what is modelled, and drawn by a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.runs import make_evaluations, make_problem, make_run, one_evaluation

from db.profile import Profile
from db.records import Evaluation, LatencyKind
from evolve.reports.build import flatten, render
from evolve.reports.charts import Scale, convergence, heat_colour, heat_map
from evolve.reports.counted import counters_line
from evolve.reports.facts import gather
from evolve.reports.highlight import diff_lines, source_html
from evolve.reports.pages import format_seconds, format_us

PROBLEM = make_problem()
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def page(kind: LatencyKind = LatencyKind.MEASURED) -> str:
    run = make_run(PROBLEM, kind=kind)
    return render(gather(PROBLEM, run, make_evaluations(PROBLEM, run)))


class Balance(HTMLParser):
    """Notes tags that are opened and not closed, and every address that the page would fetch."""

    VOID = frozenset({"meta", "br", "hr", "img", "input", "link", "circle", "line", "rect"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in {"src", "href", "srcset", "data"}]

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """A tag that closes itself."""

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_the_page_is_well_formed_and_needs_nothing_else() -> None:
    html = page()
    balance = Balance()
    balance.feed(html)
    assert not balance.wrong and not balance.open
    assert not balance.addresses
    assert "url(" not in html and "@import" not in html and "<script" not in html


def test_the_page_shows_every_part() -> None:
    html = page()
    for heading in ("Convergence", "Grid", "Gates", "Failures", "Techniques", "Lineage of the best", "Settings"):
        assert f"<h2>{heading}" in html
    assert "1.54×" in html and "torch.compile" in html and "95% interval" in html
    assert html.count('<svg class="plot"') == 2 and html.count('<svg class="heat"') == 1
    assert '<span class="add">+' in html and '<span class="del">-' in html


def test_modelled_latency_is_called_modelled_everywhere() -> None:
    html = page(LatencyKind.MODELLED)
    text = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    assert "modelled, not measured" in text
    without_notes = text.replace("modelled, not measured", "")
    assert "measured" not in without_notes
    assert without_notes.count("modelled") >= 6


def test_the_same_records_give_the_same_page() -> None:
    assert page() == page()


def test_text_of_candidates_cannot_become_markup() -> None:
    run = make_run(PROBLEM)
    seed = one_evaluation(PROBLEM, run, 0, 90.0, source="X = '<script>alert(1)</script>'")
    child = one_evaluation(PROBLEM, run, 1, 80.0, parents=[seed], technique="<b>bold", source="Y = '</pre><img src=x>'")
    html = render(gather(PROBLEM, run, [seed, child]))
    assert "<script" not in html and "<b>bold" not in html and "<img" not in html


@pytest.mark.parametrize("latencies", [[], [None, None], [130.0], [None, 120.0, 110.0]])
def test_runs_that_found_little_have_a_page_too(latencies: list[float | None]) -> None:
    run = make_run(PROBLEM)
    evaluations = [one_evaluation(PROBLEM, run, n, us) for n, us in enumerate(latencies)]
    html = render(gather(PROBLEM, run, evaluations))
    expected = "baseline kept" if any(latencies) else "nothing correct yet"
    assert expected in html


def test_pictures_are_xml_inside_their_view_box() -> None:
    run = make_run(PROBLEM)
    facts = gather(PROBLEM, run, make_evaluations(PROBLEM, run))
    for picture in (
        convergence(facts.points, over="evaluations", floor_speedup=1.56),
        heat_map(facts.cells, baseline_us=781.6),
    ):
        root = ElementTree.fromstring(picture)
        width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
        for element in root.iter():
            x, y = element.attrib.get("x", element.attrib.get("cx")), element.attrib.get("y", element.attrib.get("cy"))
            assert 0 <= float(x or 0) <= width and 0 <= float(y or 0) <= height, element.attrib


def test_a_picture_of_nothing_is_empty() -> None:
    assert convergence([], over="seconds") == ""
    assert heat_map([], baseline_us=10.0) == ""


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.93, 1.57), (0.0, 12000.0), (1.0, 1.0)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    ticks = Scale(low, high, 0, 100).ticks()
    assert all(low - 1e-9 <= tick <= max(high, low) + 1e-9 for tick in ticks)
    assert len(ticks) <= 11
    assert all(len(f"{tick:.6g}".replace(".", "").strip("0")) <= 3 for tick in ticks)


def test_colours_tell_faster_from_slower() -> None:
    assert "--fast" in heat_colour(1.2) and "--slow" in heat_colour(0.8)
    assert "100%" in heat_colour(4.0) and "100%" in heat_colour(0.25)


def test_source_is_coloured_and_complete() -> None:
    source = "import os  # why\n\n\n@jit\ndef f(x):\n    return f'{x}' + \"<\"\n"
    html = source_html(source)
    assert '<span class="py-keyword">import</span>' in html and '<span class="py-comment"># why</span>' in html
    plain = re.sub(r"</?span[^>]*>", "", html)
    assert plain.replace("&lt;", "<").replace("&#39;", "'").replace("&#34;", '"').replace("&gt;", ">") == source


def test_source_that_does_not_parse_is_shown_as_it_is() -> None:
    assert source_html("def f(:\n  '''") == "def f(:\n  &#39;&#39;&#39;\n"


def test_diff_lines_know_their_kind() -> None:
    assert diff_lines("a\nb\n", "a\nc\n") == [("hunk", "@@ -1,2 +1,2 @@"), ("same", " a"), ("del", "-b"), ("add", "+c")]
    assert diff_lines("a\n", "\na\n\n") == []


def test_settings_are_named_as_set_takes_them() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": 2}}, "e": {}}) == {"a.b": 1, "a.c.d": 2, "e": {}}


def test_numbers_are_written_for_people() -> None:
    assert [format_us(us) for us in (1.8124, 68.04, 508.31, 12345.6)] == ["1.812", "68.04", "508.3", "12,346"]
    assert [format_seconds(s) for s in (42.2, 185, 3725)] == ["42 s", "3 min 05 s", "1 h 02 min"]


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_lays_the_page_out_without_overflow(tmp_path: Path) -> None:
    """At the width of a desktop and of a phone nothing sticks out of the window."""
    ruler = "<script>onload=()=>{document.title=`W ${document.documentElement.scrollWidth} ${innerWidth}`}</script>"
    file = tmp_path / "report.html"
    file.write_text(page().replace("</body>", f"{ruler}</body>"))
    for width in (1200, 500):
        done = subprocess.run(
            [
                *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"),
                *(f"--window-size={width},900", "--virtual-time-budget=2000", "--dump-dom", file.as_uri()),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        match = re.search(r"<title>W (\d+) (\d+)</title>", done.stdout)
        assert match, done.stderr[-500:]
        assert int(match[1]) <= int(match[2]) == width


def test_a_program_that_no_seed_led_to_is_not_called_the_seed() -> None:
    """A model that was put together: its parents are programs of other runs."""
    run = make_run(PROBLEM)
    made = [one_evaluation(PROBLEM, run, 1, 50.0, wins=True, operator=operator) for operator in ("stitch", "seed")]
    stitched, seed = (render(gather(PROBLEM, run, [one])) for one in made)
    assert "the seed itself is the fastest" in seed and "From the seed to program" in seed
    assert "the seed itself" not in stitched and "From the first program to" in stitched
    assert "no seed led to it" in stitched


def test_the_roofline_says_where_the_figures_of_its_points_come_from() -> None:
    run = make_run(PROBLEM)
    evaluations = [one_evaluation(PROBLEM, run, n, us) for n, us in enumerate((90.0, 80.0))]
    again = one_evaluation(PROBLEM, run, 2, 81.0, source="VALUE = 1", parents=evaluations[1:], operator="confirm")
    sources = ("ncu", "compiled", "none")  # the last is of a second judgement, which is not drawn
    told = [_profiled(e, source) for e, source in zip((*evaluations, again), sources, strict=True)]
    html = render(gather(PROBLEM, run, told))
    assert "Figures come from compiled and ncu. Hardware counters were read of 1 of 2 correct programs" in html


def test_the_page_says_of_how_many_programs_counters_were_read_and_why_not_of_more() -> None:
    run = make_run(PROBLEM)
    read, refused, *rest = [_profiled(one_evaluation(PROBLEM, run, n, 90.0 - n), "compiled") for n in range(4)]
    read = _profiled(read, "ncu")
    assert counters_line([read]) == "Hardware counters were read of 1 of 1 correct program."
    assert counters_line(rest).endswith(
        "0 of 2 correct programs; the others did not get their turn or entered no cell."
    )
    assert refused.verdict.profile is not None
    profile = refused.verdict.profile.model_copy(update={"note": "<nobody> may"})
    refused = refused.model_copy(update={"verdict": refused.verdict.model_copy(update={"profile": profile})})
    html = render(gather(PROBLEM, run, [read, refused, *rest]))
    assert "were read of 1 of 4 correct programs; not of 1 because &lt;nobody&gt; may." in html
    assert "Hardware counters" not in page(LatencyKind.MODELLED)


def _profiled(evaluation: Evaluation, source: str) -> Evaluation:
    verdict = evaluation.verdict
    profile = Profile.model_validate({**(verdict.profile or Profile(source="none")).model_dump(), "source": source})
    return evaluation.model_copy(update={"verdict": verdict.model_copy(update={"profile": profile})})

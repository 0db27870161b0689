"""What the notes of a search on several GPUs say, and the table of such runs; see `benchmarks.gpus`."""

from __future__ import annotations

import contextlib
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from db.records import CONFIRM

Notes = list[dict[str, Any]]

WARM_SHARE = 1 / 3  # of the time that is measured: until everything is surely warm


class Plan(NamedTuple):
    """One run: so many GPUs, measured for so many seconds, and killed at moments until it ends."""

    problem: str
    n_gpus: int
    seconds: float
    total_s: float
    kills_at: tuple[float, ...] = ()


def rate_per_min(times: Sequence[float], begin: float, end: float) -> float:
    """Events a minute after `begin` (seconds), `end` included; 0 where there is no time between them."""
    return 60 * sum(begin < at <= end for at in times) / (end - begin) if end > begin else 0.0


def longest_silence_s(times: Sequence[float], begin: float, end: float) -> float:
    """The longest time without an event between two moments."""
    inside = sorted(at for at in times if begin < at < end)
    return max((later - earlier for earlier, later in pairwise([begin, *inside, max(begin, end)])), default=0.0)


def busy_share(calls: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """The share of the time in which at least one call, from when to when, was in progress."""
    busy_s, until = 0.0, begin
    for began, ended in sorted(calls):
        busy_s += max(0.0, min(ended, end) - max(began, until))
        until = max(until, min(ended, end))
    return busy_s / (end - begin) if end > begin else 0.0


def evaluators_of(notes: Notes, n: int, begin: float, end: float) -> Notes:
    """What each evaluator did between two moments."""
    found = []
    for index in range(n):
        calls = [one for one in notes if one["what"] == "call" and one["actor"] == index and one["method"] != "prepare"]
        answers = [one["at"] for one in calls if one["ending"] == "answered"]
        found.append(
            {
                "answers": sum(begin < at <= end for at in answers),
                "n_died": sum(one["ending"] == "died" and begin < one["at"] <= end for one in calls),
                "busy": round(busy_share([(one["began"], one["at"]) for one in calls], begin, end), 4),
                "silence_s": round(longest_silence_s(answers, begin, end), 2),
            }
        )
    return found


def best_over_time(judged: Notes, began: float) -> list[tuple[float, float]]:
    """Seconds since the start and microseconds of every program that was faster than all before it."""
    best: list[tuple[float, float]] = []
    for one in judged:
        us = None if one["us"] is None else round(one["us"], 3)
        if us is not None and (not best or us < best[-1][1]):
            best.append((round(one["at"] - began, 2), us))
    return best


def figures_of(notes: Notes, plan: Plan) -> dict[str, Any]:
    """What the notes of a search say, as far as it came."""
    judged = [one for one in notes if one["what"] == "judged"]
    started = next((one for one in notes if one["what"] == "started"), None)
    if started is None or not judged:
        return {"verdicts": 0}
    first, end = judged[0]["at"], started["at"] + plan.seconds
    if notes[-1]["at"] < end:  # it goes on, was cut off, or ended early
        end = judged[-1]["at"]
    warm = first + WARM_SHARE * (end - first)
    verdicts = [one["at"] for one in judged]
    evaluated = [one["at"] for one in notes if one["what"] == "call" and one["method"] == "evaluate"]
    mine = [one for one in judged if one["at"] <= end]
    ended = next((one for one in notes if one["what"] == "ended"), {})
    return {
        **{name: started[name] for name in ("run", "hardware", "isolation", "baseline", "baselines_us")},
        "first_verdict_s": round(first - started["at"], 2),
        "window_s": round(end - first, 2),
        "verdicts": len(mine),
        "duplicates": sum(not one["is_new"] for one in mine),
        "crashes": sum("died twice" in one["reason"] for one in mine),
        "per_min": round(rate_per_min(verdicts, first, end), 1),
        "warm_per_min": round(rate_per_min(verdicts, warm, end), 1),
        "evaluated_per_min": round(rate_per_min(evaluated, first, end), 1),
        "warm_evaluated_per_min": round(rate_per_min(evaluated, warm, end), 1),
        "evaluators_busy": ended.get("busy"),
        "evaluators": evaluators_of(notes, plan.n_gpus, first, end),
        "phases": _phases(mine),
        "best": best_over_time(judged, started["at"]),
        "changes": [
            f"{one['at'] - started['at']:.1f} s: {one['said'][:160]}" for one in notes if one["what"] == "crew"
        ],
        "counters": ended.get("counters"),
        "stop_reason": ended.get("stop_reason", "cut off"),
    }


def _phases(judged: Notes) -> dict[str, float]:
    """Median seconds of each phase of a judgement."""
    names = {name for one in judged if one["is_new"] for name in one["seconds"]}
    values = {name: [one["seconds"][name] for one in judged if name in one["seconds"]] for name in sorted(names)}
    return {name: round(statistics.median(seconds), 4) for name, seconds in values.items()}


def after_kills(notes: Notes, n_gpus: int, killed_at: Sequence[float], end: float) -> dict[str, Any]:
    """How the search went on from the first kill until its end. An evaluator that died in a call was killed."""
    begin = killed_at[0]
    news = [one["at"] for one in notes if one["what"] == "judged" and one["is_new"]]
    evaluators = evaluators_of(notes, n_gpus, begin, end)
    others = [one for one in evaluators if not one["n_died"]]
    return {
        "seconds": round(end - begin, 2),
        "silence_s": round(longest_silence_s(news, begin, end), 2),
        "per_min": round(rate_per_min(news, begin, end), 1),
        "evaluators": evaluators,
        "others_silence_s": max((one["silence_s"] for one in others), default=None),
        "others_busy": min((one["busy"] for one in others), default=None),
    }


def compared(noted: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, int]:
    """Acknowledged candidates beside the archive's rows of candidate, program and whose verdict it repeats."""
    stored = Counter(str(row[0]) for row in rows)
    anew = Counter(str(row[1]) for row in rows if not row[2] and f"-{CONFIRM}-" not in str(row[0]))
    return {
        "acknowledged": len(noted),
        "stored": len(rows),
        "lost": len(set(noted) - set(stored)),
        "twice": sum(n > 1 for counter in (stored, Counter(noted)) for n in counter.values()),
        "judged_anew": sum(n > 1 for n in anew.values()),
    }


def gpu_busy(text: str) -> dict[str, dict[str, float]]:
    """Mean share of the time with a kernel, and most memory, by GPU, from `nvidia-smi`'s lines: index, %, MiB."""
    looks: dict[str, list[tuple[float, float]]] = {}
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            index, busy, memory = (part.strip() for part in line.split(","))
            looks.setdefault(index, []).append((float(busy) / 100, float(memory)))
    return {
        index: {"busy": round(statistics.mean(busy for busy, _ in seen), 3), "memory_mb": max(mb for _, mb in seen)}
        for index, seen in looks.items()
    }


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def shares_of_linear(lines: Sequence[dict[str, Any]], figure: str) -> list[float | None]:
    """Of each line, its rate over that of one GPU times its GPUs; without a line of one GPU, the smallest stands in.

    Lines of the same problem, device and cores for each GPU are compared; killed runs are no measure.
    """
    shares: list[float | None] = []
    for line in lines:
        alike = [one for one in lines if _kin(one) == _kin(line) and one.get(figure) and _is_measure(one)]
        fewest = min((one["gpus"] for one in alike), default=0)
        rates = [one[figure] / one["gpus"] for one in alike if one["gpus"] == fewest]
        has_share = rates and line.get(figure) is not None
        shares.append(line[figure] / line["gpus"] / statistics.mean(rates) if has_share else None)
    return shares


def _kin(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["problem"], line["device"], line["cores_per_gpu"]


def _is_measure(line: dict[str, Any]) -> bool:
    """Whether nothing was killed before its measured time was over."""
    return not line.get("is_cut_off") and all(kill["at_s"] >= line["seconds"] for kill in line["kills"])


def table(lines: Sequence[dict[str, Any]]) -> str:
    """The runs, their processes and their kills as Markdown."""
    rates = ("per_min", "warm_per_min", "evaluated_per_min", "warm_evaluated_per_min")
    shares = {figure: shares_of_linear(lines, figure) for figure in rates}
    columns = ["GPUs", "cores", "verdicts a minute", "once warm", "on the GPU", "once warm", "evaluators busy"]
    columns += ["GPUs busy", "best us at 1/4, 1/2, end", "start s", "archive"]
    out = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for index, line in enumerate(lines):
        figures = [_with_share(line.get(figure), shares[figure][index]) for figure in rates]
        busy = ", ".join(f"{100 * share:.0f}%" for share in line.get("evaluators_busy") or [])
        gpus = ", ".join(f"{100 * one['busy']:.0f}%" for one in line.get("gpus_seen", {}).values())
        best = ", ".join("" if us is None else f"{us:.1f}" for us in _best_at(line, (0.25, 0.5, 1.0)))
        name = f"{line['gpus']}{_remark(line)}"
        cells = [name, str(line["n_cores"]), *figures, busy, gpus, best, str(line["start_s"]), _faults(line)]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join([*out, "", *_roles(lines), "", *_kill_lines(lines)]).rstrip()


def _remark(line: dict[str, Any]) -> str:
    if line.get("is_cut_off"):
        return " (cut off)"
    return "" if _is_measure(line) else " (killed)"


def _with_share(rate: float | None, share: float | None) -> str:
    return "" if rate is None else f"{rate:.0f}" + ("" if share is None else f" ({100 * share:.0f}%)")


def _best_at(line: dict[str, Any], shares: Sequence[float]) -> list[float | None]:
    best = list(reversed(line.get("best", [])))
    return [next((us for at, us in best if at <= share * line["seconds"]), None) for share in shares]


def _faults(line: dict[str, Any]) -> str:
    archive = line.get("archive", {})
    if "stored" not in archive:
        return "not read"
    return f"{archive['acknowledged']}: {archive['lost']} lost, {archive['twice']} twice"


def _roles(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Cores and megabytes of each role, a column a run."""
    roles = sorted({role for line in lines for role in line.get("processes", {})})
    heads = [f"{line['gpus']} GPUs: n, cores, MB resident, in equal parts" for line in lines]
    out = [f"| process | {' | '.join(heads)} |", "|" + "---|" * (1 + len(lines))]
    for role in roles:
        found = [line.get("processes", {}).get(role) for line in lines]
        cells = [f"{o['n']}, {o['cores']:.2f}, {o['rss_mb']:.0f}, {o['pss_mb']:.0f}" if o else "" for o in found]
        out.append(f"| {role} | {' | '.join(cells)} |")
    return out


def _kill_lines(lines: Sequence[dict[str, Any]]) -> list[str]:
    out = []
    for line in [line for line in lines if line.get("after_kills")]:
        after = line["after_kills"]
        killed = ", ".join(f"{kill['kind']} at {kill['at_s']:.0f} s" for kill in line["kills"])
        found = ", ".join(f"{value} {name}" for name, value in line.get("archive", {}).items())
        silences = ", ".join(f"{one['silence_s']:.1f}" for one in after["evaluators"])
        out.append(f"{line['gpus']} GPUs, kill -9 of {killed}: {found}; {after['per_min']:.0f} new verdicts a minute")
        out.append(f"then; longest silence {after['silence_s']} s, of each evaluator {silences} s; of those that were")
        out.append(f"not killed {after['others_silence_s']} s, and they were busy for {after['others_busy']} or more")
    return out

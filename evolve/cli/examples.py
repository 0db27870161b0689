"""What to type: the examples below the help of each command. A test holds that each of them can be read."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "evolve doctor",
        "evolve run softmax --islands 8 --time 10m",
        "evolve best softmax -o fast_softmax.py",
    ),
    "run": (
        "evolve run softmax --islands 8",
        "evolve run my_problem.py --shape batch=64 --time 10m",
        "evolve run softmax --device cpu --target a100 --evaluations 50",
        "evolve run my_kernel.py --seed-from lab.duckdb --set search.migration_size=4",
    ),
    "bench": (
        "evolve bench benchmarks/models --evaluations 150 --out bench",
        "evolve bench KernelBench/level1 KernelBench/level2 --time 10m",
    ),
    "resume": ("evolve resume", "evolve resume 20261130-111955-ddb4 --archive lab.duckdb"),
    "elites": ("evolve elites --problem softmax", "evolve elites --kind measured --limit 5 --json"),
    "best": (
        "evolve best softmax -o fast_softmax.py",
        "evolve best softmax --hardware nvidia-h200 --archive lab.duckdb",
    ),
    "show": ("evolve show 53e6edf87e25", "evolve show 53e6 --no-source"),
    "diff": ("evolve diff 53e6edf87e25 efd67393fc49",),
    "lineage": ("evolve lineage 53e6edf87e25",),
    "knowledge": (
        "evolve knowledge --state dram_bandwidth",
        "evolve knowledge attempts --technique tile_size",
        "evolve knowledge export lab.json --without softmax",
    ),
    "llm": (
        "evolve llm calls --limit 10",
        "evolve llm export -o prompts.jsonl",
        "evolve llm import answers.jsonl --evaluations 20",
    ),
    "query": (
        'evolve query "SELECT technique, latency_kind, count(*), max(speedup) FROM evaluations GROUP BY ALL"',
        'evolve query "DESCRIBE evaluations"',
        "evolve query \"SELECT run_id, status, record->'config' FROM runs\" --json",
    ),
    "export": ("evolve export tables", "evolve export evaluations.jsonl"),
    "recheck": ("evolve recheck evolve.duckdb --top 5 --problem softmax",),
    "check": (
        "evolve check my_softmax.py --problem softmax",
        "evolve check my_softmax.py -p softmax --shape n_cols=4096 --must-win",
    ),
    "profile": ("evolve profile my_softmax.py --problem softmax --target a100",),
    "problems": ("evolve problems list", "evolve problems show softmax --seed"),
    "techniques": ("evolve techniques", "evolve techniques online_softmax"),
    "report": ("evolve report", "evolve report 20261130-111955-ddb4 --out reports/softmax"),
    "doctor": ("evolve doctor --archive lab.duckdb",),
}


def epilog(command: str) -> str:
    """The examples of a command as they stand below its help; the mark keeps their lines apart."""
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in EXAMPLES[command])])

"""Answers that must be refused: every way in which models get one wrong, drawn from a seed, against a real parent."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from islands.llm.refusals import RefusalKind

K = RefusalKind


class BadAnswer(NamedTuple):
    """`name` says what is wrong with it; `kinds` are the refusals that say so."""

    name: str
    text: str
    finish_reason: str
    kinds: frozenset[RefusalKind]


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def fenced(text: str, language: str = "python") -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


class _Parent(NamedTuple):
    """A parent with the lines that bad answers quote."""

    source: str
    lines: list[str]
    unique: list[str]  # lines that stand in it once
    doubled: list[str]  # lines that stand in it more than once, indented alike


def _parent(source: str) -> _Parent:
    lines = source.rstrip("\n").split("\n")
    keys = ["".join(line.split()) for line in lines]
    code = [line for line in lines if line.strip() and not line.strip().startswith(("#", '"', "import", "from"))]
    unique = [line for line in code if keys.count("".join(line.split())) == 1 and line.startswith("    ")]
    doubled = [line for line in code if lines.count(line) > 1]
    return _Parent(source, lines, unique, doubled)


Made = tuple[str, str, set[RefusalKind]]  # text, finish reason, kinds


def _empty(_: _Parent, rng: random.Random) -> Made:
    return rng.choice(["", " ", "\n\n\r\n", "\t", "\ufeff", "<think>\n</think>\n"]), rng.choice(["", "stop"]), {K.EMPTY}


def _thought_too_long(_: _Parent, rng: random.Random) -> Made:
    return "<think>\nThe kernel waits for its loads." + " Hm." * rng.randrange(200), "length", {K.CUT_OFF}


def _prose(_: _Parent, rng: random.Random) -> Made:
    said = ["I cannot help with that.", "Raise `num_warps` to 8.", "The kernel is already optimal.\n\n1. Nothing."]
    return rng.choice(said), "stop", {K.NO_CODE}


def _cut_block(parent: _Parent, rng: random.Random) -> Made:
    whole = block(rng.choice(parent.unique), "    extra = 1\n    other = 2")
    return whole[: rng.randrange(len("<<<<<<< SEARCH\n"), len(whole) - len("> REPLACE\n"))], "length", {K.CUT_OFF}


def _cut_after_block(parent: _Parent, rng: random.Random) -> Made:
    return block(rng.choice(parent.unique), "    extra = 1") + "\nAnd in the second", "length", {K.CUT_OFF}


def _cut_program(parent: _Parent, rng: random.Random) -> Made:
    n = rng.randrange(40, len(parent.source) - 40)
    return f"```python\n{parent.source[:n]}", rng.choice(["length", ""]), {K.CUT_OFF}


def _not_found(parent: _Parent, rng: random.Random) -> Made:
    line = rng.choice(parent.unique)
    wrong = rng.choice([f"{line}_x", "    no_such_line = 1", f"{line.split('=')[0]}= nothing_like_it()"])
    return block(wrong, "    extra = 1"), "stop", {K.NOT_FOUND}


def _part_of_a_line(parent: _Parent, rng: random.Random) -> Made:
    return block(rng.choice(parent.unique).strip()[1:], "extra = 1"), "stop", {K.NOT_FOUND}


def _twice(parent: _Parent, rng: random.Random) -> Made:
    if not parent.doubled:
        return _not_found(parent, rng)
    return block(rng.choice(parent.doubled), "    extra = 1"), "stop", {K.AMBIGUOUS}


def _elided_search(parent: _Parent, rng: random.Random) -> Made:
    first, last = rng.sample(parent.unique, k=2)
    dots = rng.choice(["    ...", "# ... existing code ...", "    # rest of the kernel unchanged ...", "…"])
    return block(f"{first}\n{dots}\n{last}", "    extra = 1"), "stop", {K.ELLIPSIS}


def _elided_replacement(parent: _Parent, rng: random.Random) -> Made:
    dots = rng.choice(["    ...", "    # ... as before ...", "    # the rest stays unchanged"])
    return block(rng.choice(parent.unique), f"    extra = 1\n{dots}"), "stop", {K.ELLIPSIS}


def _elided_program(parent: _Parent, rng: random.Random) -> Made:
    n = len(parent.lines) // 2
    dots = rng.choice(["# ... rest of the code unchanged ...", "# ... existing code ..."])
    tail = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x\n"
    return fenced("\n".join(["import torch", dots, *parent.lines[n:n], tail])), "stop", {K.ELLIPSIS}


def _stub(_: _Parent, rng: random.Random) -> Made:
    body = rng.choice(["...", "return kernel[(1,)](x, ...)"])
    return fenced(f"class ModelNew:\n    def forward(self, x):\n        {body}\n"), "stop", {K.ELLIPSIS}


def _no_divider(parent: _Parent, rng: random.Random) -> Made:
    text = block(rng.choice(parent.unique), "    extra = 1").replace("=======\n", "")
    return text, "stop", {K.MALFORMED_BLOCK}


def _no_end(parent: _Parent, rng: random.Random) -> Made:
    first, second = rng.sample(parent.unique, k=2)
    text = block(first, "    extra = 1").replace(">>>>>>> REPLACE\n", "") + block(second, "    extra = 2")
    return text, "stop", {K.MALFORMED_BLOCK}


def _no_start(parent: _Parent, rng: random.Random) -> Made:
    text = block(rng.choice(parent.unique), "    extra = 1").replace("<<<<<<< SEARCH\n", "")
    return fenced(text), "stop", {K.MALFORMED_BLOCK}


def _conflict(parent: _Parent, rng: random.Random) -> Made:
    text = block(rng.choice(parent.unique), "    extra = 1").replace("SEARCH", "HEAD").replace("REPLACE", "mine")
    return rng.choice([fenced(text), text]), "stop", {K.MALFORMED_BLOCK}


def _empty_search(_: _Parent, rng: random.Random) -> Made:
    return block(rng.choice(["", "\n", "   "]), "extra = 1"), "stop", {K.EMPTY_SEARCH}


def _unified_diff(parent: _Parent, rng: random.Random) -> Made:
    line = rng.choice(parent.unique)
    text = f"--- a/kernel.py\n+++ b/kernel.py\n@@ -3,1 +3,1 @@\n-{line}\n+    extra = 1\n"
    return rng.choice([fenced(text, "diff"), text, fenced(text, "")]), "stop", {K.OTHER_FORMAT}


def _other_language(_: _Parent, rng: random.Random) -> Made:
    code = rng.choice(
        [
            "#include <cuda.h>\n__global__ void f(float* x) { x[0] = 1; }",
            "fn main() { let x = 1; }",
            "template <typename T>\n__global__ void f(T* x) {}",
        ]
    )
    language = "rust" if code.startswith("fn") else rng.choice(["cuda", "cpp", "c++"])
    return fenced(code, language), "stop", {K.OTHER_LANGUAGE}


def _unlabelled_language(_: _Parent, rng: random.Random) -> Made:
    return fenced("#include <cuda.h>\n__global__ void f(float* x) { x[0] = 1; }", ""), "stop", {K.OTHER_LANGUAGE}


def _shell(_: _Parent, rng: random.Random) -> Made:
    return fenced("pip install triton\npython kernel.py", "bash"), "stop", {K.OTHER_LANGUAGE}


def _json(_: _Parent, rng: random.Random) -> Made:
    return fenced('{"plan": "raise num_warps"}', "json"), "stop", {K.NO_CODE}


def _unchanged_program(parent: _Parent, rng: random.Random) -> Made:
    comment = rng.choice(["", "# faster now\n", "\n\n"])
    return rng.choice([fenced, str])(comment + parent.source), "stop", {K.UNCHANGED}


def _unchanged_blocks(parent: _Parent, rng: random.Random) -> Made:
    line = rng.choice(parent.unique)
    return block(line, rng.choice([line, f"{line}  # tuned"]) if "#" not in line else line), "stop", {K.UNCHANGED}


def _not_python(parent: _Parent, rng: random.Random) -> Made:
    broken = rng.choice(["    extra = (1", "    for in range(3):", "    x = 1 +", "    \x00", "\u201cextra\u201d = 1"])
    return block(rng.choice(parent.unique), broken), "stop", {K.NOT_PYTHON}


def _broken_program(parent: _Parent, rng: random.Random) -> Made:
    text = parent.source + rng.choice(["\ndef f(:\n", "\nx = '''\n", "\n  y = 1\n", "\nz = " + "(" * 400 + "\n"])
    return fenced(text), "stop", {K.NOT_PYTHON}


def _no_entry(parent: _Parent, rng: random.Random) -> Made:
    return fenced(parent.source.replace("ModelNew", rng.choice(["Model", "FastModel"]))), "stop", {K.NO_ENTRY_POINT}


def _kernel_alone(parent: _Parent, rng: random.Random) -> Made:
    return fenced("@triton.jit\ndef kernel(x):\n    pass\n"), "stop", {K.NO_ENTRY_POINT}


def _renamed_by_block(parent: _Parent, rng: random.Random) -> Made:
    line = next(line for line in parent.lines if line.startswith("class ModelNew"))
    return block(line, line.replace("ModelNew", "Other")), "stop", {K.NO_ENTRY_POINT}


def _several(parent: _Parent, rng: random.Random) -> Made:
    two = [fenced(f"{parent.source}\nextra = {k}\n") for k in range(rng.randrange(2, 4))]
    return "First:\n" + "\nOr better:\n".join(two), "stop", {K.SEVERAL_PROGRAMS}


def _overlapping(parent: _Parent, rng: random.Random) -> Made:
    line = rng.choice(parent.unique)
    return block(line, "    extra = 1") + block(line, "    extra = 2"), "stop", {K.OVERLAP}


def _flattened(parent: _Parent, rng: random.Random) -> Made:
    """All indentation lost, where the parent has two levels."""
    at = next(
        (
            k
            for k in range(len(parent.lines) - 1)
            if parent.lines[k].endswith(":") and parent.lines[k] in parent.unique and parent.lines[k + 1].strip()
        ),
        None,
    )
    if at is None:
        return _not_found(parent, rng)
    search = "\n".join(line.strip() for line in parent.lines[at : at + 2])
    return block(search, "extra = 1"), "stop", {K.INDENTATION}


def _endless(_: _Parent, rng: random.Random) -> Made:
    return (
        rng.choice(["# the rest ", "~~~~~", "`", "=======\n", "(", "import x\n\n", " \n"]) * 120_000 + "x",
        "",
        {K.TOO_LONG},
    )


def _many_blocks(parent: _Parent, rng: random.Random) -> Made:
    return "".join(block(f"    no_such_line_{k}", "    extra = 1") for k in range(200)), "stop", {K.TOO_LONG}


BAD: dict[str, Callable[[_Parent, random.Random], Made]] = {
    make.__name__.removeprefix("_"): make
    for make in (
        *(_empty, _thought_too_long, _prose, _cut_block, _cut_after_block, _cut_program, _not_found, _part_of_a_line),
        *(_twice, _elided_search, _elided_replacement, _elided_program, _stub, _no_divider, _no_end, _no_start),
        *(_conflict, _empty_search, _unified_diff, _other_language, _unlabelled_language, _shell, _json),
        *(_unchanged_program, _unchanged_blocks, _not_python, _broken_program, _no_entry, _kernel_alone),
        *(_renamed_by_block, _several, _overlapping, _flattened, _endless, _many_blocks),
    )
}


def bad_answers(source: str, n: int, rng_seed: int = 0) -> list[BadAnswer]:
    """`n` bad answers to a prompt with this parent (entry point ModelNew), all kinds in turn."""
    rng, parent = random.Random(rng_seed), _parent(source)
    names = list(BAD)
    answers = []
    for k in range(n):
        name = names[k % len(names)]
        text, finish_reason, kinds = BAD[name](parent, rng)
        answers.append(BadAnswer(name, text, finish_reason, frozenset(kinds)))
    return answers

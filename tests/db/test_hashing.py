"""Content hashes: equal for what is the same program, on every Python; different for what is not."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from db.hashing import canonical_source, content_hash, pieces_of, program_id_of

GOLDEN_FILE = Path(__file__).parent.parent / "data" / "golden_source.py"
GOLDEN_HASH = "6767853af9ba4df0"
ROOT = Path(__file__).parent.parent.parent

PLAIN = """
def kernel_function(x):
    return x * 2
"""
REWRITTEN = '''
"""A module docstring."""
def kernel_function(
    x,
):
    """Doubles."""
    # two is enough
    return (x * 0x2)
'''


def test_golden_hash() -> None:
    """The name of a program must outlive releases and Python versions: archives are full of it."""
    assert program_id_of(GOLDEN_FILE.read_text(), "ModelNew") == GOLDEN_HASH


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_golden_hash_on_every_python(version: str) -> None:
    python = shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"no python{version} here")
    # the file itself and not the package, whose dependencies that Python may lack
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'db')!r}); import hashing, pathlib;"
        f"print(hashing.program_id_of(pathlib.Path({str(GOLDEN_FILE)!r}).read_text(), 'ModelNew'))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    if done.returncode != 0 and "pyenv" in done.stderr:
        pytest.skip(f"python{version} is not installed")
    assert done.stdout.strip() == GOLDEN_HASH, done.stderr


def test_comments_formatting_and_docstrings_make_no_new_program() -> None:
    assert program_id_of(PLAIN, "kernel_function") == program_id_of(REWRITTEN, "kernel_function")


@pytest.mark.parametrize(
    "other",
    [PLAIN.replace("2", "3"), PLAIN.replace("x * 2", "2 * x"), PLAIN + "\nimport math\n", PLAIN.replace("(x)", "(y)")],
)
def test_another_program_has_another_name(other: str) -> None:
    assert program_id_of(PLAIN, "kernel_function") != program_id_of(other, "kernel_function")


def test_statements_that_share_lines_are_told_apart() -> None:
    one, other = "x = 1; y = 2\n", "y = 2; x = 1\n"
    assert canonical_source(one) == "x = 1\ny = 2"
    assert canonical_source(other) == "y = 2\nx = 1"


def test_every_line_end_of_python_is_a_line_end() -> None:
    for end in ("\r\n", "\r", "\n"):
        assert canonical_source(f'a = "\x0c"{end}b = 1{end}def f():{end}    return 2') == (
            "a = '\\x0c'\nb = 1\ndef f():\n    return 2"
        )


@pytest.mark.parametrize(
    "source",
    [
        "@a\n@b(\n    1,\n)\n# between\n\ndef f():\n    return 1\nclass A:\n    pass\n",
        'import os\nTEXT = """\nimport nothing\nx = 1\n"""\ny = f(os)\n',
        "x = (\n1,\n2)\ny = f(\nx\n)\n",
        "try:\n    import a\nexcept E:\n    a = f(1)\nelse:\n    b = 2\nif a:\n    c = 1\nelif b:\n    c = 2\n",
        "x = f(1) + \\\ny\nz = g(x)\n",
        "x = 1\nx = 1\nif x: y = 1; z = 2\nw = 1",
        "# \\\nx = 1\n#\n",
    ],
)
def test_a_source_that_is_read_piece_by_piece_says_what_it_says_as_a_whole(source: str) -> None:
    assert canonical_source(source) == "\n".join(ast.unparse(statement) for statement in ast.parse(source).body)
    assert "".join(pieces_of(source)) == source


@pytest.mark.parametrize(
    "docstring", ['"""a"""\n', '# c\n\n"""\nimport a\nx = 1\n"""\n', "'a'\n", "# c\n'''\nb'''  # c\n"]
)
def test_a_docstring_is_taken_out_wherever_a_source_is_cut(docstring: str) -> None:
    assert canonical_source(docstring + "import b\nx = 2\n") == "import b\nx = 2"
    assert canonical_source(f"import b\n{docstring}x = 2\n") != "import b\nx = 2"


@pytest.mark.parametrize(
    "source",
    ["x = (\ny = 1\n", "if a:\nx = 1\n", "x = 1\nelse:\n    y\n", "@a\nx = 1\n", "x = 1 \\\n", "y = '''\nx = 1\n"],
)
def test_pieces_do_not_make_a_program_of_what_is_none(source: str) -> None:
    with pytest.raises(SyntaxError):
        canonical_source(source)


def test_the_entry_point_is_part_of_the_name() -> None:
    assert program_id_of(PLAIN, "kernel_function") != program_id_of(PLAIN, "ModelNew")


def test_a_source_that_does_not_parse_still_has_a_name() -> None:
    assert program_id_of("def (", "ModelNew") != program_id_of("def ((", "ModelNew")
    assert len(program_id_of("def (", "ModelNew")) == 16
    assert len(program_id_of("x = 1\0", "ModelNew")) == 16


def test_a_string_that_is_no_docstring_stays() -> None:
    assert "kept" in canonical_source('x = 1\n"kept"\n')
    assert canonical_source('def f():\n    "gone"\n') == "def f():\n    pass"


@pytest.mark.parametrize(
    "source",
    ['f"a{b!r:>{w}}c"', "f\"{b}'{w:05d}'\"", 'f"{b!s:}" "tail"', "f'{{literal}} {b}'", "f\"{'x' if b else 'y'}\""],
)
def test_f_strings_keep_their_meaning(source: str) -> None:
    names = {"b": "it's", "w": 9}
    assert eval(canonical_source(source), names) == eval(source, names)


def test_parts_are_told_apart() -> None:
    assert content_hash("ab", "c") != content_hash("a", "bc")
    assert content_hash() != content_hash("")

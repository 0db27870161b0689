"""Sources taken apart piece by piece say what they say as a whole, and share no more than what is written alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst
import pytest
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper
from support.parents import kernel_sources

from islands.operators.structural.analysis import Program, analyse
from islands.operators.structural.parts import Part, Placed, parts_of
from islands.operators.structural.text import Span

ODD_SOURCES = {
    "decorated": "@a\n@b(\n    1,\n)\n# between\n\ndef f():\n    return 1\n\n\nclass A:\n    pass\n",
    "docstring": '"""One.\n\nimport nothing\n"""\n\nimport os\n\nx = os\n',
    "string": 'import os\n\nTEXT = """\nimport nothing\nx = 1\n"""\ny = f(os)\n',
    "brackets": "x = (\n1,\n2)\ny = f(\nx\n)\n",
    "branches": "try:\n    import a\nexcept E:\n    a = f(1)\nelse:\n    b = 2\nif a:\n    c = 1\nelif b:\n    c = 2\n",
    "twice": "x = f(1)\nx = f(1)\ny = g(x)\n",
    "one line": "x = f(1); y = g(x)\nz = 1\n",
    "wide": "x = 'ä'  # ö\ny = (f(ü, 1))\nz = ((f))(y)\n",
    "backslash": "x = f(1) + \\\ny\nz = g(x)\n",
    "line ends": "x = f(1)\r\ny = (x)\r\n",
    "no line end": "x = f(1)\ny = (f)(x)",
    "nothing": "",
}


def sources() -> dict[str, str]:
    return {**ODD_SOURCES, **kernel_sources()}


@pytest.mark.parametrize("name", sources())
def test_a_source_says_in_parts_what_it_says_as_a_whole(name: str) -> None:
    source = sources()[name]
    program = analyse(source)
    whole = Program(source, [Placed(0, Part(cst.parse_module(source)))])
    assert program is not None
    assert list(_facts(program)) == list(_facts(whole))
    assert [scope.class_name for scope in program.scopes] == [scope.class_name for scope in whole.scopes]
    assert [*program.classes] == [*whole.classes] and program.aliases == whole.aliases
    assert [launch.key for launch in program.launches] == [launch.key for launch in whole.launches]


def _facts(program: Program) -> Iterator[tuple[str, str, Span, list[str]]]:
    """Every node of every function, with where it stands and what is around it."""
    for scope in program.scopes:
        for node in (node for nodes in scope._nodes.values() for node in nodes):
            around = [type(ancestor).__name__ for ancestor in program.ancestors(node)]
            yield scope.name, type(node).__name__, program.span(node), around


@pytest.mark.parametrize("name", sources())
def test_nodes_stand_where_libcst_says(name: str) -> None:
    source = sources()[name]
    module = cst.parse_module(source)
    known = MetadataWrapper(module, unsafe_skip_copy=True).resolve(ByteSpanPositionProvider)
    spans = Part(module).spans
    utf8 = source.encode()
    for node, span in known.items():
        start, end = spans[id(node)]
        assert source[start:end].encode() == utf8[span.start : span.start + span.length]
    assert len(spans) == len(known)


def test_programs_share_what_is_written_alike_and_nothing_else() -> None:
    source = kernel_sources()["row_l2"]
    edited = source.replace("import torch\n", "import math\nimport torch\n")
    edited = edited.replace("1e-6, BLOCK=BLOCK", "1e-6, BLOCK=BLOCK, num_warps=8")
    one, other = analyse(source), analyse(edited)
    assert one is not None and other is not None
    name, kernel = next(iter(one.kernels.items()))
    assert other.kernels[name].node is kernel.node and other.kernels[name] is not kernel
    assert one.span(kernel.node) != other.span(kernel.node)
    assert one.text(kernel.node) == other.text(kernel.node)
    assert one.launches[0].call is not other.launches[0].call
    assert one.derived("fact", lambda: 1) == 1 and other.derived("fact", lambda: 2) == 2
    assert [s.name for s in one.scopes] == [s.name for s in other.scopes]
    assert len(one.root.all(cst.Import)) + 1 == len(other.root.all(cst.Import))


def test_what_stands_twice_in_a_source_is_told_apart() -> None:
    program = analyse(ODD_SOURCES["twice"])
    assert program is not None
    assert [program.span(call).start for call in program.root.all(cst.Call)] == [4, 13, 22]


def test_what_does_not_parse_has_no_parts() -> None:
    with pytest.raises(SyntaxError):
        parts_of("def f():\n    return (\n\nx = 1\n")
    assert ast.parse(ODD_SOURCES["branches"]) and len(parts_of(ODD_SOURCES["branches"])) > 1

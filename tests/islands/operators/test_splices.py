"""Splices of text, and positions of an analysed program."""

from __future__ import annotations

import ast

import libcst as cst
from support.parents import kernel_sources

from islands.operators.structural.analysis import analyse
from islands.operators.structural.text import Edit, splice


def test_edits_apply_in_order_and_contradictions_give_nothing() -> None:
    source = "0123456789"
    assert splice(source, [Edit(8, 9, "y"), Edit(0, 2, "x"), Edit(4, 4, "a"), Edit(4, 4, "b")]) == "x23ab4567y9"
    assert splice(source, [Edit(0, 4, "x"), Edit(3, 5, "y")]) is None
    assert splice(source, [Edit(0, 4, "x"), Edit(0, 4, "y")]) is None
    assert splice(source, [Edit(0, 4, "x"), Edit(0, 4, "x")]) == "x456789"
    assert splice(source, [Edit(0, 4, "x"), Edit(4, 4, "-")]) == "x-456789"


def test_positions_are_those_of_the_text() -> None:
    for source in (*kernel_sources().values(), "x = 'ä'  # ö\ny = (f(ü, 1))\n"):
        program = analyse(source)
        assert program is not None
        for scope in program.scopes:
            for name in scope.all(cst.Name):
                start, end = program.span(name)
                assert source[start:end] == name.value
        calls = {source[slice(*program.span(call))] for scope in program.scopes for call in scope.all(cst.Call)}
        nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
        assert calls == {ast.get_source_segment(source, node) for node in nodes}


def test_only_what_the_entry_reaches_is_edited() -> None:
    source = kernel_sources()["row_l2"] + "\n\ndef never_called(x, y):\n    l2_rows[(1,)](x, y, 3, 1e-6, BLOCK=64)\n"
    program = analyse(source)
    assert program is not None
    assert len(program.all_launches) == 2 and len(program.launches) == 1

"""What host code may write to: what the same call has made, and nothing that outlives it."""

import ast
import textwrap

import pytest

from evaluators.gates.lasting import Scope


def scope_of(body: str) -> Scope:
    tree = ast.parse("def f(given, *more, kept=None):\n" + textwrap.indent(textwrap.dedent(body), "    "))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    return Scope(function, lambda node: ast.unparse(node).startswith("torch."))


@pytest.mark.parametrize(
    ("body", "is_own"),
    [
        ("n = {}", True),
        ("n = [given]", True),
        ("n = dict(TABLE)", True),
        ("n = TABLE.copy()", True),
        ("n = torch.empty(3)", True),
        ("n = {} if given else []", True),
        ("m = []\nn = m", True),
        ("n = n = []\nn = n", True),
        ("n = TABLE", False),
        ("n = {}\nn = TABLE", False),
        ("n = TABLE or {}", False),
        ("n = given", False),
        ("n = given[0]", False),
        ("n = table_of(given)", False),
        ("n = max([TABLE], key=len)", False),
        ("n = sorted([TABLE])[0]", False),
        ("n, m = TABLE, 1", False),
        ("n, m = {}, TABLE", True),
        ("(n,) = [TABLE]", False),
        ("n, *m = [TABLE]", False),
        ("for n in [TABLE]: pass", False),
        ("[0 for n in [TABLE]]", False),
        ("match [TABLE]:\n    case [n]: pass", False),
        ("match TABLE:\n    case {**n}: pass", False),
        ("with given as n: pass", False),
        ("if (n := TABLE): pass", False),
        ("def n(): pass", False),
        ("def inner():\n    n = {}", False),
    ],
)
def test_a_name_is_own_when_every_value_is_new(body: str, is_own: bool) -> None:
    assert scope_of(body).owns("n") is is_own


@pytest.mark.parametrize(
    ("expression", "keeps_place"),
    [
        ("iter([])", True),
        ("(x for x in given)", True),
        ("[zip(given)]", True),
        ("itertools.count()", True),
        ("pick(map(f, given))", True),
        ("make(iter)", True),
        ("tuple(x for x in given)", False),
        ("', '.join(map(str, given))", False),
        ("[f(x) for x in zip(given)]", False),
        ("launch(*map(f, given))", False),
        ("next(iter(given))", False),
        ("x[0]", False),
    ],
)
def test_iterators_are_told_from_what_uses_them_up(expression: str, keeps_place: bool) -> None:
    assert scope_of("pass").is_iterator(ast.parse(expression, mode="eval").body) is keeps_place


def test_a_name_that_stands_for_an_iterator_is_one() -> None:
    scope = scope_of("steps = iter([])\nagain = steps\nn = n + 1")
    assert scope.is_iterator(ast.Name("again")) and not scope.is_iterator(ast.Name("n"))

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


@pytest.mark.parametrize(
    ("body", "is_fine"),
    [
        ("n = 64\nn *= 2", True),
        ("n = given.shape[0]\nn *= 2", True),
        ("m, n = given.shape\nn *= 2", True),
        ("(*m, n) = given.size()\nn *= 2", True),
        ("for n in given.stride(): n *= 2", True),
        ("for n in range(3): n *= 2", True),
        ("for n, m in enumerate(given): n *= 2", True),
        ("n = min(given, 8)\nn *= 2", True),
        ("n = given.numel() * 2\nn *= 2", True),
        ("n = []\nn += given", True),
        ("n = torch.empty(3)\nn *= 2", True),
        ("given += 1", True),  # no list takes a number
        ("given //= 2", True),
        ("given *= 2", False),
        ("given += given", False),
        ("n = kept\nn *= 2", False),
        ("n = 1\nn = kept\nn *= 2", False),
        ("n = given[0]\nn *= 2", False),
        ("n = given.table\nn |= given", False),
        ("n = given.shape\nn = kept\nm, o = n\no *= 2", False),
        ("n = given.shape\nm = [kept]\nm[0] *= 2", False),
        ("for n, m in enumerate(given): m *= 2", False),
        ("n = min(1, kept, key=given)\nn *= 2", False),
        ("n = max(kept)\nn *= 2", False),
        ("n = given.rows[0]\nn *= 2", False),
        ("range = given\nfor n in range(3): n *= 2", False),
        ("enumerate = given\nfor m, n in enumerate(given.shape): n *= 2", False),
        ("len = given\nn = len(kept)\nn *= 2", False),
    ],
)
def test_only_numbers_and_what_is_new_may_be_changed_in_place(body: str, is_fine: bool) -> None:
    changes = [node for node in ast.walk(ast.parse(body)) if isinstance(node, ast.AugAssign)]
    assert scope_of(body).may_change(changes[-1]) is is_fine


def test_a_name_of_pythons_means_something_else_where_the_module_binds_it() -> None:
    tree = ast.parse("def list(x): return x\ndef f(kept):\n    n = list(kept)")
    outer, function = Scope(tree, lambda _: False), tree.body[1]
    assert isinstance(function, ast.FunctionDef)
    assert Scope(function, lambda _: False).owns("n") and not Scope(function, lambda _: False, outer).owns("n")


def test_a_shape_that_the_file_may_define_itself_is_no_number() -> None:
    tree = ast.parse("def f(given):\n    n = given.shape[0]")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    number = ast.Name("n", ast.Load())
    assert Scope(function, lambda _: False).is_number(number)
    assert not Scope(function, lambda _: False, attributes=frozenset({"shape"})).is_number(number)


def test_names_given_in_terms_of_one_another_are_not_followed_for_ever() -> None:
    chain = "".join(f"n{i + 1} = n{i} - n{i}\n" for i in range(60))
    with pytest.raises(RecursionError, match="too many other names"):
        scope_of(f"n0 = given\n{chain}").is_number(ast.Name("n60", ast.Load()))

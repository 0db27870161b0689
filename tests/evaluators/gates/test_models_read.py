"""What reading knows of models: which attributes are their own, what may be a module, and what runs at import."""

import ast
import textwrap

import pytest

from evaluators.gates.modules_held import ModulesHeld
from evaluators.gates.own_names import OwnNames
from evaluators.gates.reachable import module_aliases, unreached_definitions

MODEL = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self._n = 1
        self.norm = nn.LayerNorm(3)
        self.weight = nn.Parameter(torch.empty(3))
        self.register_buffer("_scale", torch.ones(1))

    def _rows(self, x):
        return x

    @staticmethod
    def _of(x):
        return x
"""


def own_names(extra: str = "", model: str = MODEL) -> tuple[ast.Module, OwnNames]:
    tree = ast.parse(model + textwrap.dedent(extra))
    return tree, OwnNames(tree, module_aliases(tree))


def has(attribute: str, extra: str = "", model: str = MODEL, method: str = "_rows") -> bool:
    tree, own = own_names(extra, model)
    owner = next(s for s in tree.body if isinstance(s, ast.ClassDef) and s.name == "Model")
    function = next(s for s in owner.body if isinstance(s, ast.FunctionDef) and s.name == method)
    return own.has(owner, function, attribute)


@pytest.mark.parametrize("attribute", ["_n", "_rows", "_scale", "weight"])
def test_what_a_model_defines_is_its_own(attribute: str) -> None:
    assert has(attribute)


def test_what_it_does_not_define_is_not() -> None:
    assert not has("_version") and not has("_n", method="_of")


@pytest.mark.parametrize(
    "extra",
    [
        "y = Model._rows(1, 2)",
        "kinds = [Model]",
        "def f(kind): return kind\nf(Model)",
        "class Other(Model): pass\nOther._rows(1, 2)",
        "class Model: pass",
    ],
)
def test_a_model_whose_methods_may_be_given_something_else_has_no_names(extra: str) -> None:
    assert not has("_n", extra)


@pytest.mark.parametrize("extra", ["m = Model()", "n = Model._of(1)", "def f(m: Model) -> Model: isinstance(m, Model)"])
def test_making_a_model_and_asking_about_it_give_it_to_nobody(extra: str) -> None:
    assert has("_n", extra)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nn.Module", "torch.Tensor"),
        ("nn.Module)", "nn.Module, Other)"),
        ("    def _rows", "    @changed\n    def _rows"),
        ("    @staticmethod", "    table = [_rows]\n\n    @staticmethod"),
        ("class Model", "@changed\nclass Model"),
    ],
)
def test_other_classes_and_methods_that_are_handed_on_have_none(old: str, new: str) -> None:
    assert old in MODEL and not has("_n", model=MODEL.replace(old, new, 1))


@pytest.mark.parametrize(
    ("expression", "may"),
    [
        ("self", True),
        ("self.norm", True),
        ("part", True),
        ("given", True),
        ("again(self)", True),
        ("whole", True),
        ("[part for part in self.children()]", True),
        ("Model()", True),
        ("self.weight", False),
        ("self.norm.weight", False),
        ("self.norm(x)", False),
        ("x", False),
        ("nn.Parameter(x)", False),
    ],
)
def test_modules_are_told_from_tensors(expression: str, may: bool) -> None:
    use = """
    def again(m):
        return m

    def use(given):
        for part in [given]:
            pass

    use(Model().norm)
    again(Model())
    (lambda whole: whole)(Model())
    """
    tree, own = own_names(use)
    held = ModulesHeld(tree, module_aliases(tree), own)
    assert held.may_hold(ast.parse(expression, mode="eval").body) is may


def test_a_module_that_is_handed_on_for_ever_may_be_anywhere() -> None:
    chain = "".join(f"n{i} = n{i + 1}\n" for i in range(100))
    for extra, may in (("", False), (f"{chain}n100 = Model()\n", True)):
        tree, own = own_names(extra)
        assert ModulesHeld(tree, module_aliases(tree), own).may_hold(ast.Name("n0", ast.Load())) is may


@pytest.mark.parametrize(
    ("definition", "is_left"),
    [
        ("def unused(): run()", True),
        ("class Unused(nn.Module):\n    @property\n    def f(self): run()", True),
        ("class Base(nn.Module): pass\nclass Unused(Base): pass", True),
        ("@torch.no_grad()\ndef unused(): run()", True),
        ("def call(f): return f()\n@call\ndef unused(): run()", False),
        ("class Unused:\n    def f(): run()\n    f()", False),
        ("class Unused:\n    if True:\n        def f(): run()", False),
        ("class Unused(Enum):\n    def _generate_next_value_(*a): run()", False),
        ("class Base(Enum): pass\nclass Unused(Base): pass", False),
        ("class Unused(nn.Module, key=1): pass", False),
        ("class Unused:\n    def __set_name__(self, owner, name): run()", False),
        ("property = call\nclass Unused:\n    @property\n    def f(self): run()", False),
        ("def unused(): run()\nname = unused", False),
        ("def unused(): run()\ndef other(x=unused()): pass", False),
        ("class Unused: pass\ndef other(x: Unused): pass", True),
    ],
)
def test_bodies_that_nothing_runs_are_left_out(definition: str, is_left: bool) -> None:
    tree = ast.parse("import torch\nimport torch.nn as nn\ndef entry(): pass\n" + definition)
    left = {getattr(s, "name", "") for s in unreached_definitions(tree, "entry")}
    assert bool({"unused", "Unused"} & left) is is_left

"""Calls of libraries as torch spells them: what `extern_kernels` and `aten` of Inductor's output stand for."""

from __future__ import annotations

import ast

from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.literals import literal
from evaluators.gates.reachable import dotted_name

# torch/_inductor/kernel/{mm,bmm,conv}.py: ExternKernelChoice(torch.mm, ...)
_SAME_NAME = frozenset({"mm", "addmm", "bmm", "baddbmm", "convolution", "_int_mm", "_scaled_mm", "mv", "addmv"})
_REINTERPRET = "reinterpret_tensor"


def as_torch(statement: str) -> str:
    """A statement of Inductor's output that needs torch alone.

    Raises:
        DecompositionError: it calls a library function that has no name in torch.
    """
    return ast.unparse(ast.fix_missing_locations(_Spelling().visit(ast.parse(statement))))


def strided(tensor: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> str:
    """A view of a tensor, counted from where the tensor begins."""
    place = f", {tensor}.storage_offset() + {offset}" if offset else ""
    return f"{tensor}.as_strided({shape}, {strides}{place})"


class _Spelling(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = dotted_name(node.func) or ""
        self.generic_visit(node)
        if function == _REINTERPRET:
            shape, strides = literal(node.args[1]), literal(node.args[2])
            offset = literal(node.args[3]) if len(node.args) > 3 else 0
            return ast.parse(strided(ast.unparse(node.args[0]), shape, strides, offset), mode="eval").body
        if function == "extern_kernels.bias_addmm":
            return _bias_addmm(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = dotted_name(node) or ""
        if name.startswith("extern_kernels."):
            operation = name.removeprefix("extern_kernels.")
            if operation not in _SAME_NAME and operation != "bias_addmm":
                raise DecompositionError(f"the graph calls {name}, which is not known outside of Inductor")
            return ast.parse(f"torch.{operation}", mode="eval").body
        for short, owner in (("aten.", "torch.ops.aten."), ("_quantized.", "torch.ops._quantized.")):
            if name.startswith(short):
                return ast.parse(owner + name.removeprefix(short), mode="eval").body
        if name.startswith(("inductor_ops.", "torch.ops.inductor.")):
            raise DecompositionError(f"the graph calls {name}, which is not known outside of Inductor")
        return self.generic_visit(node)


def _bias_addmm(node: ast.Call) -> ast.Call:
    """One row of a bias that is repeated over all rows: cuBLASLt adds it for nothing (torch/_inductor/kernel/mm.py)."""
    bias = ast.unparse(node.args[0])
    node.args[0] = ast.parse(f"({bias})[0]", mode="eval").body
    node.func = ast.parse("torch.addmm", mode="eval").body
    return node

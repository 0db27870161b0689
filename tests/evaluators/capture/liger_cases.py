"""Forward functions of liger-kernel as programs: kernels and host code that this project was not written for.

Each case is (import line, call with inputs x0, x1, ..., input shapes; a shape may carry a dtype).
"""

from __future__ import annotations

from typing import NamedTuple

from db.records import TensorSpec

Shape = tuple[int, ...]


class LigerCase(NamedTuple):
    name: str
    module: str
    call: str
    inputs: tuple[TensorSpec, ...]

    @property
    def source(self) -> str:
        names = ", ".join(f"x{i}" for i in range(len(self.inputs)))
        return (
            f"import torch\nfrom liger_kernel.ops import {self.module} as ops\n\n\n"
            f"def kernel_function({names}):\n    return {self.call}\n"
        )


def _f32(*shape: int) -> TensorSpec:
    return TensorSpec(shape=shape, dtype="float32")


def _i64(*shape: int) -> TensorSpec:
    return TensorSpec(shape=shape, dtype="int64")


_ROWS = _f32(512, 1024)
_VECTOR = _f32(1024)

CASES = (
    LigerCase("rms_norm", "rms_norm", "ops.rms_norm_forward(x0, x1, 1e-6, 0.0, 'llama', None)[0]", (_ROWS, _VECTOR)),
    LigerCase("layer_norm", "layer_norm", "ops.layer_norm_forward(x0, x1, x2, 1e-6)[0]", (_ROWS, _VECTOR, _VECTOR)),
    LigerCase(
        "group_norm",
        "group_norm",
        "ops.group_norm_forward(x0, 32, 8, x1, x2, 1e-6)[0]",
        (_f32(4, 32, 256), _f32(32), _f32(32)),
    ),
    LigerCase(
        "fused_add_rms_norm",
        "fused_add_rms_norm",
        "ops.fused_add_rms_norm_forward(x0, x1, x2, 1e-6, 0.0, 'llama')[0]",
        (_ROWS, _ROWS, _VECTOR),
    ),
    LigerCase("swiglu", "swiglu", "ops.swiglu_forward(x0, x1)[-1]", (_ROWS, _ROWS)),
    LigerCase("geglu", "geglu", "ops.geglu_forward(x0, x1)[-1]", (_ROWS, _ROWS)),
    LigerCase("relu_squared", "relu_squared", "ops.relu_squared_forward(x0)", (_ROWS,)),
    LigerCase("softmax", "softmax", "ops._softmax_forward(x0)[0]", (_ROWS,)),
    LigerCase("sparsemax", "sparsemax", "ops._sparsemax_forward(x0, -1)[0]", (_ROWS,)),
    LigerCase("kl_div", "kl_div", "ops.kldiv_forward_triton(x0, x1, False, 'batchmean', 1e-10)", (_ROWS, _ROWS)),
    LigerCase("jsd", "jsd", "ops.jsd_forward(x0, x1, None, 0.5, -100, False)[0]", (_ROWS, _ROWS)),
    LigerCase(
        "tvd", "tvd", "ops.tv_distance_forward_triton(x0, x1, None, 'batchmean', -100, False)[0]", (_ROWS, _ROWS)
    ),
    LigerCase(
        "cross_entropy",
        "cross_entropy",
        "ops.cross_entropy_forward(x0, x1, None, -100, 0.0, 0.0, 'mean', None, False)[0]",
        (_ROWS, _i64(512)),
    ),
    LigerCase("dyt", "dyt", "ops.liger_dyt_fwd(x0, x1, x2, x3)", (_ROWS, _f32(1), _VECTOR, _VECTOR)),
    LigerCase("poly_norm", "poly_norm", "ops.poly_norm_forward(x0, x1, x2, 1e-6)[0]", (_ROWS, _f32(3), _f32(1))),
    LigerCase(
        "rope",
        "rope",
        "ops.rope_forward(x0, x1, x2, x3)[0]",
        (_f32(2, 8, 64, 128), _f32(2, 8, 64, 128), _f32(1, 64, 128), _f32(1, 64, 128)),
    ),
    LigerCase("multi_token_attention", "multi_token_attention", "ops._mask_inf_forward(x0)", (_f32(2, 4, 64, 64),)),
)

"""The techniques, by class, what pays most often on a GPU first. Importing this imports libcst."""

from __future__ import annotations

from typing import Any

from islands.operators.structural.alignment_hints import AlignmentHints
from islands.operators.structural.cache_modifier import CacheModifier
from islands.operators.structural.defer_reduction import DeferReduction
from islands.operators.structural.eviction_policy import EvictionPolicy
from islands.operators.structural.exp2 import Exp2
from islands.operators.structural.fast_division import FastDivision
from islands.operators.structural.fast_log import FastLog
from islands.operators.structural.fast_tanh import FastTanh
from islands.operators.structural.fuse_launches import FuseLaunches
from islands.operators.structural.host_constant import HostConstant
from islands.operators.structural.index_narrowing import IndexNarrowing
from islands.operators.structural.keep_for_walk import KeepForWalk
from islands.operators.structural.loop_flatten import LoopFlatten
from islands.operators.structural.loop_invariants import LoopInvariants
from islands.operators.structural.loop_pipeline import LoopPipeline
from islands.operators.structural.loop_unroll import LoopUnroll
from islands.operators.structural.mask_elision import MaskElision
from islands.operators.structural.max_registers import MaxRegisters
from islands.operators.structural.num_stages import NumStages
from islands.operators.structural.num_warps import NumWarps
from islands.operators.structural.one_pass import OnePass
from islands.operators.structural.online_softmax import OnlineSoftmax
from islands.operators.structural.persistent import Persistent
from islands.operators.structural.reciprocal import Reciprocal
from islands.operators.structural.resident_rows import ResidentRows
from islands.operators.structural.retune import Retune
from islands.operators.structural.reverse_order import ReverseOrder
from islands.operators.structural.rows_per_program import RowsPerProgram
from islands.operators.structural.single_exponential import SingleExponential
from islands.operators.structural.split_k import SplitK
from islands.operators.structural.split_reduction import SplitReduction
from islands.operators.structural.swizzle import Swizzle
from islands.operators.structural.technique import Technique
from islands.operators.structural.tensor_descriptors import TensorDescriptors
from islands.operators.structural.tile_row import TileRow
from islands.operators.structural.tile_size import TileSize
from islands.operators.structural.warp_specialize import WarpSpecialize
from islands.operators.structural.welford_by_count import WelfordByCount

TECHNIQUES: tuple[type[Technique[Any]], ...] = (
    Retune,
    NumWarps,
    TileSize,
    RowsPerProgram,
    OnePass,
    FuseLaunches,
    DeferReduction,
    OnlineSoftmax,
    WelfordByCount,
    SingleExponential,
    KeepForWalk,
    ResidentRows,
    EvictionPolicy,
    LoopPipeline,
    NumStages,
    Persistent,
    MaskElision,
    TileRow,
    SplitReduction,
    SplitK,
    TensorDescriptors,
    WarpSpecialize,
    LoopUnroll,
    HostConstant,
    Swizzle,
    ReverseOrder,
    CacheModifier,
    AlignmentHints,
    IndexNarrowing,
    Exp2,
    Reciprocal,
    FastDivision,
    FastTanh,
    FastLog,
    LoopFlatten,
    LoopInvariants,
    MaxRegisters,
)

"""Host-code policy: what it accepts, what it refuses and with which line; and what a dry run may have done."""

# ruff: noqa: E501  tables of edits read better unbroken

import pytest

from db.records import Capture, Gate, Launch, TorchOp
from evaluators.gates.static import check_capture, check_policy
from evaluators.hardware import load_hardware
from evaluators.problems import suite_names, suite_problem
from tests.support.programs import HEAD, MATMUL, SOFTMAX, TWO_WALKS, edited

FORWARD = "        y = torch.empty_like(x)\n"  # line 20 of SOFTMAX: what is put before it stands on that line
KERNEL_HEAD = "def softmax_kernel(x, y, n, BLOCK: tl.constexpr):\n"
LAUNCH = "        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096, num_warps=8)\n"


def at_line_20(line: str) -> str:
    return edited(SOFTMAX, (FORWARD, f"        {line}\n{FORWARD}"))


def at_kernel_line(line: str) -> str:
    """Put first in the kernel."""
    return edited(SOFTMAX, (KERNEL_HEAD, f"{KERNEL_HEAD}    {line}\n"))


def with_import(line: str) -> str:
    return edited(SOFTMAX, ("import triton\n", f"import triton\n{line}\n"))


ACCEPTED = {
    "softmax": SOFTMAX,
    "two walks": TWO_WALKS,
    "a grid that is a function": MATMUL,
    "views, shapes and copies": at_line_20("x = x.reshape(-1, x.shape[-1]).transpose(0, 1).contiguous().clone().to(torch.float32)"),
    "what the device has": at_line_20("n = torch.cuda.get_device_properties(x.device).multi_processor_count"),
    "by way of the driver": at_line_20("n = triton.runtime.driver.active.utils.get_device_properties(0)['multiprocessor_count']"),
    "numbers": with_import("from math import ceil").replace("BLOCK=4096", "BLOCK=int(2 ** ceil(12.0))"),
    "assertions and branches": at_line_20("assert x.is_cuda and x.dim() == 2, f'two dimensions, got {x.dim()}'"),
    "a parameter called input": edited(SOFTMAX, ("def forward(self, x):\n", "def forward(self, input):\n        x = input\n")),
    "layers that hold weights": edited(SOFTMAX, ("    def forward", "    def __init__(self):\n        super().__init__()\n        self.norm = nn.LayerNorm(64)\n        self.drop = nn.Dropout(0.1)\n\n    def forward"), ("return y", "return self.drop(y), self.norm.weight")),
    "buffers and private helpers": edited(SOFTMAX, ("    def forward", "    def __init__(self):\n        super().__init__()\n        self.register_buffer('scale', torch.ones(1))\n        self._block = 4096\n\n    def _rows(self, x):\n        return x.shape[0]\n\n    def forward"), ("(x.shape[0],)", "(self._rows(x),)")),
    "an autograd function": edited(SOFTMAX, ("class ModelNew", "class Apply(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.n = 1\n        ctx.save_for_backward(x)\n        return x\n\n    @staticmethod\n    def backward(ctx, g):\n        return torch.matmul(g, g)\n\n\nclass ModelNew"), ("return y", "return Apply.apply(y)")),
    "a decorator of its own": edited(SOFTMAX, ("import torch\n", "import functools\nimport torch\n"), ("class ModelNew", "def contiguous(fn):\n    @functools.wraps(fn)\n    def wrapped(self, x):\n        return fn(self, x.contiguous())\n\n    return wrapped\n\n\nclass ModelNew"), ("    def forward", "    @contiguous\n    def forward")),
    "imports that differ between versions": with_import("try:\n    from triton.language.extra.libdevice import rsqrt\nexcept ModuleNotFoundError:\n    from triton.language.extra.cuda.libdevice import rsqrt"),
    "a table that is only read": edited(SOFTMAX, ("class ModelNew", "WARPS = {4096: 8}\n\n\nclass ModelNew"), ("num_warps=8", "num_warps=WARPS[4096]")),
    "a local table": at_line_20("sizes = {}; sizes['n'] = x.shape[0]; sizes.update(m=1)"),
    "a reference nobody calls": SOFTMAX + "\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, 1)\n\n\ndef get_inputs():\n    return [torch.randn(8, 8)]\n",
    "heuristics": edited(SOFTMAX, ("@triton.jit\n", "@triton.heuristics({'EVEN': lambda a: a['n'] % a['BLOCK'] == 0})\n@triton.jit\n"), ("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, EVEN: tl.constexpr)")),
    "a thread asked by assembly": at_kernel_line('lane = tl.inline_asm_elementwise("mov.u32 $0, %laneid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1)'),
    "assembly with registers of its own": at_kernel_line('one = tl.inline_asm_elementwise("{ .reg .b32 %t, %u; mov.b32 %t, 1; mov.b32 $0, %t; }", "=r", [], dtype=tl.int32, is_pure=True, pack=1)'),
    "assembly under a name": edited(at_kernel_line('lane = tl.inline_asm_elementwise(LANE, "=r", [], dtype=tl.int32, is_pure=True, pack=1)'), ("@triton.jit\n", 'LANE: tl.constexpr = tl.constexpr("mov.u32 $0, %laneid;")\n\n\n@triton.jit\n')),
    "launches that wait for the one before": edited(at_kernel_line("tl.extra.cuda.gdc_wait()\n    tl.extra.cuda.gdc_launch_dependents()"), ("num_warps=8)", "num_warps=8, launch_pdl=True)")),
    "a constructor of old": edited(SOFTMAX, ("    def forward", "    def __init__(self):\n        nn.Module.__init__(self)\n        self.norm = nn.LayerNorm(64)\n        self.norm.weight.data = torch.ones(64)\n        self.half()\n\n    def forward")),
    "parts gone through": edited(SOFTMAX, ("    def forward", "    def __init__(self):\n        super().__init__()\n        self.norms = nn.ModuleList([nn.LayerNorm(64) for _ in range(3)])\n\n    def forward"), ("        return y", "        for norm in self.norms:\n            weight = norm.weight.float().to(x.dtype)\n        return y.half()")),
    "an unused kernel with configurations": edited(SOFTMAX, ("class ModelNew", "@triton.autotune([triton.Config({'B': 64})], key=['n'])\n@triton.jit\ndef unused_kernel(x_ptr, n, B: tl.constexpr):\n    pass\n\n\nclass ModelNew")),
    "another name for a module": edited(SOFTMAX, ("import torch\n", "import torch as th\nimport torch\n"), ("torch.empty_like", "th.empty_like")),
}  # fmt: skip

REFUSED = {
    "a product": (at_line_20("x = torch.matmul(x, x)"), "line 20: torch.matmul"),
    "an operator": (at_line_20("x = x @ x"), "line 20: a product with @"),
    "a method": (at_line_20("x = x.softmax(-1)"), "line 20: .softmax()"),
    "functional": (at_line_20("x = nn.functional.softmax(x, -1)"), "line 20: torch.nn.functional.softmax"),
    "functional by its short name": (edited(at_line_20("x = F.softmax(x, -1)"), ("import torch.nn as nn\n", "import torch.nn as nn\nimport torch.nn.functional as F\n")), "line 21: torch.nn.functional.softmax"),
    "an operation by import": (with_import("from torch import softmax"), "line 4: torch.softmax"),
    "an operation by another name": (edited(at_line_20("x = th.softmax(x, -1)"), ("import torch\n", "import torch\nimport torch as th\n")), "line 21: torch.softmax"),
    "a module passed around": (at_line_20("t = torch; x = t.softmax(x, -1)"), "line 20: the module torch is passed around"),
    "a layer that computes": (edited(SOFTMAX, ("    def forward", "    def __init__(self):\n        super().__init__()\n        self.linear = nn.Linear(8, 8)\n\n    def forward"), ("return y", "return self.linear(y)")), "self.linear is torch.nn.Linear"),
    "a second way": (at_line_20("try:\n            pass\n        except RuntimeError:\n            return x"), "line 20: try"),
    "getattr": (at_line_20("x = getattr(torch, 'soft' + 'max')(x, -1)"), "line 20: getattr"),
    "the class of a tensor": (at_line_20("is_real = type(x) is torch.Tensor"), "line 20: type"),
    "eval": (at_line_20("eval('1')"), "line 20: eval"),
    "open": (at_line_20("open('/tmp/a')"), "line 20: open"),
    "globals": (at_line_20("globals()['y'] = 1"), "line 20: globals"),
    "import os": (with_import("import os"), "line 4: import of os"),
    "import inside": (at_line_20("import sys"), "line 20: import of sys"),
    "from gc": (with_import("from gc import get_objects"), "line 4: import of gc"),
    "a hidden module": (at_line_20("tl.core.builtins.print(1)"), "line 20: .builtins"),
    "private parts": (at_line_20("torch._C._cuda_init()"), "line 20: ._"),
    "dunder": (at_line_20("self.forward.__globals__"), "line 20: .__globals__"),
    "global": (at_line_20("global CACHE"), "line 20: global CACHE"),
    "a cache in the module": (edited(at_line_20("CACHE[x.shape] = x"), ("class ModelNew", "CACHE = {}\n\n\nclass ModelNew")), "line 23: writes to CACHE[x.shape]"),
    "a cache by method": (edited(at_line_20("CACHE.setdefault(1, x)"), ("class ModelNew", "CACHE = {}\n\n\nclass ModelNew")), "line 23: CACHE.setdefault()"),
    "a cache in the model": (at_line_20("self.last = x"), "line 20: writes to self.last"),
    "a cache in a default": (edited(SOFTMAX, ("forward(self, x)", "forward(self, x, seen={})")), "line 19: a default"),
    "a cache on a function": (edited(SOFTMAX, ("        return y", "        softmax_kernel.last = y\n        return y")), "writes to softmax_kernel.last"),
    "lru_cache": (edited(SOFTMAX, ("import torch\n", "import functools\nimport torch\n"), ("    def forward", "    @functools.lru_cache\n    def forward")), ".lru_cache"),
    "patching torch": (edited(SOFTMAX, ("class ModelNew", "torch.softmax = None\n\n\nclass ModelNew")), "writes to torch.softmax"),
    "identity of objects": (at_line_20("key = id(x)"), "line 20: id"),
    "identity of memory": (at_line_20("key = x.data_ptr()"), "line 20: .data_ptr"),
    "an autotuner": (edited(SOFTMAX, ("@triton.jit\n", "@triton.autotune([triton.Config({})], key=['n'])\n@triton.jit\n")), "line 7: @triton.autotune"),
    "inheritance": (edited(SOFTMAX, ("ModelNew(nn.Module)", "ModelNew(Model)")), "must derive from torch.nn.Module alone"),
    "no entry": (edited(SOFTMAX, ("ModelNew", "Other")), "defines no ModelNew"),
    "no forward": (edited(SOFTMAX, ("def forward", "def run")), "defines no forward"),
    "no kernel": (HEAD + "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x\n", "reaches no @triton.jit kernel"),
    "a kernel nobody reaches": (edited(SOFTMAX, (LAUNCH, "")), "reaches no @triton.jit kernel"),
    "no Python": ("def kernel(:\n", "line 1: the source does not parse"),
    "compute in a helper": (edited(SOFTMAX, ("class ModelNew", "def helper(x):\n    return torch.exp(x)\n\n\nclass ModelNew"), ("return y", "return helper(y)")), "line 19: torch.exp"),
    "the reference called": (SOFTMAX.replace("return y", "return Model()(x)") + "\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, 1)\n", "torch.softmax"),
    "a stream": (at_line_20("s = torch.cuda.Stream()"), "line 20: torch.cuda.Stream"),
    "what an unused class does at import": (edited(SOFTMAX, ("class ModelNew", "class Unused:\n    import os\n\n\nclass ModelNew")), "line 19: import of os"),
    "what an unused class calls at import": (edited(SOFTMAX, ("class ModelNew", "class Unused:\n    def run():\n        import os\n\n    run()\n\n\nclass ModelNew")), "line 20: import of os"),
    "what a decorator calls at import": (edited(SOFTMAX, ("class ModelNew", "def run(f):\n    return f()\n\n\n@run\ndef unused():\n    import os\n\n\nclass ModelNew")), "line 24: import of os"),
    "what an enumeration calls at import": (edited(with_import("import enum"), ("class ModelNew", "class Unused(enum.Enum):\n    def _generate_next_value_(name, start, count, last):\n        import os\n\n    A = enum.auto()\n\n\nclass ModelNew")), "line 21: import of os"),
    "an unused default": (edited(SOFTMAX, ("class ModelNew", "def unused(x=eval('1')):\n    pass\n\n\nclass ModelNew")), "line 18: eval"),
    "an unused annotation": (edited(SOFTMAX, ("class ModelNew", "def unused() -> eval('1'):\n    pass\n\n\nclass ModelNew")), "line 18: the annotation"),
    "two meanings of a name": (SOFTMAX + "\n\ndef never():\n    import math as torch\n", "torch is imported twice"),
    "a class in the place of a module": (edited(SOFTMAX, ("class ModelNew", "if True:\n    class torch:\n        pass\n\n\nclass ModelNew")), "line 19: torch is imported, and bound again"),
    "two entry points": (SOFTMAX + "\n\nclass Other(nn.Module):\n    pass\n\n\nModelNew = Other\n", "ModelNew is bound more than once"),
    "a second base": (edited(SOFTMAX, ("ModelNew(nn.Module)", "ModelNew(nn.Module, Other)")), "must derive from torch.nn.Module alone"),
    "a module of its own called so": (edited(SOFTMAX, ("ModelNew(nn.Module)", "ModelNew(Module)")), "must derive from torch.nn.Module alone"),
    "a tensor called cls": (at_line_20("cls = x; n = cls.data_ptr()"), "line 20: .data_ptr"),
    "a backward called by cls": (edited(at_line_20("cls = Apply; y = cls.backward(None, x)"), ("class ModelNew", "class Apply(torch.autograd.Function):\n    @staticmethod\n    def backward(ctx, g):\n        return g\n\n\nclass ModelNew")), ".backward"),
    "a kernel called cls": (at_line_20("cls = softmax_kernel; cls._unsafe_update_src('')"), "line 20: ._unsafe_update_src"),
    "a weight's private parts": (edited(at_line_20("n = self.w._version"), ("    def forward", "    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.ones(1))\n\n    def forward")), "._version"),
    "a self that is bound again": (edited(at_line_20("self = x; n = self._version"), ("    def forward", "    def __init__(self):\n        super().__init__()\n        self._version = 1\n\n    def forward")), "._version"),
    "a constructor that patches": (edited(SOFTMAX, ("    def forward", "    def __init__(self):\n        super().__init__()\n        self.tensor = torch.Tensor\n        self.tensor.softmax = None\n\n    def forward")), "line 22: writes to self.tensor.softmax"),
    "a constructor that patches self": (edited(SOFTMAX, ("    def forward", "    def __init__(self):\n        self = torch.Tensor\n        self.softmax = None\n\n    def forward")), "line 21: writes to self.softmax"),
    "a constructor called on a class": (edited(SOFTMAX, ("    def forward", "    def __init__(self):\n        super().__init__()\n        Other.__init__(torch.Tensor)\n\n    def forward")), "line 21: .__init__"),
    "a list doubled": (at_line_20("kept = self.kept; kept *= 2"), "line 20: may change kept in place"),
    "a list extended by a shape": (at_line_20("kept = self.kept; kept += x.shape"), "line 20: may change kept in place"),
    "a table merged": (at_line_20("kept = self.kept; kept |= make(x)"), "line 20: may change kept in place"),
    "an element doubled": (at_line_20("kept = [self.kept]; kept[0] *= 2"), "line 20: may change kept[0] in place"),
    "Python's list bound again": (edited(at_line_20("kept = list(self.kept); kept.append(1)"), ("class ModelNew", "def list(x):\n    return x\n\n\nclass ModelNew")), "kept.append()"),
    "a flag of training": (at_line_20("self.train(not self.training)"), "line 20: self.train()"),
    "a flag of gradients": (at_line_20("self.w.requires_grad_(not self.w.requires_grad)"), "line 20: self.w.requires_grad_()"),
    "weights halved": (at_line_20("self.half()"), "line 20: self.half()"),
    "weights turned": (at_line_20("self.w.t_()"), "line 20: self.w.t_()"),
    "parts halved": (at_line_20("any(part.half() for part in self.children())"), "line 20: part.half()"),
    "a function for all parts": (at_line_20("self.apply(print)"), "line 20: self.apply()"),
    "overlapping launches": (edited(SOFTMAX, ("num_warps=8)", "num_warps=8, launch_pdl=True)")), "line 21: launch_pdl lets launches overlap"),
    "overlap by a table": (edited(SOFTMAX, ("num_warps=8)", "num_warps=8, **{'launch_pdl': True})")), "line 21: launch_pdl is given as a text"),
    "a wait that comes late": (edited(at_kernel_line("pass\n    tl.extra.cuda.gdc_wait()"), ("num_warps=8)", "num_warps=8, launch_pdl=True)")), "launch_pdl lets launches overlap"),
    "the number of the launch": (at_kernel_line('n = tl.inline_asm_elementwise("mov.u64 $0, %gridid;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)'), "the assembly reads %gridid"),
    "a clock by LLVM's choices": (at_kernel_line('n = tl.inline_asm_elementwise("mov.u32 $0, $(%$)clock;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)'), "says more than what it computes"),
    "a clock declared": (at_kernel_line('n = tl.inline_asm_elementwise(".reg .b32 %clock; mov.u32 $0, %clock;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)'), "the assembly reads %clock"),
    "assembly that is computed": (at_kernel_line('n = tl.inline_asm_elementwise("mov" + ".u32 $0, 1;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)'), "assembly has to be written out"),
    "assembly by a parameter": (at_kernel_line('n = tl.inline_asm_elementwise(BLOCK, "=r", [], dtype=tl.int32, is_pure=False, pack=1)'), "assembly has to be written out"),
    "assembly passed around": (at_kernel_line("f = tl.inline_asm_elementwise"), "inline_asm_elementwise is passed around"),
    "assembly in host code": (at_line_20("f = tl.inline_asm_elementwise"), "line 20: .inline_asm_elementwise"),
    "functions of any library": (at_kernel_line("n = tl.core.extern_elementwise('', '', [], {}, is_pure=False)"), ".extern_elementwise is not for kernels"),
    "how far a stream is": (at_line_20("done = torch.cuda.current_stream().query()"), "line 20: .query()"),
    "a compiled reference": (at_line_20("f = torch.compile(self)"), "line 20: .compile"),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_host_code_is_accepted(name: str) -> None:
    result = check_policy(ACCEPTED[name], "ModelNew")
    assert result.passed, result.reason
    assert result.gate is Gate.STATIC


@pytest.mark.parametrize("name", suite_names())
def test_seeds_of_the_suite_are_accepted(name: str) -> None:
    problem = suite_problem(name)
    for seed in problem.seeds:
        result = check_policy(seed, problem.entry_point)
        assert result.passed, result.reason


@pytest.mark.parametrize("name", REFUSED)
def test_host_code_is_refused_with_its_line(name: str) -> None:
    source, fragment = REFUSED[name]
    result = check_policy(source, "ModelNew")
    assert not result.passed
    assert fragment in result.reason


def test_operations_that_the_baseline_calls_are_free() -> None:
    source = at_line_20("x = torch.matmul(x, x) @ x")
    assert not check_policy(source, "ModelNew").passed
    assert check_policy(source, "ModelNew", ["aten.mm"]).passed
    assert not check_policy(source, "ModelNew", ["aten.convolution"]).passed


def test_an_operation_that_has_no_public_name_is_free_where_the_baseline_calls_it() -> None:
    flash = "_scaled_dot_product_flash_attention"
    source = at_line_20(f"a = torch.ops.aten.{flash}.default(x, x, x, scale=0.125)")
    assert check_policy(source, "ModelNew", [f"aten.{flash}"]).passed
    assert "line 20" in check_policy(source, "ModelNew", ["aten._scaled_dot_product_efficient_attention"]).reason
    assert "line 20" in check_policy(source.replace("ops.aten", "ops.other"), "ModelNew", [f"aten.{flash}"]).reason


def test_a_product_with_a_bias_of_one_row_is_an_addmm() -> None:
    source = at_line_20("x = torch.addmm(x[0], x, x)")
    assert check_policy(source, "ModelNew", ["aten.bias_addmm"]).passed
    assert not check_policy(source, "ModelNew", ["aten.mm"]).passed


def test_a_function_is_an_entry_point_as_well() -> None:
    source = (
        SOFTMAX
        + "\n\ndef kernel_function(x):\n    y = torch.empty_like(x)\n    softmax_kernel[(8,)](x, y, 8, BLOCK=8)\n    return y\n"
    )
    assert check_policy(source, "kernel_function").passed


LAUNCHED = Launch(kernel="k", grid=(8, 1, 1), num_warps=4, shared_bytes=0, text_hash="0", binding_hash="0")


def dry_run(*operations: str, launches: tuple[Launch, ...] = (LAUNCHED,)) -> Capture:
    operations_seen = tuple(TorchOp(name=name, moved_bytes=4) for name in operations)
    return Capture(workload="full", target="h100", triton_version="3", launches=launches, torch_ops=operations_seen)


@pytest.mark.parametrize(
    ("capture", "fragment"),
    [
        (dry_run("aten.mm.default"), "aten.mm.default"),
        (dry_run("aten.sum.dim_IntList", "aten.zeros.default"), "aten.sum.dim_IntList"),
        (dry_run("aten._local_scalar_dense.default"), "reads a value"),
        (dry_run(launches=()), "launches no kernel"),
        (dry_run(launches=(LAUNCHED.model_copy(update={"shared_bytes": 300_000}),)), "300000 bytes of shared memory"),
        (dry_run(launches=(LAUNCHED.model_copy(update={"grid": (1, 70_000, 1)}),)), "70000"),
        (dry_run(launches=(LAUNCHED.model_copy(update={"num_warps": 64}),)), "64 warps"),
    ],
)
def test_a_dry_run_is_refused(capture: Capture, fragment: str) -> None:
    result = check_capture(capture)
    assert not result.passed
    assert fragment in result.reason


def test_a_dry_run_may_move_memory_and_call_what_the_baseline_calls() -> None:
    assert check_capture(dry_run("aten.zeros.default", "aten.clone.default", "aten._to_copy.default")).passed
    assert check_capture(dry_run("aten.mm.default"), ["aten.mm"]).passed
    assert check_capture(dry_run("aten.addmm.default"), {"aten.addmm"}).passed


def test_shared_memory_is_that_of_the_device() -> None:
    large = dry_run(launches=(LAUNCHED.model_copy(update={"shared_bytes": 150_000}),))
    assert check_capture(large).passed
    assert not check_capture(large, hardware=load_hardware("l40s")).passed

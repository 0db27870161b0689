"""torch._dynamo comes when somebody compiles: each in a process of its own, because this one may have it already."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import sys
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from evaluators.late_dynamo import delay_dynamo, import_dynamo, is_delayed

class Names(TorchDispatchMode):
    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        names.append(str(operation))
        return operation(*args, **(kwargs or {}))

def forward():
    with FakeTensorMode(), Names():
        return (torch.empty(4, 2) * 2).sum(0).shape

names = []
delay_dynamo()
assert forward() == (2,), forward()
assert names == ["aten.empty.memory_format", "aten.mul.Tensor", "aten.sum.dim_IntList"], names
assert is_delayed() and "torch._inductor" not in sys.modules
torch._dynamo.config.cache_size_limit = 77
"""

END = """
assert not is_delayed()
package = sys.modules["torch._dynamo"]
assert torch._dynamo is package and package.config is sys.modules["torch._dynamo.config"]
assert package.config.cache_size_limit == 77
assert forward() == (2,)
delay_dynamo()
assert sys.modules["torch._dynamo"] is package
"""

WAKING = {
    "a module": """
import torch._dynamo.source as source
import torch._dynamo.guards as guards
assert guards.LocalSource is source.LocalSource and source.__spec__.origin.endswith("source.py")
""",
    "a compilation": """
@torch._dynamo.disable
def left_alone(x):
    return x + torch.compiler.is_compiling()

assert left_alone(1) == 1 and is_delayed()
compiled = torch.compile(lambda x: left_alone(2 * x), backend="eager")
assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
""",
}


@pytest.mark.parametrize("waking", WAKING)
def test_it_waits_while_tensors_are_fake_and_is_whole_when_it_is_needed(waking: str) -> None:
    command = [sys.executable, "-c", BEGIN + WAKING[waking] + END]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

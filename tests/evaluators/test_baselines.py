"""What of baselines needs no GPU: reading generated code, the folder that outlives a run, how many calls are timed."""

from pathlib import Path

import pytest

from evaluators.baseline_session import operations_in
from evaluators.baselines import cache_folder, n_calls_for

GENERATED = """
from torch._inductor.select_algorithm import extern_kernels
aten = torch.ops.aten
#   %mul : Tensor = call_function[target=torch.ops.aten.mul.Tensor](args = (%addmm, 2), kwargs = {})
reinterpret_tensor = torch.ops.inductor._reinterpret_tensor
def call(args):
    buf0 = empty_strided_cuda((512, 1024), (1024, 1), torch.float32)
    extern_kernels.addmm(arg1, arg2, reinterpret_tensor(arg0, (1024, 1024), (1, 1024), 0), alpha=1, beta=1, out=buf0)
    triton_per_fused_native_layer_norm_0.run(buf0, buf4, 512, 1024, stream=stream0)
    buf5 = torch.ops.aten._scaled_dot_product_flash_attention.default(buf1, buf2, buf3, scale=0.125)
    buf6 = extern_kernels.convolution(buf5, arg3, stride=(1, 1))
    # extern_kernels.bmm(never, run)
"""


def test_library_operations_are_read_from_generated_code() -> None:
    assert operations_in(GENERATED) == [
        "aten._scaled_dot_product_flash_attention",
        "aten.addmm",
        "aten.convolution",
    ]


def test_code_without_libraries_calls_none() -> None:
    assert operations_in("buf0 = empty_strided_cuda((4,), (1,), torch.float32)\ntriton_0.run(buf0)") == []


def test_what_outlives_a_run_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "triton-evolve"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "triton-evolve"


@pytest.mark.parametrize(("device_us", "n_calls"), [(0.5, 60), (100.0, 30), (10_000.0, 4)])
def test_about_three_milliseconds_of_calls(device_us: float, n_calls: int) -> None:
    assert n_calls_for(device_us) == n_calls

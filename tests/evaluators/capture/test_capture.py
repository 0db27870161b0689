"""What a dry run records, on a machine without a GPU."""

import pytest

from db.records import TensorSpec
from evaluators.capture.capture import CaptureFailed
from evaluators.hardware import load_hardware
from evaluators.sandbox import Zygote
from tests.support.programs import HEAD, MATMUL, SOFTMAX, capture, edited, tensor

ROWS = tensor(512, 4096)

SCALE = (
    HEAD
    + """\
@triton.jit
def scale_kernel(x, y, scale, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) * scale, mask=offsets < n)


def launch(x, y, scale):
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, scale, x.numel(), BLOCK=1024)
    return y


"""
)


def test_a_launch_is_recorded_as_it_was_asked_for(compiling: Zygote) -> None:
    captured = capture(compiling, SOFTMAX, ROWS)
    (launch,) = captured.launches
    assert (launch.kernel, launch.grid, launch.num_warps) == ("softmax_kernel", (512, 1, 1), 8)
    assert launch.constexprs == {"BLOCK": 4096}
    assert 8 <= launch.n_registers <= 255
    assert launch.spill_bytes == 0
    assert launch.load_vector_bytes == 16
    assert 0 < launch.occupancy <= 1
    assert captured.torch_ops == ()
    assert captured.outputs == ("t1+0:float32(512, 4096)(4096, 1)",)
    assert launch.tensors == ("x0+0:float32(512, 4096)(4096, 1)", *captured.outputs)


def test_a_grid_of_a_function_and_asynchronous_loads(compiling: Zygote) -> None:
    halves = tensor(1024, 512, dtype="float16"), tensor(512, 256, dtype="float16")
    (launch,) = capture(compiling, MATMUL, *halves).launches
    assert launch.grid == (8, 2, 1)
    assert launch.shared_bytes >= 2 * (128 * 64 + 64 * 128) * 2
    assert launch.has_async_copies
    assert launch.num_stages == 3


def test_launches_may_overlap_only_where_the_kernel_waits_first(compiling: Zygote) -> None:
    overlapping = edited(SOFTMAX, ("num_warps=8", "num_warps=8, **{'launch_' + 'pdl': True}"))
    with pytest.raises(CaptureFailed, match="launch_pdl lets launches of softmax_kernel overlap"):
        capture(compiling, overlapping, ROWS)
    waiting = edited(overlapping, ("    row =", "    tl.extra.cuda.gdc_wait()\n    row ="))
    assert len(capture(compiling, waiting, ROWS).launches) == 1


def test_registers_that_do_not_fit_show_as_spills(compiling: Zygote) -> None:
    wide = edited(SOFTMAX, ("BLOCK=4096, num_warps=8", "BLOCK=65536, num_warps=16"))
    (launch,) = capture(compiling, wide, tensor(512, 65536)).launches
    assert launch.spill_bytes > 100


def test_code_is_for_the_target(compiling: Zygote) -> None:
    old, new = (capture(compiling, SOFTMAX, ROWS, hardware=load_hardware(t)) for t in ("a100", "h100"))
    assert old.target == "a100"
    assert old.launches[0].text_hash != new.launches[0].text_hash
    assert old.fingerprint != new.fingerprint


def test_torch_operations_are_recorded_with_their_bytes_and_views_are_not(compiling: Zygote) -> None:
    source = SCALE + (
        "def kernel_function(x):\n"
        "    total = torch.sum(x.view(-1, 8)[:, :4].t(), dim=0)\n"
        "    return launch(x, torch.zeros_like(x), 2.0), total\n"
    )
    operations = capture(compiling, source, tensor(64, 8), entry_point="kernel_function").torch_ops
    assert [(op.name, op.moved_bytes) for op in operations] == [
        ("aten.sum.dim_IntList", 4 * (64 * 4 + 64)),
        ("aten.zeros_like.default", 4 * 64 * 8),
    ]


def test_a_value_read_by_the_host_is_one_unless_the_host_made_it(compiling: Zygote) -> None:
    source = SCALE + (
        "def kernel_function(x):\n"
        "    three = int(torch.prod(torch.tensor([1, 3])))\n"
        "    return launch(x[: 2 + three], torch.empty_like(x), x[0].item())\n"
    )
    captured = capture(compiling, source, tensor(4096), entry_point="kernel_function")
    assert captured.launches[0].grid == (1, 1, 1)
    assert [op.name for op in captured.torch_ops] == ["aten._local_scalar_dense.default"]


def test_host_code_sees_the_target_and_tensors_on_it(compiling: Zygote) -> None:
    source = SCALE + (
        "def kernel_function(x, w):\n"
        "    assert x.is_cuda and x.device == torch.device('cuda', 0) and x.device.type == 'cuda'\n"
        "    assert x.device == w.device and x.get_device() == 0 and torch.cuda.is_available()\n"
        "    assert torch.cuda.get_device_capability(x.device) == (9, 0)\n"
        "    driver = triton.runtime.driver.active\n"
        "    assert driver.utils.get_device_properties(driver.get_current_device())['multiprocessor_count'] == 132\n"
        "    n_sms = torch.cuda.get_device_properties(x.device).multi_processor_count\n"
        "    with torch.cuda.device(x.device):\n"
        "        y = torch.empty((n_sms, 1024), device=x.device, dtype=x.dtype)\n"
        "        return launch(w.cuda(), y, 2.0).to('cuda').contiguous()\n"
    )
    captured = capture(compiling, source, tensor(64), tensor(132 * 1024), entry_point="kernel_function")
    assert captured.launches[0].grid == (132, 1, 1)
    assert captured.torch_ops == ()


def test_weights_come_in_and_module_conversions_work(compiling: Zygote) -> None:
    source = SCALE + (
        "class ModelNew(nn.Module):\n"
        "    def __init__(self, features):\n"
        "        super().__init__()\n"
        "        self.inner = nn.Linear(features, features)\n"
        "        self.inner.half()\n"
        "    def forward(self, x):\n"
        "        assert self.inner.weight.dtype is torch.float16\n"
        "        return launch(self.inner.weight, torch.empty_like(x), 2.0)\n"
    )
    weights = {"inner.weight": tensor(64, 64), "inner.bias": tensor(64)}
    captured = capture(compiling, source, tensor(64, 64), init_args=[64], weights=weights)
    assert captured.launches[0].grid == (4, 1, 1)


def test_an_autotuner_takes_its_first_configuration_and_heuristics_run(compiling: Zygote) -> None:
    source = edited(
        SOFTMAX,
        (
            "@triton.jit",
            "@triton.autotune([triton.Config({}, num_warps=2), triton.Config({}, num_warps=4)], key=['n'])\n"
            "@triton.heuristics({'BLOCK': lambda args: triton.next_power_of_2(args['n'])})\n@triton.jit",
        ),
        (", BLOCK=4096, num_warps=8", ""),
    )
    (launch,) = capture(compiling, source, ROWS).launches
    assert (launch.num_warps, launch.constexprs) == (2, {"BLOCK": 4096})


@pytest.mark.parametrize(
    ("edit", "fragments"),
    [
        (("tl.max(", "tl.maxx("), ["softmax_kernel", "line 13", "tl.maxx(value, 0)", "no attribute 'maxx'"]),
        (("BLOCK=4096", "BLOCK=1000"), ["softmax_kernel", "line 10", "power of 2"]),
        (("num_warps=8", "num_wraps=8"), ["softmax_kernel", "num_wraps"]),
        (("num_warps=8", "num_warps=7"), ["softmax_kernel", "num_warps must be a power of 2"]),
        (("empty_like(x)", "empty_like(q)"), ["line 20", "empty_like(q)", "name 'q' is not defined"]),
        (("(x.shape[0],)", "x.shape[0]"), ["grid of kernel softmax_kernel", "tuple", "512"]),
        (("class ModelNew", "class Model"), ["ModelNew"]),
    ],
)
def test_a_failure_names_what_is_wrong(compiling: Zygote, edit: tuple[str, str], fragments: list[str]) -> None:
    with pytest.raises(CaptureFailed) as failed:
        capture(compiling, edited(SOFTMAX, edit), ROWS)
    assert not failed.value.is_unsupported
    for fragment in fragments:
        assert fragment in failed.value.reason


def test_shapes_that_depend_on_data_are_unsupported_and_not_wrong(compiling: Zygote) -> None:
    source = (
        SCALE + "def kernel_function(x):\n    kept = x[x > 0]\n    return launch(kept, torch.empty_like(kept), 2.0)\n"
    )
    with pytest.raises(CaptureFailed) as failed:
        capture(compiling, source, tensor(64), entry_point="kernel_function")
    assert failed.value.is_unsupported


def test_a_child_that_ends_or_hangs_is_a_failed_capture(compiling: Zygote) -> None:
    for body, fragment in (("import os\nos._exit(0)", "exit"), ("while True:\n    pass", "more than 1 s")):
        with pytest.raises(CaptureFailed, match=fragment):
            from evaluators.capture.capture import capture_candidate

            capture_candidate(
                compiling,
                source=body,
                entry_point="ModelNew",
                init_args=[],
                input_specs=[TensorSpec(shape=(4,), dtype="float32"), 3, None],
                weight_specs={},
                workload_name="full",
                hardware=load_hardware("h100"),
                deadline_s=1,
            )

"""Places in shared memory; the memory itself is tested on a GPU."""

import torch

from evaluators.device_memory import ALIGNMENT, lay_out


def test_places_do_not_overlap_and_are_aligned():
    values = [torch.zeros(3, 5), 7, torch.zeros(2, dtype=torch.int8), None, torch.zeros(4, 4, dtype=torch.float16)]
    places, end = lay_out(values, start=1024)
    assert [p.get("value", "tensor") for p in places] == ["tensor", 7, "tensor", None, "tensor"]
    tensors = [p for p in places if "offset" in p]
    assert [p["offset"] for p in tensors] == [1024, 1024 + ALIGNMENT, 1024 + 2 * ALIGNMENT]
    assert end == 1024 + 3 * ALIGNMENT


def test_dense_strides_are_kept_and_others_made_contiguous():
    transposed = torch.zeros(3, 5).t()
    expanded = torch.zeros(1, 4).expand(3, 4)
    sliced = torch.zeros(4, 8)[:, ::2]
    channels_last = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    places, _ = lay_out([transposed, expanded, sliced, channels_last])
    assert places[0]["strides"] == [1, 5]
    assert places[1]["strides"] == [4, 1] and places[1]["extent"] == 12
    assert places[2]["strides"] == [4, 1]
    assert places[3]["strides"] == list(channels_last.stride())


def test_scalars_and_empty_tensors_have_a_place():
    places, _ = lay_out([torch.tensor(1.0), torch.empty(0, 3)])
    assert places[0]["shape"] == [] and places[0]["extent"] == 1
    assert places[1]["extent"] == 0

"""Places in shared memory, and what lies between them; device memory itself is tested on a GPU."""

import torch

from evaluators.device_memory import ALIGNMENT, Canary, Region, gaps_between, lay_out, moved


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


def test_what_lies_behind_an_aligned_address_does_so_in_shared_memory() -> None:
    unaligned = torch.empty(7).as_strided((6,), (1,), 1)
    places, end = lay_out([torch.zeros(2), unaligned])
    assert places[1]["offset"] == ALIGNMENT + 4 and end == 2 * ALIGNMENT


def test_places_move_as_a_whole_and_values_stay() -> None:
    places, _ = lay_out([torch.zeros(2), 3, torch.zeros(2)])
    assert [p.get("offset", p.get("value")) for p in moved(places, 1024)] == [1024, 3, 1024 + ALIGNMENT]


def test_gaps_are_what_no_tensor_takes() -> None:
    places, end = lay_out([torch.zeros(3), 5, torch.zeros(2, dtype=torch.int8)])
    assert gaps_between(places, end + 100) == [(12, ALIGNMENT), (ALIGNMENT + 2, end + 100)]
    overlapping = [*places, *lay_out([torch.zeros(200)])[0]]
    assert gaps_between(overlapping, 1024) == [(800, 1024)]
    assert gaps_between([], 8) == [(0, 8)] and gaps_between(lay_out([torch.zeros(2)])[0], 8) == []


def test_a_byte_between_tensors_and_one_behind_the_last_are_missed_by_nobody() -> None:
    places, end = lay_out([torch.zeros(3), torch.zeros(5)])
    for at in (12, ALIGNMENT - 1, ALIGNMENT + 20, end + 63):
        region = Region(torch.zeros(end + 64, dtype=torch.uint8))
        canary = Canary(region, places)
        canary.set()
        assert region.tensor(places[1]).isnan().all()
        for place in places:
            region.tensor(place).fill_(1.0)
        assert canary.is_whole()
        region.bytes[at] = 0
        assert not canary.is_whole(), at

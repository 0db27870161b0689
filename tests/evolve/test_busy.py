import pytest

from evolve.busy import BusyClock


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_counts_from_the_end_of_the_first_call() -> None:
    clock = Clock()
    busy = BusyClock(clock)
    busy.enter()
    clock.now = 30.0  # warming up
    busy.leave()
    assert busy.share() == 0.0
    clock.now = 31.0
    busy.enter()
    clock.now = 34.0
    busy.leave()
    assert busy.share() == pytest.approx(3 / 4)


def test_calls_that_overlap_count_once() -> None:
    clock = Clock()
    busy = BusyClock(clock)
    busy.enter()
    busy.leave()
    busy.enter()
    clock.now = 1.0
    busy.enter()
    clock.now = 2.0
    busy.leave()
    clock.now = 3.0
    busy.leave()
    clock.now = 6.0
    assert busy.share() == pytest.approx(0.5)


def test_a_call_in_progress_counts() -> None:
    clock = Clock()
    busy = BusyClock(clock)
    busy.enter()
    busy.leave()
    busy.enter()
    clock.now = 2.0
    assert busy.share() == pytest.approx(1.0)


def test_what_goes_on_after_the_last_call_began_does_not_count() -> None:
    clock = Clock()
    busy = BusyClock(clock)
    busy.enter()
    busy.leave()
    clock.now = 1.0
    busy.enter()
    clock.now = 4.0
    assert busy.share(2.0) == pytest.approx(0.5)
    busy.leave()
    clock.now = 9.0
    assert busy.share(2.0) == pytest.approx(0.5)
    assert busy.share() == pytest.approx(1 / 3)

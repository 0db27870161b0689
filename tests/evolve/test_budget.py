from evolve.budget import Budget


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_grants_exactly_the_evaluations() -> None:
    budget = Budget(10)
    assert [budget.take(4) for _ in range(4)] == [4, 4, 2, 0]
    assert budget.stop_reason == "evaluations"


def test_what_is_held_and_not_used_is_granted_again() -> None:
    budget = Budget(4)
    assert budget.hold(4) == 4
    assert budget.take(1) == 0 and budget.hold(1) == 0  # for now
    assert not budget.is_over() and budget.stop_reason == ""
    budget.use(1, held=4)
    assert budget.take(8) == 3
    assert budget.hold(1) == 0
    assert budget.stop_reason == "evaluations"


def test_time_ends_a_run() -> None:
    clock = Clock()
    budget = Budget(10, 60.0, clock=clock)
    assert budget.take(1) == 1
    clock.now += 61
    assert budget.take(1) == 0
    assert budget.stop_reason == "time"
    assert budget.time_left_s == 0.0


def test_a_resumed_run_has_what_is_left() -> None:
    clock = Clock()
    budget = Budget(10, 60.0, clock=clock)
    budget.resume(n_spent=7, elapsed_s=50.0)
    assert budget.evaluations_left == 3
    assert budget.time_left_s == 10.0
    assert budget.take(8) == 3


def test_the_first_reason_stays() -> None:
    budget = Budget(10)
    budget.stop("interrupted")
    budget.stop("stagnation")
    assert budget.take(1) == 0
    assert budget.stop_reason == "interrupted"

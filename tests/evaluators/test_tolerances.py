from db.records import Tolerance
from evaluators.tolerances import tolerance_for, tolerance_table
from tests.support.runs import make_problem


def test_the_table_knows_what_outputs_are_made_of() -> None:
    table = tolerance_table()
    assert table["float32"] == Tolerance(rtol=1e-3, atol=1e-3)
    assert {"float16", "bfloat16", "float64"} <= set(table)


def test_a_problems_own_bound_wins_and_an_unknown_dtype_is_strict() -> None:
    own = Tolerance(rtol=1e-6, atol=1.0)
    problem = make_problem().model_copy(update={"tolerances": {"int8": own}})
    assert tolerance_for(problem, "int8") == own
    assert tolerance_for(problem, "float16") == tolerance_table()["float16"]
    assert tolerance_for(problem, "float8_e4m3fn") is not None
    assert tolerance_for(problem, "complex_dtype_of_the_future") == tolerance_table()["float32"]

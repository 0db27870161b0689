from pathlib import Path

import pytest

from db.errors import ConfigError
from evolve.budget import AS_MANY_AS_FIT
from evolve.config import RunConfig, in_order, known_keys, load_config, make_config, parse_duration, presets


def test_later_layers_win(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("islands: 3\nevaluations: 5\nsearch:\n  migration_size: 3\n")
    config = load_config(
        "softmax", preset="demo", file=file, sets=["search.migration_size=4"], options={"islands": 6, "target": None}
    )
    assert (config.islands, config.evaluations, config.search.migration_size) == (6, 5, 4)
    assert config.search.migration_interval == 8  # from the preset: layers merge, they do not replace


def test_a_time_alone_is_the_only_limit() -> None:
    assert load_config("softmax", options={"time_s": 600.0}).evaluations == AS_MANY_AS_FIT
    assert load_config("softmax", options={"time_s": 600.0, "evaluations": 30}).evaluations == 30
    assert load_config("softmax", preset="quick", options={"time_s": 600.0}).evaluations == 120
    assert load_config("softmax").evaluations == 200


def test_every_preset_is_a_config() -> None:
    assert presets()
    for name in presets():
        load_config("softmax", preset=name)


@pytest.mark.parametrize("key", ["search.migraton_size=3", "ilands=3", "nonsense.a.b=1"])
def test_an_unknown_key_is_named(key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config("softmax", sets=[key])
    assert key.partition("=")[0].split(".")[0] in raised.value.message


def test_the_near_key_is_suggested() -> None:
    with pytest.raises(ConfigError) as raised:
        load_config("softmax", sets=["search.migraton_size=3"])
    assert "search.migration_size" in raised.value.hint


def test_a_value_out_of_range_says_so() -> None:
    with pytest.raises(ConfigError, match="islands"):
        load_config("softmax", options={"islands": 0})


def test_a_missing_config_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the config file"):
        load_config("softmax", file=tmp_path / "absent.yaml")


def test_a_stored_config_is_read_back() -> None:
    config = load_config("softmax", sets=["search.migration_size=4"])
    assert make_config(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), ("2m30s", 150)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "5d", "-3", "0"])
def test_no_duration(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_duration(text)


def test_every_key_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    groups = {"search", "search.selection", "search.knowledge", "judging", "counters", "llm", "cluster"}
    missing = [key for key in known_keys(RunConfig) if key not in groups and f"`{key}`" not in text]
    assert not missing


def test_a_run_in_order_has_four_candidates_in_flight_for_each_island_unless_it_says_how_many() -> None:
    assert in_order(load_config("softmax", options={"islands": 3})).window == 12
    assert in_order(load_config("softmax", sets=["in_order=5"])).window == 5

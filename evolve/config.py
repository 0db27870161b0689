"""The configuration of a run: frozen, read once. Later layers win: defaults, preset, file, --set, options."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from db.errors import ConfigError
from db.records import PrecisionClass
from evaluators.settings import EvaluatorSettings
from evolve.budget import AS_MANY_AS_FIT
from islands.dialogues import DialogueSettings
from islands.settings import IslandSettings

WINDOW_PER_ISLAND = 4

_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s?)?")


class ClusterSettings(BaseModel):
    """Where the actors run. Counts of 0 mean: as many as the machine carries."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str = ""  # of a running Ray cluster; empty starts one on this machine
    n_evaluators: int = Field(0, ge=0)  # 0: one per GPU, or one for a CPU
    n_preparers: int = Field(0, ge=0)  # 0: one for every eight cores; where none, evaluators compile too
    n_island_processes: int = Field(0, ge=0)  # that share the islands; 0: one for every two cores, at least one


class CounterSettings(BaseModel):
    """Which programs have their hardware counters read, and how much of the GPU's time that may take."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True  # where a GPU judges; a modelled run has no counters
    batch: int = Field(8, ge=1, le=64)  # programs that wait before the profiler starts
    max_batch: int = Field(16, ge=1, le=64)
    patience_s: float = Field(20.0, ge=0)  # a program waits no longer than this for others
    share: float = Field(0.1, gt=0, le=1)  # of the GPU's time


class LanguageSettings(DialogueSettings):
    """How a run talks to language models, what that may cost, and what is recorded of it. None: no limit."""

    mode: Literal["ask", "exchange"] = "ask"  # exchange: questions are written down, and somebody carries them
    judge: bool = False  # ask what each new best program leaves out or fakes; no gate hears of it
    n_tries: int = Field(4, ge=1)  # calls for one question
    budget_usd: float | None = Field(None, ge=0)
    budget_tokens: int | None = Field(None, ge=0)  # in and out together
    budget_calls: int | None = Field(None, ge=0)
    budget_s: float | None = Field(None, ge=0)  # of wall-clock, from the first question on
    record: str = ""  # a file that keeps every answer
    replay: str = ""  # a file of answers: no model is asked


class RunConfig(BaseModel):
    """Everything that decides a run. `evolve run` prints none of it but stores all of it with the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    problem: str  # a suite name or a file
    shapes: dict[str, int | float] = Field(default_factory=dict)  # module-level sizes of the problem, overridden
    archive: str = "evolve.duckdb"
    out: str = ""  # folder for the best program and the report; empty: evolve-out/RUN
    islands: int = Field(4, ge=1, le=1024)
    evaluations: int = Field(200, ge=1)  # verdicts, answered from the archive or judged; as many as fit into a time
    time_s: float | None = Field(None, gt=0)
    stop_when_stagnant: bool = True
    stop_at_roofline: float = Field(0.95, gt=0, le=1)  # of the larger speed of light; 1 goes on whatever is reached
    device: Literal["auto", "cuda", "cpu"] = "auto"
    target: str = "h100"  # GPU that a modelled latency is for
    precision: PrecisionClass = PrecisionClass.REFERENCE
    strategy: Literal["map-elites", "best-of-n", "greedy", "beam"] = "map-elites"
    topology: str = "ring"
    parts: Literal["auto", "always", "never"] = "auto"  # whether a module is taken apart and searched part by part
    seed_from: tuple[str, ...] = ()  # archives whose elites are judged again and start this run
    seed_problem: str = ""  # take them from this problem instead of the same one
    seed_programs: tuple[str, ...] = ()  # files with a first program
    knowledge: str = "archive"  # what earlier runs learnt: of the archives, of a file, or none
    n_seeds: int = Field(8, ge=1)  # elites taken from each archive at most
    rng_seed: int = 0
    batch: int = Field(1, ge=1)  # candidates that one chain asks for at a time
    in_order: int = Field(0, ge=0)  # so many candidates in flight, told as they were asked; 0: told as they come
    models: tuple[str, ...] = ()  # language models that propose as well: provider/name, with a weight if wanted
    llm: LanguageSettings = Field(default_factory=LanguageSettings)
    search: IslandSettings = Field(default_factory=IslandSettings)
    judging: EvaluatorSettings = Field(default_factory=EvaluatorSettings)
    counters: CounterSettings = Field(default_factory=CounterSettings)
    cluster: ClusterSettings = Field(default_factory=ClusterSettings)

    @property
    def window(self) -> int:
        """Candidates in flight of a run that goes in order, as recorded and replayed ones do; 0 where it does not."""
        is_repeatable = self.llm.record or self.llm.replay
        return self.in_order or (WINDOW_PER_ISLAND * self.islands if is_repeatable else 0)

    @property
    def island_settings(self) -> IslandSettings:
        """`search`; without knowledge a bandit chooses the operators, from their own priors alone."""
        if self.knowledge == "none" and self.search.operator_choice == "knowledge":
            return self.search.model_copy(update={"operator_choice": "bandit"})
        return self.search


def load_config(
    problem: str,
    *,
    preset: str = "",
    file: Path | None = None,
    sets: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Resolve the layers once.

    Args:
        problem: a suite name or a file.
        preset: name of a file in `configs/presets`.
        file: a YAML file with the same keys.
        sets: `a.b=c` strings; values are read as YAML.
        options: what the command line gave; `None` values are left out.

    Raises:
        ConfigError: an unknown preset, file or key (the near one is suggested), or a value out of range.
    """
    layers: list[Mapping[str, Any]] = []
    if preset:
        layers.append(_read_preset(preset))
    if file is not None:
        layers.append(_read_file(file))
    layers += [_parse_set(text) for text in sets]
    layers.append({k: v for k, v in (options or {}).items() if v is not None})
    layers.append({"problem": problem})
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merge(merged, layer)
    if merged.get("time_s") is not None:  # whoever gives a time alone wants all of it
        merged.setdefault("evaluations", AS_MANY_AS_FIT)
    return make_config(merged)


def in_order(config: RunConfig) -> RunConfig:
    """The configuration of a run that tells verdicts in the order of asking: as many in flight as it says, else four
    for each island."""
    if config.in_order:
        return config
    return config.model_copy(update={"in_order": WINDOW_PER_ISLAND * config.islands})


def make_config(values: Mapping[str, Any]) -> RunConfig:
    """A RunConfig from plain values, for example those stored with a run.

    Raises:
        ConfigError: an unknown key or a value out of range.
    """
    try:
        return RunConfig.model_validate(dict(values))
    except ValidationError as error:
        raise _explain(error) from None


def parse_duration(text: str) -> float:
    """Seconds of "90", "90s", "10m" or "1h30m".

    Raises:
        ConfigError: the text is none of these, or zero.
    """
    match = _DURATION.fullmatch(text.strip())
    parts = match.groupdict() if match else {}
    seconds = float(parts.get("h") or 0) * 3600 + float(parts.get("m") or 0) * 60 + float(parts.get("s") or 0)
    if seconds <= 0:
        raise ConfigError(f"cannot read {text!r} as a time", "write it like 90s, 10m or 1h30m")
    return seconds


def presets() -> list[str]:
    """Names of the presets that ship with the package."""
    folder = resources.files("configs") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def _read_preset(name: str) -> dict[str, Any]:
    if name not in presets():
        raise ConfigError(f"no preset {name!r}", _suggest(name, presets()) or f"presets: {', '.join(presets())}")
    return _as_mapping((resources.files("configs") / "presets" / f"{name}.yaml").read_text(), f"preset {name}")


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return _as_mapping(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}", "check --config") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the config file {path} is no text", "check --config") from None


def _as_mapping(text: str, name: str) -> dict[str, Any]:
    values = _yaml_of(text, name)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{name} must hold keys and values, got {type(values).__name__}", "see docs/configuration.md")
    return values


def _yaml_of(text: str, name: str) -> Any:
    """The values in a text. Raises `ConfigError` for what is no YAML, is nested too deeply, or has a date of no day."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{name} is not YAML: {reason[:500]}", "see docs/configuration.md") from None


def _parse_set(text: str) -> dict[str, Any]:
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise ConfigError(f"cannot read --set {text!r}", "write it like --set search.migration_size=4")
    nested = _yaml_of(value, f"the value of --set {path}")
    for key in reversed(path.split(".")):
        nested = {key: nested}
    return dict(nested)


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _explain(error: ValidationError) -> ConfigError:
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = known_keys(RunConfig)
        return ConfigError(f"unknown config key {path!r}", _suggest(path, known) or "see docs/configuration.md")
    return ConfigError(f"config key {path!r}: {first['msg']}, got {first['input']!r}", "see docs/configuration.md")


def known_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Every key of a configuration, dotted, groups included."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        keys.append(prefix + name)
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys += known_keys(inner, f"{prefix}{name}.")
    return keys


def _suggest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else ""

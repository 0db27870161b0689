"""One sitting of a benchmark on this machine: which modules are still to be run, in which order, on which GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from db.errors import ConfigError
from evolve.config import RunConfig
from evolve.device import count_local_gpus
from evolve.models.bench import Improve, bench, known_row
from evolve.models.fleet import Seat, bench_side_by_side, gather
from evolve.models.order import in_order_of_gain
from evolve.models.places import place_of
from evolve.models.rows import BenchRow
from evolve.models.table import BenchTable


def bench_here(
    modules: Sequence[Path],
    config: RunConfig,
    improve: Improve,
    *,
    n_gpus: int | None = None,
    folder: Path,
    on_row: Callable[[BenchRow], None] = lambda _: None,
    on_begin: Callable[[Path, Seat], None] = lambda *_: None,
    on_look: Callable[[Path], None] = lambda _: None,
    check: Callable[[], None] = lambda: None,
) -> BenchTable:
    """Improves every module once on GPUs of this machine, those that can gain most first; the table is in their order.

    Where one GPU is there, one module is left or a cluster is given (`cluster.address`), this process does it itself.

    Args:
        improve: `run_model`.
        n_gpus: how many GPUs to use; None takes all.
        on_begin: called with a module that a process of its own begins, and where.
        on_look: called with a module when it is looked at to see what it can gain, before anything runs.
        check: called once where a module is left to run, before anything else is done for it. It may raise.

    Raises:
        ConfigError: there are not so many GPUs here, or a cluster is to do it.
        ArchiveError: what several processes found cannot be put into one archive.
    """
    gather(folder, modules, Path(config.archive))
    places = {module: place_of(module, folder, config.shapes) for module in modules}
    known = [row for module, place in places.items() if (row := known_row(module, place))]
    names = {row.module for row in known}
    unknown = [module for module in modules if module.stem not in names]
    if unknown:
        check()
    seats = _seats(config, n_gpus, len(unknown)) if unknown else []
    for row in known:
        on_row(row)
    unknown = in_order_of_gain({module: places[module] for module in unknown}, config, on_look)
    if seats:
        rows = bench_side_by_side(unknown, config, seats, folder=folder, on_row=on_row, on_begin=on_begin)
    else:
        rows = list(bench(unknown, config, improve, folder=folder, on_row=on_row).rows)
    order = {module.stem: index for index, module in enumerate(modules)}
    return BenchTable(rows=tuple(sorted((*known, *rows), key=lambda row: order[row.module])))


def _seats(config: RunConfig, wanted: int | None, n_modules: int) -> list[Seat]:
    """Where modules run in processes of their own; empty where this process has nobody to share the GPUs with."""
    if config.cluster.address or os.environ.get("RAY_ADDRESS"):
        if wanted:
            raise ConfigError("--gpus is for the GPUs of this machine, and a cluster is given", "leave one of them out")
        return []
    n_found = count_local_gpus()
    if wanted and wanted > n_found:
        raise ConfigError(f"--gpus {wanted}: this machine has {n_found}", "leave it out to use all")
    if (wanted or n_found) == n_found and min(n_found, n_modules) < 2:
        return []
    return seats_of(visible_gpus(n_found)[: wanted or n_found], n_modules, os.cpu_count() or 1)


def seats_of(gpus: Sequence[str], n_modules: int, n_cores: int) -> list[Seat]:
    """GPUs and cores shared out evenly: as many processes as there are GPUs, or modules where these are fewer."""
    n = max(1, min(len(gpus), n_modules))
    return [Seat(",".join(gpus[index::n]), max(1, n_cores // n)) for index in range(n)]


def visible_gpus(n_found: int) -> list[str]:
    """The names of the GPUs that this process sees, for the CUDA_VISIBLE_DEVICES of another."""
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return visible[:n_found] or [str(index) for index in range(n_found)]

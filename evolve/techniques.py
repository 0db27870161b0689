"""The technique catalogue for people and scripts: the library twin of `evolve techniques`."""

from __future__ import annotations

import difflib

from db.errors import NotFoundError
from db.reading import ArchiveReader
from db.techniques import CatalogueEntry, load_catalogue


def techniques(archive: ArchiveReader | None = None) -> list[CatalogueEntry]:
    """All techniques of the catalogue, in its order, then those that runs of an archive learnt, the newest first.

    Of learnt techniques with one name the newest counts; `learnt_by` says whose it is.
    """
    return list(_known(archive).values())


def technique(name: str, archive: ArchiveReader | None = None) -> CatalogueEntry:
    """One technique by its name, in upper or lower case, with hyphens or underscores.

    Raises:
        NotFoundError: there is none of this name; the hint suggests the nearest.
    """
    known = _known(archive)
    key = name.strip().lower().replace("-", "_")
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise NotFoundError(f"no technique {name!r} in the catalogue", f"{hint}list them all: evolve techniques")
    return known[key]


def _known(archive: ArchiveReader | None) -> dict[str, CatalogueEntry]:
    known = dict(load_catalogue())
    for learnt in archive.learnt_techniques() if archive else ():
        known.setdefault(learnt.name, learnt.as_entry())
    return known

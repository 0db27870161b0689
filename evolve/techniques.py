"""The technique catalogue for people and scripts: the library twin of `evolve techniques`."""

from __future__ import annotations

import difflib

from db.errors import NotFoundError
from db.techniques import CatalogueEntry, load_catalogue


def techniques() -> list[CatalogueEntry]:
    """All techniques of the catalogue, in its order."""
    return list(load_catalogue().values())


def technique(name: str) -> CatalogueEntry:
    """One technique by its name, in upper or lower case, with hyphens or underscores.

    Raises:
        NotFoundError: the catalogue has none of this name; the hint suggests the nearest.
    """
    catalogue = load_catalogue()
    key = name.strip().lower().replace("-", "_")
    if key not in catalogue:
        near = difflib.get_close_matches(key, catalogue, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise NotFoundError(f"no technique {name!r} in the catalogue", f"{hint}list them all: evolve techniques")
    return catalogue[key]

"""The table of a benchmark as Markdown."""

from __future__ import annotations

import html

from evolve.models.sheets import Sheet, module_sheet, setting_lines, sheets_of
from evolve.models.table import BenchTable


def markdown_of(table: BenchTable) -> str:
    """The whole document. What modules and errors say is text and cannot become markup."""
    settings = [_text(line) for line in setting_lines(table)]
    pieces = ["# Whole models", *settings, _sheet(module_sheet(table.rows), level=2)]
    for figures in table.classes:
        pieces.append(f"## Precision class {figures.precision.value}")
        pieces += [_sheet(sheet, level=3) for sheet in sheets_of(figures)]
    return "\n\n".join(pieces) + "\n"


def _sheet(sheet: Sheet, *, level: int) -> str:
    lines = [f"{'#' * level} {sheet.title}", "", sheet.lead, "", _line(sheet.columns)]
    lines.append("|" + "---|" * len(sheet.columns))
    return "\n".join([*lines, *map(_line, sheet.rows)])


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(map(_text, cells)) + " |"


def _text(cell: str) -> str:
    """One line of plain text inside a table (GitHub Flavored Markdown, 2.4 and 4.10)."""
    escaped = html.escape(" ".join(cell.split()), quote=False).replace("\\", "\\\\")
    for mark in "|`*_[]":
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped

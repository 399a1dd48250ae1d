"""Medians and ratios of rounds, and tables of them."""

from __future__ import annotations

import statistics


def median(rounds: list[dict], figure: str) -> float | None:
    """The median of one figure over the rounds that have it."""
    values = [one[figure] for one in rounds if one.get(figure) is not None]
    return statistics.median(values) if values else None


def ratio(mine: list[dict], theirs: list[dict], figure: str) -> float | None:
    """The median of the ratios of the rounds, each to the round of the same turn; of turns that both have."""
    pairs = ((one.get(figure), other.get(figure)) for one, other in zip(mine, theirs))
    ratios = [one / other for one, other in pairs if one and other]
    return statistics.median(ratios) if ratios else None


def show(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def table(lines: list[list[str]], left: tuple[int, ...] = (0,), markdown: bool = False) -> str:
    """A table whose first line is its head; the columns `left` are set to the left, all others to the right."""
    columns = range(len(lines[0]))
    if markdown:
        rule = ["---" if column in left else "---:" for column in columns]
        return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])
    widths = [max(len(line[column]) for line in lines) for column in columns]
    pads = ["<" if column in left else ">" for column in columns]
    return "\n".join(
        "  ".join(f"{cell:{pad}{width}}" for cell, pad, width in zip(line, pads, widths)).rstrip() for line in lines
    )

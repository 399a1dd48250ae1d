"""Tables of kept lines: a table for each row kind, each figure with its ratio to ours."""

from __future__ import annotations

import json
from pathlib import Path

from harness import rounds

from .kinds import KINDS, Figure, Kind

OURS = "tokentriage"


def line(about: dict, kind: Kind, peer: str, against: str | None, mine: list[dict], theirs: list[dict], **more) -> dict:
    """One peer's row of one kind, as it is kept: medians of the rounds, ratios to the row `against`, the rounds themselves."""
    figures = {figure.name: rounds.median(mine, figure.name) for figure in kind.figures}
    ratios = {
        figure.name: rounds.ratio(mine, theirs, figure.name) for figure in kind.figures if figure.ratio and against and against != peer
    }
    others = rounds.median(mine, "others_percent")
    return {**about, "kind": kind.name, "peer": peer, **more, "figures": figures, "against": against,
            "ratios": ratios, "others_percent": others, "rounds": mine}


def cell(row: dict, figure: Figure) -> str:
    value, ratio = row["figures"].get(figure.name), row["ratios"].get(figure.name)
    if value is None:
        return "-"
    shown = f"{value:,.{figure.digits}f}"
    if ratio is not None:
        return f"{shown} ({times(ratio)})"
    return f"{shown} (1)" if figure.ratio and row["against"] == row["peer"] else shown


def times(ratio: float) -> str:
    """A ratio in some three digits, whatever its size."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def table(kind: Kind, rows: list[dict], markdown: bool = False) -> str:
    """The table of one kind; a peer without figures has its reason instead of them."""
    head = ["peer", "load", *(figure.heading for figure in kind.figures)]
    measured, absent = [], []
    for row in rows:
        if "why" in row:
            absent.append(row)
            continue
        measured.append([row.get("shown", row["peer"]), row.get("load", ""), *(cell(row, figure) for figure in kind.figures)])
        if row.get("refused_with"):
            measured[-1][-1] += f" [{', '.join(row['refused_with'])}]"
    parts = [rounds.table([head, *measured], (0, 1), markdown)] if measured else []
    # Rows of one peer under several loads say once what it has on.
    on = list(dict.fromkeys(f"{row.get('name', row['peer'])}: {row['what']}" for row in rows if row.get("what")))
    gone = [f"{row['peer']}: no row: {row['why']}" for row in absent]
    bullet = "- " if markdown else "  "
    if on or gone:
        parts.append("\n".join(bullet + words for words in on + gone))
    notes = disturbance(rows)
    return "\n\n".join(parts + ([notes] if notes else []))


def disturbance(rows: list[dict]) -> str | None:
    """A warning when the measured core was not the server's own."""
    shares = [row["others_percent"] for row in rows if row.get("others_percent") is not None]
    worst = max(shares, default=0)
    return f"DISTURBED: other work took up to {worst:.0f} % of the measured core; run again on a quiet machine" if worst > 5 else None


def latest(path: Path) -> dict[str, list[dict]]:
    """The rows of the last run of each kind that was kept."""
    found: dict[str, list[dict]] = {}
    for text in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(text)
        rows = found.setdefault(row["kind"], [])
        if rows and rows[0]["date"] != row["date"]:
            rows.clear()
        rows.append(row)
    return found


def section(found: dict[str, list[dict]]) -> str:
    """What stands in bench/RESULTS.md: the last run of each kind."""
    parts = [
        "## Peers, side by side",
        "Each figure is a median of rounds in turns; in brackets the median of the rounds' ratios to `tokentriage` (above 1: more"
        " than ours). One worker on one processor, generator and backend on the other, all on the loopback; the two are"
        " hyperthreads of one core, and the generator caps a fast proxy, so CPU time a request comes first. What each peer is"
        " configured with, and what these figures do not say: [docs/peers.md](../docs/peers.md).",
    ]
    commands = {}
    for kind in KINDS:
        rows = found.get(kind.name)
        if not rows:
            continue
        first = rows[0]
        origin = f"`{first['command']}`; date {first['date']}, commit {first['commit']}, cpu {first['cpu']}, kernel {first['kernel']}."
        said = f"{kind.about} {origin}" if origin not in commands else f"{kind.about} Same run as \"{commands[origin]}\"."
        commands.setdefault(origin, kind.title)
        parts += [f"### {kind.title}", said, table(kind, rows, markdown=True)]
    versions = {row["peer"]: row["version"] for rows in found.values() for row in rows if row.get("version")}
    if versions:
        parts.append("Versions: " + "; ".join(dict.fromkeys(versions.values())) + ".")
    return "\n\n".join(parts)



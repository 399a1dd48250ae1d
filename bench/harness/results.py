"""Keeping what was measured: lines of JSON under bench/results, sections between markers in bench/RESULTS.md."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from . import ROOT

DOCUMENT = ROOT / "bench" / "RESULTS.md"


def append(name: str, rows: list[dict]) -> None:
    """Adds a line for each row to `bench/results/NAME.jsonl`."""
    path = ROOT / "bench" / "results" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")


def with_section(text: str, name: str, section: str) -> str:
    """The document with the text between the markers of `name` exchanged; a new pair goes to the end."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in text:
        text = text.rstrip("\n") + f"\n\n{begin}\n{end}\n"
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    return f"{before}{begin}\n{section}\n{end}{after}"


def rewrite_section(name: str, section: str, document: Path = DOCUMENT) -> None:
    text = document.read_text() if document.exists() else "# Results\n"
    document.write_text(with_section(text, name, section))


def command_line(script: str, paths: tuple[str, ...] = ("--loadtest", "--tokentriage"), argv: list[str] | None = None) -> str:
    """The command as to be typed again; where the binaries are is this machine's own matter, so the options `paths` are left out."""
    kept, skip = [], False
    for word in sys.argv[1:] if argv is None else argv:
        if skip:
            skip = False
        elif word in paths:
            skip = True
        elif not word.startswith(tuple(f"{option}=" for option in paths)):
            kept.append(word)
    return shlex.join([script, *kept])

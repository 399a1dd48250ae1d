"""The load generator and the model backend of this repository."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from . import Fault
from .processes import free_port, start, wait_for


def start_backend(loadtest: str, core: int | None, log: Path, *options: str) -> int:
    """Starts a model backend on a core (`None`: on any) and returns its port; `--fixed` gives one constant answer."""
    port = free_port()
    argv = [loadtest, "backend", *options, "--listen", f"127.0.0.1:{port}"]
    argv += ["--cores", str(core)] if core is not None else []
    wait_for(port, start(argv, core, log), log)
    return port


def run(
    loadtest: str,
    url: str,
    core: int | None,
    seconds: float | None,
    connections: int,
    headers: list[str],
    body: str | None,
    rate: float | None = None,
    requests: int | None = None,
    more: tuple[str, ...] = (),
) -> dict:
    """One run without warm-up, as the generator reports it."""
    argv = [loadtest, "run", "--json", "-c", str(connections), "--warm-up", "0", *more]
    argv += ["--cores", str(core)] if core is not None else []
    argv += ["-d", f"{seconds}s"] if seconds is not None else []
    argv += ["-n", str(requests)] if requests is not None else []
    argv += ["--body", body] if body is not None else []
    argv += ["--rate", str(rate)] if rate else []
    for header in headers:
        argv += ["-H", header]
    done = subprocess.run([*argv, url], capture_output=True, text=True, timeout=(seconds or 60) + 60)
    if done.returncode != 0:
        raise Fault(f"loadtest ended with {done.returncode}: {done.stderr.strip()} {done.stdout[:400]}")
    return json.loads(done.stdout)


def wrong(report: dict, wanted: str = "200") -> str | None:
    """What a report says that is not an answer with the wanted status."""
    others = {status: count for status, count in report["statuses"].items() if status != wanted}
    if others or report["all_failures"] or not report["answers"]:
        failures = {name: count for name, count in report["failures"].items() if count}
        return f"not every request was answered with {wanted}: statuses {report['statuses']}, failures {failures}"
    return None

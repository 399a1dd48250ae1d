"""The engine's own benchmarks, run as cargo leaves them: the whole decision, and what two threads lose to each other."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from harness import ROOT, Fault

from . import packages

DECISION = "whole, both gates and the settlement"
# What is shown of `contention`: what it is, and the name that it has there.
CONTENTION = [
    ("gate 1, three caps of one hot chain", "gate 1, three caps, one hot chain"),
    ("gate 2, five caps, a shard each", "reserve and settle, five caps, one hot chain/a shard each"),
    ("gate 2, five caps, one shard behind a lock", "reserve and settle, five caps, one hot chain/one mutexed shard"),
    ("one hot rolling window", "admit, one hot/sealed ring"),
    ("rolling windows, zipf over 10^3", "admit, zipf over 10^3/sealed ring"),
    ("one hot bare fetch_add, for scale", "admit, one hot/bare fetch_add"),
]


def find(name: str, folder: Path | None) -> str:
    """The newest build of a benchmark; built when there is none."""
    target = folder or Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/deps"

    def built() -> list[Path]:
        found = [path for path in target.glob(f"{name}-*") if not path.suffix and os.access(path, os.X_OK)]
        return sorted(found, key=lambda path: path.stat().st_mtime)

    if not built() and not folder:
        packages.tell(f"building the engine's benchmark {name}")
        packages.run(["cargo", "bench", "-p", "bench", "--bench", name, "--no-run"], ROOT)
    if not built():
        raise Fault(f"there is no benchmark {name} in {target}: `cargo bench -p bench --bench {name} --no-run` makes it")
    return str(built()[-1].resolve())


def run(binary: str, wanted: str, cores: tuple[int, ...], folder: Path) -> dict[str, float]:
    """Runs the benchmarks whose names contain `wanted` (which criterion reads as a pattern) on some processors; nanoseconds an operation by full name."""
    argv = ["taskset", "-c", ",".join(str(core) for core in cores), binary, "--bench", "--noplot", wanted.replace("^", r"\^")]
    env = {**os.environ, "CRITERION_HOME": str(folder)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, env=env, cwd=folder)
    found = {}
    for path in folder.glob("**/new/benchmark.json"):
        median = json.loads((path.parent / "estimates.json").read_text())["median"]
        found[json.loads(path.read_text())["full_id"]] = median["point_estimate"]
    if done.returncode != 0 or not found:
        raise Fault(f"the benchmark {Path(binary).name} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return found


def decision(binary: str, core: int, folder: Path) -> dict:
    """One measurement of the whole decision."""
    (nanoseconds,) = run(binary, DECISION, (core,), folder).values()
    return {"decisions_per_s": round(1e9 / nanoseconds, 1), "cpu_us_per_decision": round(nanoseconds / 1000, 4)}


def contention(binary: str, name: str, cores: tuple[int, int], folder: Path) -> dict:
    """One measurement of an operation on one thread and on two."""
    found = run(binary, name, cores, folder)
    one, two = found[f"{name}/1"], found[f"{name}/2"]
    return {"one_ns": round(one, 2), "two_ns": round(two, 2), "together": round(2 * one / two, 3)}

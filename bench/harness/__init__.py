"""What the benchmarks that start real processes share: `bench/proxy/run`, `bench/peers/run`, `bench/scale/run`, `bench/journal/run`.

`processes` starts and ends children and reads what they used, `machine` says where figures come from and keeps a run from being
disturbed, `rounds` makes medians, ratios and tables of rounds, `results` keeps them, `gateway` and `load` start this repository's
own gateway and its generator. Only Python's standard library.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Fault(Exception):
    """What stops a measurement, in a sentence."""

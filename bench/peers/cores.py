"""Two workers against one: what a second worker costs a request, with counters of their own and with one hot counter.

Generator and backend are one thread each and run on any processor; a single worker is pinned to the first, two have both. All
of it shares two processors, so requests a second cannot double: what is left over is CPU time a request, which says what the workers lose to
each other, and nginx beside it, which says what the machine allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness import gateway, load, processes
from harness.gateway import MANY

from .gateways import Tokentriage
from .peer import NEVER, Peer, Server, Task

CLIENTS = 32
TENANTS = [{"org": "acme", "teams": ["ml"], "users": {"ml": [f"u{number}" for number in range(CLIENTS)]}}]
RATES = [
    {"id": "user_rpm", "attach": {"level": "user"}, "type": "rpm", "amount": MANY, "period": "1m"},
    {"id": "user_slots", "attach": {"level": "user"}, "type": "concurrency", "amount": 100_000},
]
TOKENS = [
    {"id": "user_tpm", "attach": {"level": "user"}, "type": "tpm", "amount": MANY, "period": "1m"},
    {"id": "user_budget", "attach": {"level": "user"}, "type": "budget_usd", "amount_usd": MANY, "period": "day"},
]
HOT_RATES = [
    {"id": "all_rpm", "attach": {"node": "__global"}, "type": "rpm", "amount": MANY, "period": "1m"},
    {"id": "all_slots", "attach": {"node": "__global"}, "type": "concurrency", "amount": 1_000_000},
]
HOT_TOKENS = [{"id": "all_tpm", "attach": {"node": "__global"}, "type": "tpm", "amount": MANY, "period": "1m"}]


@dataclass(frozen=True)
class Row:
    name: str
    what: str
    workers: int
    limits: list[dict] | None  # None: nginx
    against: str | None = None  # the row with one worker


def rows() -> list[Row]:
    found = []
    for name, what, limits in (
        ("nginx", f"limit_req and limit_conn a key, {CLIENTS} keys in turn", None),
        ("tokentriage, rates", f"rpm and concurrency a user, {CLIENTS} users in turn", RATES),
        ("tokentriage, hot rates", "the same, and rpm and concurrency on __global: one cell each for all", RATES + HOT_RATES),
        ("tokentriage, tokens", "rates, and tpm and a budget a user: the worker that owns a counter is asked", RATES + TOKENS),
        ("tokentriage, hot tokens", "rates, and tpm on __global: one worker owns it, the other asks", RATES + HOT_TOKENS),
    ):
        found.append(Row(f"{name}, 1 worker", what, 1, limits))
        found.append(Row(f"{name}, 2 workers", what, 2, limits, f"{name}, 1 worker"))
    return found


def launch(row: Row, nginx: Peer, ours: Tokentriage, folder: Path, backend: int, cores: tuple[int, ...]) -> Server:
    cores, bearers = cores[: row.workers], folder / "bearers"
    if row.limits is None:
        server = nginx.launch(Task(folder, backend, cores, caps=NEVER, workers=row.workers))
        keys = [f"tt_vk_0123456789{number:02d}_key" for number in range(CLIENTS)]
    else:
        port, log = processes.free_port(), folder / "log"
        document = gateway.document(folder, port, processes.free_port(), backend, row.limits, row.workers, TENANTS)
        config = gateway.write_config(folder, document)
        keys = [gateway.mint(ours.binary, config, f"org:acme/team:ml/user:u{number}") for number in range(CLIENTS)]
        process = processes.start([ours.binary, "serve", "--config", config], cores, log, gateway.environment())
        processes.wait_for(port, process, log)
        server = Server([process], port, row.what)
    bearers.write_text("\n".join(keys))
    server.bearers, server.what = bearers, row.what
    # `ask` sends what is in `headers`; the generator takes its credentials from the file.
    server.headers = []
    return server


def start_backend(loadtest: str, folder: Path) -> int:
    return load.start_backend(loadtest, None, folder / "backend.log", "--fixed")

"""The decision alone, in a store: a script in Redis and in Valkey.

The script is the cheapest that is exact for what it knows: eight counters read at once, compared, and added to; the rates are
fixed windows (the client names the window in the key), a hold has no record of its own, so what a lost client held is lost. The engine's
decision does more: rolling windows, calendar windows, holds with a deadline, and a settlement that is idempotent.
"""

from __future__ import annotations

import csv
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness import Fault, processes

from . import packages

RESERVE = """
local used = redis.call('MGET', unpack(KEYS))
for i = 1, 8 do
  if (tonumber(used[i]) or 0) + tonumber(ARGV[8 + i]) > tonumber(ARGV[i]) then return i end
end
for i = 1, 8 do
  local now = redis.call('INCRBY', KEYS[i], ARGV[8 + i])
  if now == tonumber(ARGV[8 + i]) and ARGV[16 + i] ~= '0' then redis.call('EXPIRE', KEYS[i], ARGV[16 + i]) end
end
return 0
"""
SETTLE = """
for i = 1, #KEYS do redis.call('INCRBY', KEYS[i], ARGV[i]) end
return 0
"""
# The caps of bench/src/lib.rs: two rates, slots, tokens a minute, two budgets, two quotas.
KEYS = [
    f"{{acme}}:{name}"
    for name in (
        "user:rpm:29012345", "all:rpm:29012345", "user:slots", "user:tpm:29012345",
        "team:budget:2026-11", "team:requests:2026-11", "org:budget:2026-11", "org:tokens:2026-11",
    )
]
COSTS = [1, 1, 1, 300, 45_000_000, 1, 45_000_000, 300]
AMOUNTS = [10**15] * 8
EXPIRES = [120, 120, 0, 120, 0, 0, 0, 0]
# What a request gives back: its slot, and what it did not use of tokens and money.
REFUNDS = {2: -1, 3: -258, 4: -38_700_000, 6: -38_700_000, 7: -258}
# The name of a load, its connections, requests at once on each, and calls for each second of measuring.
LOADS = [("1 connection", 1, 1, 6_000), ("50 connections", 50, 1, 25_000), ("50 connections, pipelined by 16", 50, 16, 45_000)]
OURS = "in its own process"


@dataclass
class Store:
    """A started store with both scripts in it."""

    name: str
    version: str
    process: subprocess.Popen
    port: int
    calls: dict[str, list[str]]  # the commands, by what they do


def command(port: int, *words: str) -> str:
    """One command and its answer, which is a line or a string."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection, connection.makefile("rb") as answers:
        parts = [f"*{len(words)}\r\n"] + [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
        connection.sendall("".join(parts).encode())
        answer = answers.readline().decode().strip()
        if answer.startswith("-"):
            raise Fault(f"{words[0]}: {answer}")
        return answers.readline().decode().strip() if answer.startswith("$") else answer[1:]


def start(name: str, program: packages.Program, folder: Path, core: int) -> Store:
    port, log = processes.free_port(), folder / "log"
    argv = [program.path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = processes.start(argv, core, log, {**os.environ, **program.env})
    processes.wait_for(port, process, log)
    reserve, settle = (command(port, "SCRIPT", "LOAD", script) for script in (RESERVE, SETTLE))
    given_back = [KEYS[number] for number in REFUNDS]
    calls = {
        "reserve": ["EVALSHA", reserve, str(len(KEYS)), *KEYS, *(str(word) for word in AMOUNTS + COSTS + EXPIRES)],
        "settle": ["EVALSHA", settle, str(len(given_back)), *given_back, *(str(word) for word in REFUNDS.values())],
    }
    store = Store(name, " ".join(program.says("--version").split()[:3]), process, port, calls)
    check(store)
    return store


def check(store: Store) -> None:
    """A fault unless the scripts count: one request, settled, then a cap that is full."""
    if command(store.port, *store.calls["reserve"]) != "0" or command(store.port, *store.calls["settle"]) != "0":
        raise Fault(f"{store.name}: the scripts refuse what they must let pass")
    counted = [command(store.port, "GET", key) for key in KEYS]
    wanted = [str(cost + REFUNDS.get(number, 0)) for number, cost in enumerate(COSTS)]
    if counted != wanted:
        raise Fault(f"{store.name}: after one request the counters are {counted}, not {wanted}")
    full = list(store.calls["reserve"])
    full[3 + len(KEYS) + 3] = "341"  # the fourth cap: 42 are used and 300 asked for
    if command(store.port, *full) != "4":
        raise Fault(f"{store.name}: the fourth cap is full and does not refuse")


def drive(benchmark: packages.Program, store: Store, core: int, call: str, load: tuple, count: int) -> dict:
    """So many calls; calls a second, CPU time of the store for each, and how long one took."""
    _, connections, pipeline, _ = load
    argv = [str(benchmark.path), "-p", str(store.port), "-c", str(connections), "-P", str(pipeline), "-n", str(count), "--csv"]
    before = processes.cpu_seconds(store.process.pid)
    done = subprocess.run(
        ["taskset", "-c", str(core), *argv, *store.calls[call]],
        capture_output=True, text=True, timeout=120, env={**os.environ, **benchmark.env},
    )
    cpu = processes.cpu_seconds(store.process.pid) - before
    lines = list(csv.reader(done.stdout.strip().splitlines()))
    if done.returncode != 0 or len(lines) < 2 or len(lines[-1]) < 8:
        raise Fault(f"redis-benchmark ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    # test, rps, average, min, p50, p95, p99 and max in milliseconds
    figures = [float(word) for word in lines[-1][-7:]]
    return {"per_s": figures[0], "p50_us": figures[3] * 1000, "p99_us": figures[5] * 1000, "cpu_us": cpu / count * 1e6}


def turn(benchmark: packages.Program, store: Store, core: int, load: tuple, seconds: float) -> dict:
    """Both calls of so many decisions."""
    count = max(1000, int(load[3] * seconds / 2))
    reserve = drive(benchmark, store, core, "reserve", load, count)
    settle = drive(benchmark, store, core, "settle", load, count)
    return {
        "decisions_per_s": round(1 / (1 / reserve["per_s"] + 1 / settle["per_s"]), 1),
        "cpu_us_per_decision": round(reserve["cpu_us"] + settle["cpu_us"], 3),
        "p50_us": reserve["p50_us"],
        "p99_us": reserve["p99_us"],
        "reserve": reserve,
        "settle": settle,
    }

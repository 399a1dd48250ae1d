"""One run over some row kinds: gets the peers, starts them, takes turns, shows and keeps what came out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness import Fault, load, machine, processes, results

from . import cores, engine, measuring, packages, show, stores
from .gateways import GovernedTokentriage, Litellm, Portkey, Tensorzero, Tokentriage, valkey_server
from .kinds import BY_NAME, Kind
from .peer import NEVER_CHAIN, SMALL_CHAIN, Absent, Peer, Server, Task
from .proxies import Envoy, Haproxy, Nginx, Traefik

STORES = {
    "Redis": lambda cache, install: packages.debian(cache, "redis-server", "redis-server", install),
    "Valkey": lambda cache, install: packages.Program(valkey_server(cache, install), {}),
}

# Kinds that tell what a proxy adds to what there is without one, and to which figures.
ADDED = {"one": "", "streams": "delay_"}


def all_peers(binary: str) -> list[Peer]:
    governed = GovernedTokentriage(binary)
    return [Tokentriage(binary), governed, Nginx(), Haproxy(), Envoy(), Traefik(), Tensorzero(), Portkey(), Litellm()]


def wanted(options, name: str) -> bool:
    """Ours is in every run: the ratios are to it."""
    return name == show.OURS or not options.only or any(word.lower() in name.lower() for word in options.only)


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


class Run:
    """One run over some row kinds."""

    def __init__(self, options, home: Path) -> None:
        self.options, self.home, self.folders = options, home, 0
        self.bench = measuring.Bench(options.loadtest, options.core, options.load_core, options.seconds, options.warm_up)
        self.peers = [peer for peer in all_peers(options.tokentriage) if wanted(options, peer.name)]
        self.gone: dict[str, str] = {}
        self.about = {**machine.facts([options.loadtest, options.tokentriage]), "command": options.command}
        self.lines: dict[str, list[dict]] = {}
        self.logs: dict[str, Path] = {}  # of what is started now, by peer

    def folder(self) -> Path:
        self.folders += 1
        path = self.home / str(self.folders)
        path.mkdir()
        return path

    def get(self) -> None:
        """Gets every peer; one that cannot be had is known by its reason from then on."""
        for peer in self.peers:
            try:
                peer.get(self.options.cache, True)
            except Fault as fault:
                self.gone[peer.name] = str(fault)
                say(f"{peer.name}: {fault}")
        if BY_NAME["decision"] in self.options.kinds:
            for store, get in STORES.items():
                try:
                    if wanted(self.options, store):
                        get(self.options.cache, True)
                except Fault as fault:
                    self.gone[store] = str(fault)
                    say(f"{store}: {fault}")

    def backend(self, *words: str) -> int:
        folder = self.folder()
        return load.start_backend(self.options.loadtest, self.options.load_core, folder / "backend.log", *words)

    def keep(self, kind: Kind, rows: list[dict]) -> None:
        """Shows a table as soon as there is one, and keeps its rows."""
        self.lines[kind.name] = rows
        if self.options.json:
            for row in rows:
                print(json.dumps(row), flush=True)
        else:
            print(f"{kind.title}. {kind.about}\n\n{show.table(kind, rows)}\n", flush=True)
        if not self.options.no_keep:
            results.append("peers", rows)

    def absent(self, kind: Kind, peer: str, why: str) -> dict:
        """A row without figures. Where its files are is this machine's own matter."""
        why = " ".join(why.split()).replace(str(self.home), "").replace(str(self.options.cache), "target/peers")
        return {**self.about, "kind": kind.name, "peer": peer, "why": why}

    def launch(self, kind: Kind, peer: Peer, backend: int, direct: Server, task: dict) -> Server:
        """A started peer that answers rightly, or the fault with the end of its log."""
        folder = self.folder()
        self.logs[peer.name] = folder / "log"
        try:
            server = peer.launch(Task(folder, backend, (self.options.core,), **task))
            measuring.check_answer(server, kind, direct)
            return server
        except Fault as fault:
            said = processes.last_lines(folder / "log")
            raise Fault(str(fault) if said in str(fault) else f"{fault}; its log ends: {said}") from None

    def proxied(self, kind: Kind) -> None:
        """A kind in which each peer serves requests."""
        streams = bool(kind.task.get("streams"))
        tokens, pace = str(measuring.STREAMED_TOKENS), str(measuring.TOKENS_PER_SECOND)
        words = ["--tokens", tokens, "--tokens-per-second", pace, "--stamp-events"] if streams else ["--fixed"]
        if kind.name == "check":
            words = ["--latency", "150ms"]
        backend = self.backend(*words)
        direct = Server([], backend, "no proxy: what generator and backend allow")
        servers: dict[str, tuple[Peer, Server]] = {}
        why = {}
        for peer in self.peers:
            # What governs is a row of its own only where the others have no caps.
            task = kind.task
            if isinstance(peer, GovernedTokentriage):
                if kind.caps or kind.task.get("answer"):
                    continue
                task = {**task, "caps": NEVER_CHAIN}
            try:
                if peer.name in self.gone:
                    raise Fault(self.gone[peer.name])
                servers[peer.name] = peer, self.launch(kind, peer, backend, direct, task)
            except (Fault, Absent) as reason:
                why[peer.name] = str(reason)
        if kind.name == "check":
            rounds, loads = self.check(kind, servers, backend, direct, why), {}
        else:
            rounds, loads = self.take_turns(kind, servers, direct, why)
        rows = []
        for name in (["direct"] if kind.direct else []) + [peer.name for peer in self.peers]:
            if name == "direct" or (name in servers and name not in why):
                peer, server = servers.get(name, (None, direct))
                more = {"version": peer.version() if peer else None, "what": server.what, "load": loads.get(name, "")}
                if kind.name == "check":
                    more["refused_with"] = rounds[name][0]["refused_with"]
                against = show.OURS if peer and show.OURS in rounds else None
                row = show.line(self.about, kind, name, against, rounds[name], rounds.get(show.OURS, []), **more)
                rows.append(row)
            elif name in why:
                rows.append(self.absent(kind, name, why[name]))
        processes.stop_all()
        self.keep(kind, rows)

    def check(self, kind: Kind, servers: dict, backend: int, direct: Server, why: dict) -> dict[str, list[dict]]:
        rounds = {}
        for name, (peer, server) in servers.items():
            try:
                figures = measuring.check_caps(self.bench, server)
                processes.stop(server.processes)
                of_a_team = self.launch(kind, peer, backend, direct, {"caps": SMALL_CHAIN})
                rounds[name] = [figures | measuring.check_team(self.bench, of_a_team)]
                processes.stop(of_a_team.processes)
            except Fault as fault:
                why[name] = str(fault)
        return rounds

    def take_turns(self, kind: Kind, servers: dict, direct: Server, why: dict) -> tuple[dict, dict]:
        """The rounds of each server, A B A B; one that fails has its reason, with the end of its log, and is left out from then on."""
        streams = bool(kind.task.get("streams"))
        rounds: dict[str, list[dict]] = {"direct": []} if kind.direct else {}
        loads = {}
        for number in range(self.options.rounds):
            say(f"{kind.name}: round {number + 1} of {self.options.rounds}")
            before = None
            turns = ([("direct", (None, direct))] if kind.direct else []) + list(servers.items())
            for name, (peer, server) in turns:
                if name in why:
                    continue
                own = (peer.streams if streams else peer.connections) if peer else (64 if streams else 32)
                connections = kind.connections or own
                loads[name] = f"{connections} streams" if streams else f"{connections} connections" if connections > 1 else "1 connection"
                try:
                    figures = measuring.turn(self.bench, server, kind, connections)
                except Fault as fault:
                    why[name] = str(fault)
                    if name in self.logs:
                        why[name] += f"; its log ends: {processes.last_lines(self.logs[name])}"
                    continue
                if name == "direct":
                    before = figures
                elif before and kind.name in ADDED:
                    measuring.add_to_direct(figures, before, ADDED[kind.name])
                rounds.setdefault(name, []).append(figures)
        return rounds, loads

    def decision(self, kind: Kind) -> None:
        """The engine's decision against a script in a store."""
        names = [f"{store}, {load[0]}" for store in STORES for load in stores.LOADS if wanted(self.options, store)]
        rounds: dict[str, list[dict]] = {}
        why: dict[str, str] = {}
        started: dict[str, stores.Store] = {}
        for store in STORES:
            if not wanted(self.options, store):
                continue
            try:
                program = STORES[store](self.options.cache, True)
                started[store] = stores.start(store, program, self.folder(), self.options.core)
            except Fault as fault:
                why[store] = str(fault)
        try:
            benchmark = packages.debian(self.options.cache, "redis-tools", "redis-benchmark")
        except Fault as fault:
            why |= {store: str(fault) for store in started}
        binary = None
        try:
            binary = engine.find("decision", self.options.benchmarks)
        except Fault as fault:
            why[show.OURS] = str(fault)
        for number in range(self.options.rounds):
            say(f"{kind.name}: round {number + 1} of {self.options.rounds}")
            if binary and show.OURS not in why:
                try:
                    rounds.setdefault(show.OURS, []).append(engine.decision(binary, self.options.core, self.folder()))
                except Fault as fault:
                    why[show.OURS] = str(fault)
            for store, server in started.items():
                for load_of_it in stores.LOADS:
                    if store in why:
                        break
                    try:
                        figures = stores.turn(benchmark, server, self.options.load_core, load_of_it, self.options.seconds)
                        rounds.setdefault(f"{store}, {load_of_it[0]}", []).append(figures)
                    except Fault as fault:
                        why[store] = str(fault)
        what = {show.OURS: "cargo bench -p bench --bench decision: whole, both gates and the settlement, one thread"}
        rows = []
        for name in [show.OURS, *names]:
            store = name.split(", ")[0]
            reason = why.get(name) or why.get(store)
            if reason or name not in rounds:
                rows.append(self.absent(kind, name, reason or "not measured"))
                continue
            version = started[store].version if store in started else None
            said = what.get(name, "a script that checks and takes 8 counters, and one that gives 5 back; no persistence")
            against = show.OURS if show.OURS in rounds else None
            load_name = stores.OURS if name == show.OURS else name.split(", ", 1)[1]
            row = show.line(self.about, kind, name, against, rounds[name], rounds.get(show.OURS, []),
                            version=version, what=said, load=load_name, name=store, shown=store)
            rows.append(row)
        processes.stop_all()
        self.keep(kind, rows)

    def two_cores(self, kind: Kind) -> None:
        """Each row with two workers has its ratio to the one with one."""
        backend = cores.start_backend(self.options.loadtest, self.folder())
        nginx, ours = Nginx(), self.peers[0]
        servers, why, rounds = {}, {}, {}
        rows = [row for row in cores.rows() if wanted(self.options, row.name) or row.name.startswith(show.OURS)]
        for row in rows:
            try:
                if row.limits is None:
                    nginx.get(self.options.cache, True)
                servers[row.name] = cores.launch(row, nginx, ours, self.folder(), backend, (self.options.core, self.options.load_core))
            except Fault as fault:
                why[row.name] = str(fault)
        for number in range(self.options.rounds):
            say(f"{kind.name}: round {number + 1} of {self.options.rounds}")
            for name, server in servers.items():
                if name in why:
                    continue
                try:
                    rounds.setdefault(name, []).append(measuring.turn(self.bench, server, kind, 32, spread=True))
                except Fault as fault:
                    why[name] = str(fault)
        found = []
        for row in rows:
            if row.name in why or row.name not in rounds:
                found.append(self.absent(kind, row.name, why.get(row.name, "not measured")))
                continue
            against = row.against if row.against in rounds else None
            theirs = rounds.get(row.against, []) if against else []
            found.append(show.line(self.about, kind, row.name, against, rounds[row.name], theirs, what=row.what, load="32 connections", name=row.name.rsplit(", ", 1)[0]))
        processes.stop_all()
        self.keep(kind, found)

    def threads(self, kind: Kind) -> None:
        """The engine's operations on one thread and on two."""
        rounds: dict[str, list[dict]] = {}
        why: dict[str, str] = {}
        for number in range(self.options.rounds):
            say(f"{kind.name}: round {number + 1} of {self.options.rounds}")
            for shown, name in engine.CONTENTION:
                try:
                    binary = engine.find("contention", self.options.benchmarks)
                    figures = engine.contention(binary, name, (self.options.core, self.options.load_core), self.folder())
                    rounds.setdefault(shown, []).append(figures)
                except Fault as fault:
                    why[shown] = str(fault)
        what = "cargo bench -p bench --bench contention"
        rows = [
            self.absent(kind, shown, why[shown]) if shown in why
            else show.line(self.about, kind, shown, None, rounds[shown], [], what=what, load="1 and 2 threads", name="all")
            for shown, _ in engine.CONTENTION
        ]
        self.keep(kind, rows)

    def measure(self, kind: Kind) -> None:
        {"decision": self.decision, "cores": self.two_cores, "engine": self.threads}.get(kind.name, self.proxied)(kind)

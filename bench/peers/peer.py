"""What every peer is asked for: to be had, to say its version, and to be started as one row kind wants it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from harness import gateway, processes
from harness.gateway import MANY

# What clients send to the peers; two of them, so that a check can spend one and use the other. Both are of one team.
CREDENTIAL = "Bearer tt_vk_012345678901_01234567890123456789012345678901"
SECOND_CREDENTIAL = "Bearer tt_vk_012345678902_01234567890123456789012345678901"
TEAM, ORG = "ml", "acme"


class Absent(Exception):
    """Why a peer has no row of a kind, in a few words: nothing is wrong, it just has no such thing."""


@dataclass(frozen=True)
class Caps:
    """The caps of a row: `rpm` a minute for each place, `slots` requests at once, a whole chain of places or the key alone."""

    rpm: int
    slots: int
    chain: bool = False


NEVER = Caps(MANY, 10_000)  # never refuses
NEVER_CHAIN = Caps(MANY, 10_000, chain=True)
SPENT = Caps(1, 10_000)  # refuses all but the first
SMALL = Caps(60, 4)  # what a check can see
SMALL_CHAIN = Caps(60, 10_000, chain=True)  # the same, of a team


@dataclass(frozen=True)
class Task:
    """How a peer is to be started."""

    folder: Path  # its own, empty
    backend: int  # the port of the model backend
    cores: tuple[int, ...]
    caps: Caps | None = None
    answer: bool = False  # a constant answer of its own, without a backend
    streams: bool = False  # what it proxies are event streams
    workers: int = 1


@dataclass
class Server:
    """A started peer, ready to be asked."""

    processes: list[subprocess.Popen]  # all that its CPU time and memory are made of
    port: int
    what: str  # what it has on
    headers: list[str] = field(default_factory=list)
    second_headers: list[str] = field(default_factory=list)  # another client's
    path: str = gateway.PATH
    body: str | None = gateway.BODY
    second_body: str | None = None  # another client's, where the body says who asks
    exact: bool = True  # passes on what the backend said, byte for byte
    bearers: Path | None = None  # a file of credentials that requests take in turn

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def cpu_seconds(self) -> float:
        return sum(processes.cpu_seconds(process.pid) for process in self.processes)

    def rss_mib(self) -> float:
        return sum(processes.rss_mib(process.pid) for process in self.processes)


class Peer:
    """One peer. Those that serve fewer requests are asked over fewer connections, so that latency is not all queue."""

    name = ""
    package = ""  # how it is had
    connections = 32
    streams = 64
    stream_caps: Caps | None = None  # caps of its row of streams, where it has such a row twice

    def get(self, cache: Path, install: bool) -> None:
        """Makes the peer ready to be started. A `Fault` says why it cannot be had."""

    def version(self) -> str:
        raise NotImplementedError

    def write(self, task: Task, port: int) -> tuple[list[str], str]:
        """Writes the configuration into the task's folder; the command that serves it, and what is on."""
        raise NotImplementedError

    def verifier(self, task: Task) -> list[str] | None:
        """The command with which the program itself checks the configuration that `write` left, where it has one."""
        return None

    def environment(self) -> dict | None:
        return None

    def launch(self, task: Task) -> Server:
        """Starts it. `Absent` when there is no such row, a `Fault` when it does not start."""
        port, log = processes.free_port(), task.folder / "log"
        argv, what = self.write(task, port)
        process = processes.start(argv, task.cores, log, self.environment())
        first, second = ([f"Authorization: {credential}"] for credential in (CREDENTIAL, SECOND_CREDENTIAL))
        server = Server([process], port, what, first, second)
        if task.answer:
            server.path, server.body = "/", None
        processes.wait_for(port, process, log, 30)
        return server


def with_places(server: Server, task: Task) -> Server:
    """For a peer that learns team and org from header fields: its clients send them where they count."""
    if task.caps and task.caps.chain:
        for fields in (server.headers, server.second_headers):
            fields += [f"X-Team: {TEAM}", f"X-Org: {ORG}"]
    return server

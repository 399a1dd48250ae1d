"""Turns: one peer, some seconds of load, the figures of it; and whether it answers rightly."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass

from harness import Fault, gateway, load
from harness.machine import busy_seconds, stolen

from .kinds import Kind
from .peer import Server

STREAMED_TOKENS, TOKENS_PER_SECOND = 50, 100


@dataclass(frozen=True)
class Bench:
    """What all turns of a run have in common."""

    loadtest: str
    core: int
    load_core: int
    seconds: float
    warm_up: float


def streamed(body: str) -> str:
    """The same request, answered as a stream."""
    document = json.loads(body)
    document |= {"stream": True, "max_tokens": STREAMED_TOKENS}
    return json.dumps(document)


def ask(server: Server, body: str | None, timeout: float = 60) -> tuple[int, bytes]:
    """One request, outside all measurement."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    try:
        fields = dict(header.split(": ", 1) for header in server.headers)
        connection.request("POST" if body is not None else "GET", server.path, body, fields)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Fault(f"no answer: {error!r}") from None
    finally:
        connection.close()


def essence(answer: bytes) -> tuple:
    """What a model's answer says and used, however it is written."""
    document = json.loads(answer)
    usage = document["usage"]
    return document["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["completion_tokens"]


def said(stream: bytes) -> str:
    """The text of an event stream."""
    text = ""
    for line in stream.decode(errors="replace").splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:]).get("choices", []):
                text += choice.get("delta", {}).get("content") or ""
    return text


def check_answer(server: Server, kind: Kind, direct: Server) -> None:
    """A fault unless what comes through the peer is what the backend says."""
    if kind.task.get("answer"):
        status, _ = ask(server, None)
        if status != 200:
            raise Fault(f"{server.path} was answered with {status}")
        return
    streams = bool(kind.task.get("streams"))
    body = streamed(server.body) if streams else server.body
    status, answer = ask(server, body)
    if status != 200:
        raise Fault(f"the first request was answered with {status}: {answer[:300].decode(errors='replace')}")
    _, wanted = ask(direct, streamed(gateway.BODY) if streams else gateway.BODY)
    try:
        if streams:
            same = said(answer) == said(wanted)
        elif server.exact and kind.name != "check":  # whose backend gives each answer an id and a time
            same = answer == wanted
        else:
            same = essence(answer) == essence(wanted)
    except (ValueError, KeyError, IndexError) as error:
        raise Fault(f"the answer is none of a model ({error!r}): {answer[:300]!r}") from None
    if not same:
        raise Fault(f"the answer is not the backend's: {answer[:300]!r}")


def drive(bench: Bench, server: Server, kind: Kind, connections: int, seconds: float, spread: bool = False) -> dict:
    body, rate = server.body, None
    if body is not None and kind.task.get("streams"):
        # Begun evenly, each when it is due: as many at a time as keep four fifths of the connections busy.
        body, rate = streamed(body), 0.8 * connections * TOKENS_PER_SECOND / STREAMED_TOKENS
    more = ("--bearer-file", str(server.bearers)) if server.bearers else ()
    core = None if spread else bench.load_core
    report = load.run(bench.loadtest, server.url, core, seconds, connections, server.headers, body, rate=rate, more=more)
    wrong = load.wrong(report, kind.status)
    if wrong and kind.status == "429" and report["statuses"].get("429", 0) > 0.99 * report["answers"] and not report["all_failures"]:
        wrong = None  # what has come back of the cap meanwhile
    if wrong:
        raise Fault(wrong)
    return report


def turn(bench: Bench, server: Server, kind: Kind, connections: int, spread: bool = False) -> dict:
    """One round of one peer: a warm-up that is not counted, then the measured time. `spread`: the load runs on any core."""
    streams = bool(kind.task.get("streams"))
    drive(bench, server, kind, connections, bench.warm_up, spread)
    steal_before, busy_before = stolen(), busy_seconds(bench.core)
    cpu_before, began = server.cpu_seconds(), time.monotonic()
    report = drive(bench, server, kind, connections, bench.seconds, spread)
    cpu, took = server.cpu_seconds() - cpu_before, time.monotonic() - began
    steal, busy = stolen(), busy_seconds(bench.core) - busy_before
    latency, measured = report["latency_us"], bool(server.processes)
    figures = {
        "requests_per_s": report["answers_per_s"],
        "p50_us": latency["p50"],
        "p99_us": latency["p99"],
        "p999_us": latency["p99.9"],
        "cpu_us_per_request": round(cpu / report["answers"] * 1e6, 3) if measured else None,
        "rss_mib": round(server.rss_mib(), 1) if measured else None,
        # More than connections of the load: the peer closes them, and the client pays for that.
        "connects": report["connects"],
    }
    if streams:
        figures |= {
            "events_per_s": round(report["events"] / took, 1),
            "first_p50_us": report["first_event_us"]["p50"],
            "first_p99_us": report["first_event_us"]["p99"],
            "gap_p99_us": report["event_gap_us"]["p99"],
            # None of a peer that writes events anew, without what it does not know.
            **{f"delay_{name}_us": (report["event_delay_us"] or {}).get(name) for name in ("p50", "p99")},
            "cpu_us_per_event": round(cpu / report["events"] * 1e6, 3) if measured else None,
        }
    # What else ran on the measured core: above a few per cent the figures are not worth much.
    figures["others_percent"] = None if spread or not measured else round(100 * max(0.0, busy - cpu) / took, 1)
    figures["steal_percent"] = round(100 * (steal[0] - steal_before[0]) / max(1, steal[1] - steal_before[1]), 1)
    return figures


def statuses(bench: Bench, server: Server, connections: int, requests: int, second: bool = False) -> dict:
    """How so many requests of one client were answered."""
    headers = server.second_headers if second else server.headers
    body = server.second_body or server.body if second else server.body
    report = load.run(bench.loadtest, server.url, bench.load_core, None, connections, headers, body, requests=requests)
    return report["statuses"]


def check_caps(bench: Bench, server: Server) -> dict:
    """How many of 70 requests pass 60 a minute, and how many of 8 at once pass 4 slots; with what the others are answered."""
    # The first request of an interpreter is slow, and the eight must meet.
    ask(server, server.body)
    slots = statuses(bench, server, 8, 8, second=True)
    rate = statuses(bench, server, 4, 68)
    return {
        "rate_passed": rate.get("200", 0) + 2,  # with the one that was compared with the backend's, and the one above
        "slots_passed": slots.get("200", 0),
        "refused_with": sorted((set(rate) | set(slots)) - {"200"}),
    }


def check_team(bench: Bench, server: Server) -> dict:
    """How many of 35 requests each of two clients of one team pass 60 a minute of the team."""
    first = statuses(bench, server, 4, 34).get("200", 0) + 1  # with the one that was compared with the backend's
    return {"team_passed": first + statuses(bench, server, 4, 35, second=True).get("200", 0)}


def add_to_direct(figures: dict, direct: dict, what: str) -> None:
    """Sets what the peer adds to the latency, or to another time (`delay_`), that there is without it, in the same round."""
    for name in ("p50", "p99"):
        mine, theirs = figures[f"{what}{name}_us"], direct[f"{what}{name}_us"]
        figures[f"added_{what}{name}_us"] = None if mine is None or theirs is None else round(mine - theirs, 3)

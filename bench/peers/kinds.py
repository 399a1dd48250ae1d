"""The row kinds: what each asks of a peer, and which figures its table has."""

from __future__ import annotations

from dataclasses import dataclass, field

from .peer import NEVER, NEVER_CHAIN, SMALL, SPENT, Caps


@dataclass(frozen=True)
class Figure:
    """A column: the name of the figure in the kept lines, its heading, its digits, and whether it has a ratio to ours."""

    name: str
    heading: str
    digits: int = 0
    ratio: bool = True


REQUESTS = (
    Figure("requests_per_s", "requests/s"),
    Figure("p50_us", "p50 us"),
    Figure("p99_us", "p99 us"),
    Figure("p999_us", "p99.9 us"),
    Figure("cpu_us_per_request", "CPU us a request", 2),
    Figure("rss_mib", "RSS MiB", 1),
)


@dataclass(frozen=True)
class Kind:
    """One table."""

    name: str
    title: str
    about: str
    figures: tuple[Figure, ...] = REQUESTS
    task: dict = field(default_factory=dict)  # members of `Task`
    status: str = "200"
    connections: int | None = None  # instead of each peer's own
    direct: bool = False  # with a row that has no proxy

    @property
    def caps(self) -> Caps | None:
        return self.task.get("caps")


KINDS = [
    Kind("check", "Whether the caps are on", "70 requests of one client against 60 a minute, 8 at once against 4 slots, and with the"
         " caps of `chain` 35 requests each of two clients of one team against 60 a minute of the team; backend with 150 ms. A token"
         " bucket fills again meanwhile. In brackets how the others were answered.",
         (Figure("rate_passed", "of 70 passed", 0, False), Figure("slots_passed", "of 8 at once", 0, False),
          Figure("team_passed", "of 70 of a team", 0, False)), {"caps": SMALL}),
    Kind("plain", "Plain proxy", "No caps; closed loop.", task={}, direct=True),
    Kind("caps", "A rate and slots a key", "The caps never refuse.", task={"caps": NEVER}),
    Kind("chain", "The whole chain", "tokentriage with 8 caps on 4 levels, the others with what comes nearest; the caps never refuse.",
         task={"caps": NEVER_CHAIN}),
    Kind("storm", "Refusals", "A client whose cap is spent asks on and on: each answer is a 429.", task={"caps": SPENT}, status="429"),
    Kind("fixed", "An answer of its own", "No backend: `return 200`, `/tt/v1/healthz` and the like.", task={"answer": True}),
    Kind("streams", "Event streams", "Streams of 50 tokens, one each 10 ms, begun at even times (open loop); the time to the first event, and how long each"
         " event is on its way, by the time that the backend writes into it; what of that the proxy adds (peers that write events anew drop the"
         " time).",
         (Figure("events_per_s", "events/s"), Figure("first_p50_us", "first event p50 us"), Figure("delay_p50_us", "delay p50 us"),
          Figure("delay_p99_us", "delay p99 us"), Figure("added_delay_p50_us", "added p50 us", 1),
          Figure("added_delay_p99_us", "added p99 us", 1), Figure("cpu_us_per_event", "CPU us an event", 2),
          Figure("rss_mib", "RSS MiB", 1)),
         {"streams": True}, direct=True),
    Kind("one", "One client, one request after the other", "What a proxy adds to the latency without one; no caps.",
         (Figure("p50_us", "p50 us", 0, False), Figure("p99_us", "p99 us", 0, False), Figure("added_p50_us", "added p50 us", 1),
          Figure("added_p99_us", "added p99 us", 1), Figure("cpu_us_per_request", "CPU us a request", 2)),
         connections=1, direct=True),
    Kind("decision", "The decision alone", "Eight caps checked and taken together, and settled: tokentriage's engine in its own process,"
         " against one Lua script that checks and takes, and a second one that settles, in a store on the same core as ours.",
         (Figure("decisions_per_s", "decisions/s"), Figure("cpu_us_per_decision", "CPU us a decision", 3),
          Figure("p50_us", "p50 us of the first call", 1), Figure("p99_us", "p99 us of the first call", 1))),
    Kind("cores", "Two workers against one", "Generator and backend run wherever the system puts them, on the same two processors.",
         (Figure("requests_per_s", "requests/s"), Figure("cpu_us_per_request", "CPU us a request", 2), Figure("p99_us", "p99 us", 0))),
    Kind("engine", "Two threads against one, in the engine alone", "Nanoseconds of one operation as a thread sees it, and how much two"
         " threads do together, one being 1.",
         (Figure("one_ns", "1 thread, ns", 1, False), Figure("two_ns", "2 threads, ns", 1, False), Figure("together", "together", 2, False))),
]
BY_NAME = {kind.name: kind for kind in KINDS}

"""Where figures come from, what disturbed them, and how a run is preferred to other work."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
from pathlib import Path

from . import ROOT, Fault

SOURCES = ["engine", "net", "control", "src", "loadtest"]


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def is_stale(binary: str) -> bool:
    """Whether a source of the program was committed after it was built: its figures are not those of the commit."""
    sources = ["loadtest"] if Path(binary).name == "loadtest" else SOURCES
    committed = output("git", "log", "-1", "--format=%ct", "--", *sources)
    return Path(binary).stat().st_mtime < int(committed or 0)


def facts(binaries: list[str]) -> dict:
    """Date, commit and machine, as each line of bench/results has them."""
    changed = output("git", "status", "--porcelain", "--untracked-files=no", "--", *SOURCES)
    state = ("+changes" if changed else "") + ("+older-binary" if any(map(is_stale, binaries)) else "")
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": output("git", "rev-parse", "--short=12", "HEAD") + state,
        "cpu": processor(),
        "cores": os.cpu_count(),
        "kernel": os.uname().release,
    }


def find_binary(name: str, given: str | None) -> str:
    """One of this repository's programs, where cargo puts it or where an option says."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(given) if given else target / "release" / name
    if not path.is_file():
        raise Fault(f"{path} is not there: build it with `cargo build --release --workspace`, or name it with --{name}")
    return str(path.resolve())


def stolen() -> tuple[int, int]:
    """Ticks that the hypervisor took, and all ticks."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return fields[7], sum(fields)


def busy_seconds(core: int) -> float:
    """The time that a core was not idle so far, whoever used it."""
    for line in Path("/proc/stat").read_text().splitlines():
        words = line.split()
        if words[0] == f"cpu{core}":
            ticks = [int(word) for word in words[1:9]]
            return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    return 0.0


def prefer_this_run() -> None:
    """Puts this run into a session of its own that the scheduler prefers to others; needs root.

    Processes of different sessions share a core as groups, so a nice value of a process alone does nothing against a busy
    neighbour. A real-time class would, but the kernel stops it for 50 ms of each second, which is then all that p99 shows.
    """
    child = os.fork()
    if child:
        try:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        except (KeyboardInterrupt, SystemExit):
            os.kill(child, signal.SIGTERM)
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.setsid()
    try:
        Path("/proc/self/autogroup").write_text("-20")
    except OSError as error:
        raise Fault(f"--priority: the scheduler does not let us: {error}") from None

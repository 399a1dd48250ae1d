"""Children: started on their cores, waited for, measured as a tree, and ended on every path."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from . import Fault

STARTED: list[subprocess.Popen] = []
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


def start(argv: list, cores: int | Iterable[int] | None, log: Path, env: dict | None = None) -> subprocess.Popen:
    """Starts a process on its cores (`None`: on any); what it prints goes to `log`. It ends with this script, however that ends."""
    wanted = {cores} if isinstance(cores, int) else set(cores) if cores is not None else None
    parent = os.getpid()

    def before() -> None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)
        if wanted:
            os.sched_setaffinity(0, wanted)

    with open(log, "ab") as out:
        process = subprocess.Popen(
            [str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=log.parent, preexec_fn=before
        )
    STARTED.append(process)
    return process


def stop(processes: Iterable[subprocess.Popen]) -> None:
    """Ends processes with all their descendants, by process id."""
    processes = list(processes)
    descendants = {one for process in processes if process.poll() is None for one in tree(process.pid)[1:]}
    born = {one: started_at(one) for one in descendants}
    for process in reversed(processes):
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process in STARTED:
            STARTED.remove(process)
    for one, then in born.items():
        # An id may have been given to another process since.
        if then is not None and started_at(one) == then:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                pass


def stop_all() -> None:
    """Ends all that `start` has started."""
    stop(list(STARTED))


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                todo += [int(word) for word in children.read_text().split()]
            except OSError:
                pass  # that thread has ended
    return found


def stat_fields(pid: int) -> list[str]:
    """`/proc/PID/stat` from the state on, or nothing when the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def started_at(pid: int) -> str | None:
    fields = stat_fields(pid)
    return fields[19] if fields else None


def cpu_seconds(pid: int) -> float:
    """User and system time of a process tree so far: exact from schedstat, else in hundredths from stat."""
    total = 0
    for one in tree(pid):
        for stat in Path(f"/proc/{one}/task").glob("*/schedstat"):
            try:
                total += int(stat.read_text().split()[0])
            except (OSError, IndexError):
                pass
    if total:
        return total / 1e9
    ticks = 0
    for one in tree(pid):
        fields = stat_fields(one)
        ticks += int(fields[11]) + int(fields[12]) if fields else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """Resident memory of a process tree; pages that its processes share count in each."""
    pages = 0
    for one in tree(pid):
        try:
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
        except OSError:
            pass  # it has ended
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def last_lines(log: Path, count: int = 4) -> str:
    """The end of what a process printed, on one line; with the last line that speaks of an error, when that is further up."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "(no log)"
    end = lines[-count:]
    if not any("error" in line.lower() for line in end):
        end = [line for line in lines if "error" in line.lower()][-1:] + end
    return " | ".join(end) or "(it printed nothing)"


def wait_for(port: int, process: subprocess.Popen, log: Path, seconds: float = 10) -> None:
    """Returns when something listens on the port; a fault with the end of the log when that does not come to be."""
    name, end = Path(process.args[0]).name, time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise Fault(f"{name} ended with {process.returncode}: {last_lines(log)}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise Fault(f"{name} does not listen on port {port} after {seconds:.0f} s: {last_lines(log)}")

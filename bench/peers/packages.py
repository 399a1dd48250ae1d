"""Getting peers by package name, each at a pinned version, into one cache folder; nothing is installed on the system.

A folder of the cache has a file `done` with what was asked for, written last: what is half there is made anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness import Fault

SBIN = "/usr/sbin:/usr/local/sbin"
LONGEST = 900.0  # seconds of one installation: LiteLLM has 750 MB


def tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def run(argv: list, folder: Path) -> str:
    """Runs one step of an installation; a fault with the end of what it said when it fails."""
    argv = [str(word) for word in argv]
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=LONGEST, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Fault(f"`{' '.join(argv[:4])}`: {error}") from None
    if done.returncode != 0:
        said = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise Fault(f"`{' '.join(argv[:6])}` ended with {done.returncode}: {said}")
    return done.stdout


def made(folder: Path, wanted: str) -> bool:
    stamp = folder / "done"
    return stamp.exists() and stamp.read_text() == wanted


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@dataclass(frozen=True)
class Program:
    """A program and the environment that it needs."""

    path: Path
    env: dict[str, str]

    def says(self, *words: str) -> str:
        """The first line that it prints, on either stream."""
        done = subprocess.run(
            [str(self.path), *words], capture_output=True, text=True, timeout=120, env={**os.environ, **self.env}
        )
        return ((done.stdout + done.stderr).strip().splitlines() or ["unknown"])[0]


def debian(cache: Path, package: str, program: str, install: bool = True) -> Program:
    """A program of a Debian package: the system's own, else unpacked into the cache with what it depends on."""
    found = shutil.which(program) or shutil.which(program, path=SBIN)
    if found:
        return Program(Path(found), {})
    folder = cache / f"debian-{package}"
    if not made(folder, package):
        if not install:
            raise Fault(f"{program} is not here")
        tell(f"unpacking the Debian package {package} into {folder}")
        fresh(folder)
        plan = run(["apt-get", "install", "--simulate", "--no-install-recommends", package], folder)
        names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")] or [package]
        run(["apt-get", "download", *names], folder)
        for archive in sorted(folder.glob("*.deb")):
            run(["dpkg", "-x", archive, folder / "root"], folder)
            archive.unlink()
        (folder / "done").write_text(package)
    root = folder / "root"
    for place in ("usr/sbin", "usr/bin"):
        if (root / place / program).exists():
            libraries = [str(path) for path in (root / "usr/lib").glob("*-linux-gnu")]
            return Program(root / place / program, {"LD_LIBRARY_PATH": ":".join(libraries)})
    raise Fault(f"the Debian package {package} holds no {program}")


def python(cache: Path, name: str, requirement: str, install: bool = True) -> Path:
    """A virtual environment with one requirement and what it depends on."""
    folder = cache / f"python-{name}"
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return with_requirement(folder, requirement, install, [sys.executable, "-m", "venv", folder], [*pip, requirement])


def node(cache: Path, name: str, requirement: str, install: bool = True) -> Path:
    """A folder with `node_modules` of one requirement and what it depends on; no package's own script runs."""
    folder = cache / f"node-{name}"
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
    return with_requirement(folder, requirement, install, ["npm", "install", *quiet, "--prefix", folder, requirement])


def with_requirement(folder: Path, requirement: str, install: bool, *commands: list) -> Path:
    """The folder, made by these commands unless it was already."""
    if not made(folder, requirement):
        if not install:
            raise Fault(f"{requirement} is not installed")
        tell(f"installing {requirement} into {folder}")
        fresh(folder)
        for command in commands:
            run(command, folder)
        (folder / "done").write_text(requirement)
    return folder

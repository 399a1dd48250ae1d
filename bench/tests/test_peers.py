"""`bench/peers/run`: its tables, and the configurations that it writes, as far as a peer is here to read them."""

import ast
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))
from harness import Fault, processes
from peers import measuring, packages, show, stores
from peers.gateways import Litellm, Tensorzero, valkey_server
from peers.kinds import BY_NAME, KINDS
from peers.peer import Task
from peers.proxies import Envoy, Haproxy, Nginx, Traefik

CACHE = Path(os.environ.get("CARGO_TARGET_DIR", BENCH.parent / "target")).resolve() / "peers"
ABOUT = {"date": "2026-01-01T00:00:00Z", "commit": "abc", "command": "bench/peers/run", "cpu": "a cpu", "kernel": "6"}


def a_round(requests: float, cpu: float | None, others: float | None = 0.0) -> dict:
    return {"requests_per_s": requests, "p50_us": 10.0, "p99_us": 20.0, "p999_us": 30.0, "cpu_us_per_request": cpu,
            "rss_mib": 5.0, "others_percent": others}


def rows(others: float = 0.0) -> list[dict]:
    kind, ours = BY_NAME["plain"], [a_round(1000, 10.0), a_round(2000, 20.0), a_round(1000, 10.0)]
    theirs = [a_round(1200, 8.0, others), a_round(2400, 16.0, others), a_round(1100, 9.0, others)]
    return [
        show.line(ABOUT, kind, "tokentriage", "tokentriage", ours, ours, version="tokentriage 0", what="governance off", load="32"),
        show.line(ABOUT, kind, "nginx", "tokentriage", theirs, ours, version="nginx/1", what="proxy_pass", load="32"),
        {**ABOUT, "kind": "plain", "peer": "LiteLLM", "why": "not to be had"},
    ]


class Tables(unittest.TestCase):
    def test_each_figure_has_its_ratio_to_ours(self):
        text = show.table(BY_NAME["plain"], rows(), markdown=True)
        self.assertIn("| tokentriage | 32 | 1,000 (1) | 10 (1) | 20 (1) | 30 (1) | 10.00 (1) | 5.0 (1) |", text)
        self.assertIn("| nginx | 32 | 1,200 (1.20) | 10 (1.00) | 20 (1.00) | 30 (1.00) | 9.00 (0.80) | 5.0 (1.00) |", text)
        self.assertIn("- nginx: proxy_pass", text)
        self.assertIn("- LiteLLM: no row: not to be had", text)
        self.assertNotIn("DISTURBED", text)

    def test_a_disturbed_run_says_so(self):
        self.assertIn("DISTURBED: other work took up to 40 %", show.table(BY_NAME["plain"], rows(40.0)))

    def test_ratios_of_any_size_can_be_read(self):
        for ratio, wanted in [(1234.5, "1,234"), (45.67, "45.7"), (1.2345, "1.23"), (0.5, "0.50"), (0.0123, "0.012")]:
            self.assertEqual(show.times(ratio), wanted)

    def test_the_section_shows_the_last_run_of_each_kind(self):
        with tempfile.TemporaryDirectory() as home:
            path = Path(home) / "peers.jsonl"
            old = [{**row, "date": "2025-01-01T00:00:00Z", "peer": "gone"} for row in rows()]
            path.write_text("".join(json.dumps(row) + "\n" for row in old + rows()))
            found = show.latest(path)
        self.assertEqual([row["peer"] for row in found["plain"]], ["tokentriage", "nginx", "LiteLLM"])
        section = show.section(found)
        self.assertIn("### Plain proxy", section)
        self.assertIn("Versions: tokentriage 0; nginx/1.", section)
        self.assertNotIn("gone", section)

    def test_every_kind_has_a_table(self):
        for kind in KINDS:
            figures = {figure.name: 1234.5 for figure in kind.figures}
            row = show.line(ABOUT, kind, "nginx", "tokentriage", [figures], [figures], what="on", load="32 closed")
            head = show.table(kind, [row], markdown=True).splitlines()[0]
            self.assertEqual(head.count("|"), len(kind.figures) + 3, kind.name)


class Answers(unittest.TestCase):
    def test_what_a_model_says_is_the_same_however_it_is_written(self):
        usage = {"prompt_tokens": 3, "completion_tokens": 4}
        answer = {"id": 1, "choices": [{"message": {"content": "yes"}}], "usage": usage}
        other = {"choices": [{"message": {"content": "yes"}, "index": 0}], "usage": {**usage, "total_tokens": 7}, "id": 2}
        self.assertEqual(measuring.essence(json.dumps(answer).encode()), measuring.essence(json.dumps(other).encode()))
        chunk = 'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n'
        self.assertEqual(measuring.said((chunk % "a" + chunk % "b" + 'data: {"choices":[]}\n\ndata: [DONE]\n\n').encode()), "ab")


def tasks(folder: Path):
    """A task for each kind of proxied row, each with a folder of its own."""
    for kind in KINDS:
        if kind.name in ("decision", "cores", "engine"):
            continue
        home = folder / kind.name
        home.mkdir()
        yield kind, Task(home, 9, (0,), **kind.task)


class Configurations(unittest.TestCase):
    def check(self, peer) -> None:
        """The peer's own program accepts what is written for each row kind."""
        try:
            peer.get(CACHE, False)
        except Fault as fault:
            self.skipTest(f"{fault}; bench/peers/run --install-only gets it")
        with tempfile.TemporaryDirectory() as home:
            for kind, task in tasks(Path(home)):
                _, what = peer.write(task, 12345)
                self.assertTrue(what)
                done = subprocess.run(
                    peer.verifier(task), capture_output=True, text=True, timeout=60, env=peer.environment(), cwd=task.folder
                )
                self.assertEqual(done.returncode, 0, f"{peer.name}, {kind.name}: {done.stdout}{done.stderr}")

    def test_nginx(self):
        self.check(Nginx())

    def test_haproxy(self):
        self.check(Haproxy())

    def test_envoy(self):
        self.check(Envoy())

    def test_what_has_no_verifier_is_well_formed_at_least(self):
        traefik, litellm, tensorzero = Traefik(), Litellm(), Tensorzero()
        traefik.program = litellm.home = tensorzero.python = Path("nowhere")
        with tempfile.TemporaryDirectory() as home:
            for kind, task in tasks(Path(home)):
                for peer in (traefik, litellm, tensorzero):
                    peer.write(task, 12345)
                dynamic = json.loads((task.folder / "dynamic.yaml").read_text())["http"]
                # A middleware that no router names is no cap.
                self.assertEqual(dynamic["routers"]["all"].get("middlewares", []), list(dynamic.get("middlewares", {})))
                rules = tomllib.loads((task.folder / "tensorzero.toml").read_text()).get("rate_limiting", {}).get("rules", [])
                (limits,) = (
                    ast.literal_eval(line.removeprefix("LIMITS = "))
                    for line in (task.folder / "custom_auth.py").read_text().splitlines()
                    if line.startswith("LIMITS = ")
                )
                for found in (dynamic.get("middlewares"), rules, limits):
                    self.assertEqual(bool(found), kind.caps is not None, kind.name)


class Stores(unittest.TestCase):
    def test_the_scripts_take_all_or_nothing_and_give_back(self):
        for name, get in {
            "Redis": lambda: packages.debian(CACHE, "redis-server", "redis-server", False),
            "Valkey": lambda: packages.Program(valkey_server(CACHE, False), {}),
        }.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as home:
                try:
                    program = get()
                except Fault as fault:
                    self.skipTest(f"{fault}; bench/peers/run --install-only gets it")
                try:
                    # It checks itself: one request, settled, then a cap that is full.
                    store = stores.start(name, program, Path(home), 0)
                    before = [stores.command(store.port, "GET", key) for key in stores.KEYS]
                    full = list(store.calls["reserve"])
                    full[3 + 2 * len(stores.KEYS) - 1] = "0"
                    self.assertEqual(stores.command(store.port, *full), "8")
                    self.assertEqual([stores.command(store.port, "GET", key) for key in stores.KEYS], before)
                finally:
                    processes.stop_all()


class TheScript(unittest.TestCase):
    def test_the_list_names_every_kind_and_every_peer(self):
        done = subprocess.run([BENCH / "peers" / "run", "--list"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        names = [kind.name for kind in KINDS]
        names += ["tokentriage", "nginx", "HAProxy", "Envoy", "Traefik", "TensorZero", "Portkey", "LiteLLM", "Redis", "Valkey"]
        for name in names:
            self.assertRegex(done.stdout, rf"(?m)^  {name} ")

    def test_a_row_kind_that_is_none_is_told(self):
        done = subprocess.run([BENCH / "peers" / "run", "--rows", "plain,nonsense"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no nonsense; there are check, plain", done.stderr)

    def test_a_program_that_is_not_built_is_told(self):
        done = subprocess.run(
            [BENCH / "peers" / "run", "--rows", "plain", "--loadtest", "nowhere", "--no-keep"],
            capture_output=True, text=True, timeout=60,
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("nowhere is not there: build it with", done.stderr)


if __name__ == "__main__":
    unittest.main()

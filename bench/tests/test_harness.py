"""What the benchmarks share: figures, documents, processes."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))
from harness import Fault, processes, results, rounds

SCRIPTS = sorted(path for path in [*BENCH.glob("*/run"), BENCH / "record", BENCH / "plot"])


class Figures(unittest.TestCase):
    def test_a_median_is_of_the_rounds_that_have_the_figure(self):
        for given, wanted in [([], None), ([None], None), ([3], 3), ([1, None, 3], 2), ([5, 1, 3], 3), ([0, 0, 9], 0)]:
            self.assertEqual(rounds.median([{"cpu": one} for one in given] + [{}], "cpu"), wanted, given)

    def test_a_ratio_is_the_median_of_the_ratios_of_the_turns(self):
        for mine, theirs, wanted in [
            ([2, 4, 6], [1, 1, 1], 4),
            ([2, 4], [1, 4], 1.5),
            # The second turn was disturbed for both: the ratio does not see it.
            ([10, 1000, 10], [5, 500, 5], 2),
            ([2, 4, 6], [1], 2),
            ([2, None, 6], [1, 1, 1], 4),
            ([2], [0], None),
            ([], [1], None),
        ]:
            got = rounds.ratio([{"x": one} for one in mine], [{"x": one} for one in theirs], "x")
            self.assertEqual(got, wanted, (mine, theirs))

    def test_a_table_sets_its_columns(self):
        lines = [["row", "us"], ["a", "1"], ["long", "1000"]]
        self.assertEqual(rounds.table(lines), "row     us\na        1\nlong  1000")
        self.assertEqual(rounds.table(lines, markdown=True), "| row | us |\n| --- | ---: |\n| a | 1 |\n| long | 1000 |")


class Documents(unittest.TestCase):
    def test_a_section_is_exchanged_and_nothing_else(self):
        text = "# Results\n\n<!-- a: begin -->\nold\n<!-- a: end -->\n\nprose\n"
        self.assertEqual(results.with_section(text, "a", "new"), text.replace("old", "new"))
        added = results.with_section(text, "b", "other")
        self.assertTrue(added.startswith(text.rstrip("\n")))
        self.assertTrue(added.endswith("\n<!-- b: begin -->\nother\n<!-- b: end -->\n"))
        self.assertEqual(results.with_section(added, "b", "other"), added)

    def test_a_command_says_nothing_of_where_the_programs_are(self):
        for argv, wanted in [
            (["--rounds", "2"], "run --rounds 2"),
            (["--loadtest", "/x/y", "--rows", "plain"], "run --rows plain"),
            (["--tokentriage=/x/y", "--only", "a b"], "run --only 'a b'"),
        ]:
            self.assertEqual(results.command_line("run", argv=argv), wanted)


def is_alive(pid: int) -> bool:
    fields = processes.stat_fields(pid)
    return bool(fields) and fields[0] != "Z"


def ended(pids: list[int], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while any(is_alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(is_alive(pid) for pid in pids)


class Children(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.log = Path(self.home.name) / "log"

    def tearDown(self):
        processes.stop_all()
        self.home.cleanup()

    def test_a_stopped_process_takes_its_descendants_with_it(self):
        for how in ("sleep 600 & wait", "trap '' TERM; sleep 600 & while :; do sleep 1; done"):
            process = processes.start(["sh", "-c", how], None, self.log)
            end = time.monotonic() + 20
            while len(processes.tree(process.pid)) < 2 and time.monotonic() < end:
                time.sleep(0.02)
            pids = processes.tree(process.pid)
            self.assertGreater(len(pids), 1, how)
            processes.stop([process])
            self.assertTrue(ended(pids), how)

    def test_children_end_with_the_script_however_it_ends(self):
        script = (
            f"import signal, sys, time; sys.path.insert(0, {str(BENCH)!r})\n"
            # Whoever starts the tests in the background may have left it ignored, which is inherited.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from pathlib import Path; from harness import processes\n"
            f"print(processes.start(['sleep', '600'], None, Path({str(self.log)!r})).pid, flush=True); time.sleep(600)\n"
        )
        for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            pid = int(parent.stdout.readline())
            self.assertTrue(is_alive(pid))
            os.kill(parent.pid, how)
            parent.wait(20)
            parent.stdout.close()
            self.assertTrue(ended([pid]), how)

    def test_who_does_not_listen_is_a_fault_with_the_end_of_its_log(self):
        process = processes.start(["sh", "-c", "echo one; echo no such port >&2; exit 3"], None, self.log)
        with self.assertRaisesRegex(Fault, r"sh ended with 3: one \| no such port"):
            processes.wait_for(processes.free_port(), process, self.log)

    def test_the_end_of_a_log_has_the_error_that_it_is_about(self):
        for lines, wanted in [
            ("", "(it printed nothing)"),
            ("a\n\nb\n", "a | b"),
            ("a\nb\nc\nd\ne\n", "b | c | d | e"),
            ("TypeError: no\n at a\n at b\n at c\n at d\n at e\n", "TypeError: no | at b | at c | at d | at e"),
            ("error: old\na\nb\nc\nerror: new\n", "a | b | c | error: new"),
        ]:
            self.log.write_text(lines)
            self.assertEqual(processes.last_lines(self.log), wanted)
        self.assertEqual(processes.last_lines(self.log.with_name("none")), "(no log)")

    def test_the_time_of_a_tree_is_that_of_all_its_processes(self):
        busy = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"
        both = f"import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', {busy + 'time.sleep(600)'!r}])\n{busy}time.sleep(600)"
        process = processes.start([sys.executable, "-c", both], None, self.log)
        end = time.monotonic() + 60
        while processes.cpu_seconds(process.pid) < 0.4 and time.monotonic() < end:
            time.sleep(0.05)
        self.assertGreaterEqual(processes.cpu_seconds(process.pid), 0.4)
        self.assertGreater(processes.rss_mib(process.pid), 1)


class Scripts(unittest.TestCase):
    def test_every_script_compiles(self):
        sources = SCRIPTS + sorted(BENCH.glob("**/*.py"))
        self.assertGreater(len(sources), 12)
        for path in sources:
            with self.subTest(path.relative_to(BENCH)):
                compile(path.read_text(), str(path), "exec")

    def test_every_script_that_measures_says_how_to_use_it(self):
        for path in sorted(BENCH.glob("*/run")):
            done = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"bench/{path.parent.name}/run", done.stdout)


if __name__ == "__main__":
    unittest.main()

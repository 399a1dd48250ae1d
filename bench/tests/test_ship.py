"""What `ship/build` decides before it builds anything."""

import importlib.machinery
import importlib.util
import sys
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "ship" / "build"
loader = importlib.machinery.SourceFileLoader("ship_build", str(SCRIPT))
ship = importlib.util.module_from_spec(importlib.util.spec_from_loader("ship_build", loader))
loader.exec_module(ship)


class Tools(unittest.TestCase):
    def test_host_and_llvm_are_read_from_what_rustc_says(self):
        said = "rustc 1.95.0 (0123456 2026-04-14)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n"
        self.assertEqual(ship.llvm_of(said), ("x86_64-unknown-linux-gnu", 22))
        for wrong in ["", "host: x\n", "LLVM version: 22\n", said.replace("LLVM", "GCC")]:
            with self.assertRaisesRegex(ship.Fault, "rustc --version"):
                ship.llvm_of(wrong)

    def test_only_the_tool_of_the_same_llvm_will_do(self):
        said = {
            "of-rustup": "LLVM version 22.1.2-rust-1.95.0-stable",
            "of-debian": "Debian LLVM version 22.1.8\n  Optimized build.",
            "old": "Debian LLVM version 14.0.6",
            "new": "LLVM version 23.0.0",
            "mute": "",
        }
        for candidates, wanted in [
            (["of-rustup", "of-debian"], "of-rustup"),
            (["absent", "of-debian"], "of-debian"),
            (["old", "mute", "new", "of-debian"], "of-debian"),
            (["absent", "old", "new", "mute"], None),
            ([], None),
        ]:
            if wanted:
                self.assertEqual(ship.find_profdata(22, candidates, said.get), wanted, candidates)
                continue
            with self.assertRaises(ship.Fault) as fault:
                ship.find_profdata(22, candidates, said.get)
            self.assertIn("install the package llvm-22", str(fault.exception))
            if "old" in candidates:
                self.assertIn("old is of LLVM 14; new is of LLVM 23", str(fault.exception))

    def test_a_command_that_is_not_there_has_no_version(self):
        self.assertIsNone(ship.version_of("/no/such/command"))
        self.assertIn("Python", ship.version_of(sys.executable))

    def test_what_fails_is_shown_in_its_own_words(self):
        with self.assertRaisesRegex(ship.Fault, "(?s)trying failed: sh -c .* ended with 3\nout\nerr"):
            ship.run("trying", ["sh", "-c", "echo out; echo err >&2; exit 3"], shown=False)
        with self.assertRaisesRegex(ship.Fault, "no such command"):
            ship.run("trying", ["/no/such/command"], shown=False)


if __name__ == "__main__":
    unittest.main()

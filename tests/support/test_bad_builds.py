"""Known-bad builds edit the product's text, which changes: each still finds what it takes out."""

from __future__ import annotations

import subprocess
import sys

from tests.support.warm import ROOT

PACKAGES = sorted(path.parent.name for path in ROOT.glob("tests/*/bad.py") if "Build(" in path.read_text())
# Each build in a process of its own, forked from one that has imported the product.
SPOIL = """
import importlib, os, sys
import gateway.app, gateway.relay.relay
for package in sys.argv[1:]:
    listed = importlib.import_module(f"tests.{package}.bad")
    for name, build in (listed.BUILDS | getattr(listed, "GOOD", {})).items():
        if os.fork() == 0:
            build.spoil()
            os._exit(0)
        if os.wait()[1]:
            print(package, name, flush=True)
"""


def test_what_each_known_bad_build_takes_out_is_still_there() -> None:
    assert len(PACKAGES) > 1
    ended = subprocess.run(
        [sys.executable, "-c", SPOIL, *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr

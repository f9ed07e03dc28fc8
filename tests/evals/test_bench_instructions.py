"""Counting instructions: what is said where valgrind is absent, and that a count is told for both contenders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "evals.bench.instructions", "--work", "plain"]


def test_without_valgrind_it_says_how_to_install_it() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, env={**os.environ, "PATH": "/nowhere"}, check=False)
    assert done.returncode == 1
    assert "apt-get install valgrind" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed (apt-get install valgrind)")
def test_a_plain_request_is_counted_in_the_gateway_and_in_the_bare_proxy() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout)["plain"]
    assert len(counted["pointsman"]) >= 2, "the event loop and the thread of the records"
    assert len(counted["bare"]) == 1
    assert min(counted["pointsman"][0], counted["bare"][0]) > 50

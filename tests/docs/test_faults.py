"""docs/faults.md has every fault once, and the files that it names for one have tests that carry its id."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = dict(re.findall(r"^\| (F\d\d) \|(.*)$", (ROOT / "docs" / "faults.md").read_text(), re.MULTILINE))
UNTESTED = {"F31": "a figure of a benchmark"}


def test_every_fault_is_there() -> None:
    assert list(ROWS) == [f"F{number:02}" for number in range(1, 32)]


@pytest.mark.parametrize("fault", sorted(ROWS.keys() - UNTESTED.keys()))
def test_the_files_named_for_a_fault_are_those_whose_tests_carry_its_id(fault: str) -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", ROWS[fault]))
    carrying = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("test_*.py")
        if re.search(rf"def test_\w*{fault}(?!\d)", file.read_text())
    }
    assert carrying, "somebody tests it"
    assert carrying <= named
    assert {path for path in named if not (ROOT / path).exists()} == set()

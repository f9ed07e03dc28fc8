"""Every command that a page shows is run by a test, here or where the table says; the README's files load."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from router.policy_files import review
from tests.support import console
from tests.support.config_files import GROUPS, POLICY, write

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text()
# Commands by how they begin: the test that runs them, or why none does.
ELSEWHERE = {
    "make run": "tests/e2e/test_local.py, tests/shell/test_first_minute.py",
    "make test": "is what runs this",
    "claude ": "tests/clients/test_command_lines.py",
    "codex ": "tests/clients/test_command_lines.py",
    "export ": "tests/clients/test_command_lines.py sets them",
    "vllm ": "an engine of the reader's, on accelerators that no test has",
    "docker ": "no container engine in the tests; its requests: tests/docs/test_recipes.py",
    "curl ": "tests/docs/test_recipes.py",
    "pointsman init mine --from": "tests/shell/test_init_from.py",
    "pointsman plan ": "tests/shell/test_cli_plan.py",
    "vllm bench serve": "an engine's; tests/core/test_cluster.py reads what it writes",
    ".venv/bin/pointsman init mine": "tests/shell/test_init.py",
    ".venv/bin/pointsman serve": "tests/e2e/test_serve.py",
    ".venv/bin/pip install": "downloads",
    ".venv/bin/pointsman eval run": "tests/evals/test_commands.py, on a smaller file: this one takes a minute",
    ".venv/bin/pointsman eval report": "tests/docs/test_tutorial.py",
}
WHOLE_PAGES = {"tutorial.md": "tests/docs/test_tutorial.py"}


def ours(command: console.Command) -> bool:
    return not command.text.startswith(tuple(ELSEWHERE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_has_its_test(page: Path) -> None:
    if page.name in WHOLE_PAGES:
        assert (ROOT / WHOLE_PAGES[page.name]).exists()
        return
    unknown = [command.text for command in console.commands(page) if ours(command)]
    assert page.name == "README.md" or unknown == []


@pytest.mark.parametrize("where", sorted(set(ELSEWHERE.values())))
def test_the_table_names_tests_that_there_are(where: str) -> None:
    for path in re.findall(r"tests/[\w/]+\.py", where):
        assert (ROOT / path).exists(), path


def test_the_readmes_commands_do_what_it_says(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "policies", tmp_path / "policies")
    program = tmp_path / ".venv" / "bin" / "pointsman"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m router "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "POINTSMAN_STATE": str(tmp_path / "state")}
    printed: dict[str, tuple[int, str]] = {}
    for command in console.commands(ROOT / "README.md"):
        if ours(command):
            ran = subprocess.run(
                ["bash", "-c", command.text], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
            )
            words = command.text.split()
            printed[words[1 if words[0].endswith("pointsman") else 0]] = (ran.returncode, ran.stdout + ran.stderr)
    assert list(printed) == ["echo", "check", "explain", "schema", "replay", "history"]
    assert {name: code for name, (code, _) in printed.items()} == {
        "echo": 0,
        "check": 0,
        "explain": 0,
        "schema": 0,
        "replay": 1,  # nothing was served from this folder yet, and it says so
        "history": 0,
    }
    assert printed["check"][1].startswith("ok: ")
    assert "decision  group small" in printed["explain"][1]
    assert "there are no records in" in printed["replay"][1]
    assert "no configuration was kept in" in printed["history"][1]


BLOCKS = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)


def test_the_readmes_yaml_loads(tmp_path: Path) -> None:
    lines = [block for block in BLOCKS if block.startswith("  ")]
    assert (len(BLOCKS), len(lines)) == (2, 1)
    name = lines[0].split(":")[0].strip()
    groups = GROUPS.replace("large-a: {upstream", "old-a: {upstream").replace(
        "[large-a, large-b]", f"[{name}, large-b, old-a]"
    )
    routes, named, examples = BLOCKS[1].partition("examples:\n")
    policy = POLICY.replace("routes:\n", routes) + named + examples
    found = review(write(tmp_path, groups=groups + lines[0], default=policy), {})
    assert found.mistakes == ()
    assert found.examples == 1
    assert found.config is not None
    assert found.config.deployments[name].model == "my-large-model"

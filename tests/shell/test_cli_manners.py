"""Manners of the command line: examples that hold, completion, colour on a terminal alone, nothing heavy at a start."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from router.cli import COMMANDS, main
from router.cli.examples import EXAMPLES
from tests.support.config_files import write

ROOT = Path(__file__).parents[2]


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that does something, by its words."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


LEAVES = list(commands(main))


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_a_commands_help_teaches_with_an_example(words: tuple[str, ...]) -> None:
    if words[0] == "eval" and words[1] in ("calibrate", "table"):
        pytest.skip("for whoever trains the shipped scorers: docs/quality.md")
    shown = CliRunner().invoke(main, [*words, "--help"]).output
    assert f"pointsman {' '.join(words)}" in shown.partition("Examples:")[2]


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line, _ in lines])
def test_an_example_has_only_options_that_there_are(line: str) -> None:
    for part in re.split(r" (?:&&|\||>>|>|<) ", line)[:1]:
        words = shlex.split(part)
        command: click.Command = main
        ctx = click.Context(main)
        while isinstance(command, click.Group) and words and words[0] in command.list_commands(ctx):
            found = command.get_command(ctx, words.pop(0))
            assert found is not None
            command, ctx = found, click.Context(found, parent=ctx)
        assert command is not main, line
        values, rest, _ = command.make_parser(ctx).parse_args(words)
        assert rest == [], line
        for option in command.params:
            assert not (option.required and values.get(option.name or "") is None), (line, option.name)


@pytest.mark.parametrize(("typed", "meant"), [(["sevre"], "serve"), (["plan", "partion"], "partition")])
def test_a_mistyped_command_is_told_with_the_one_that_it_is_like(typed: list[str], meant: str) -> None:
    ran = CliRunner().invoke(main, typed)
    assert ran.exit_code == 2
    assert f"No such command '{typed[-1]}'; did you mean '{meant}'?" in ran.output


def test_a_command_that_is_like_none_is_told_alone() -> None:
    ran = CliRunner().invoke(main, ["zzz"])
    assert (ran.exit_code, "did you mean" in ran.output) == (2, False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_a_shell(shell: str) -> None:
    ran = CliRunner().invoke(main, ["completion", shell])
    assert ran.exit_code == 0
    assert f"_POINTSMAN_COMPLETE={shell}_complete" in ran.output


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    script = tmp_path / "completion.sh"
    script.write_text(CliRunner().invoke(main, ["completion", "bash"]).output)
    program = tmp_path / "pointsman"
    program.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -c "from router.cli import main; main(prog_name=\'pointsman\')"\n'
    )
    program.chmod(0o755)

    def typed(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        code = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _pointsman_completion pointsman; "
        env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(
            [bash, "-c", code + 'printf "%s\\n" "${COMPREPLY[@]}"'], env=env, capture_output=True, text=True, check=True
        )
        return ran.stdout.split()

    assert typed("pointsman", "do") == ["doctor"]
    assert set(typed("pointsman", "")) == set(COMMANDS)
    assert typed("pointsman", "serve", "--work") == ["--workers"]


def on_a_terminal(*arguments: str, **environ: str) -> str:
    """What a command prints where its standard output is a terminal."""
    parent, child = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "router", *arguments], cwd=ROOT, stdout=child, stderr=child, stdin=child, env=env
    )
    os.close(child)
    out = b""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if select.select([parent], [], [], 0.2)[0]:
            try:
                read = os.read(parent, 65536)
            except OSError:
                break
            if not read:
                break
            out += read
        elif process.poll() is not None:
            break
    process.wait(60)
    os.close(parent)
    return out.decode()


@pytest.fixture
def well(tmp_path: Path) -> tuple[str, ...]:
    """A set-up for `doctor` without a server in it."""
    groups = "version: 1\ngroups: {a: {deployments: [x]}}\ndeployments: {x: {upstream: local}}\n"
    policy = "version: 1\nname: p\nmodels: [auto]\ndefault: a\nexamples: [{expect: {group: a}}]\n"
    folder = tmp_path / "config"
    folder.mkdir()
    write(folder, groups=groups, default=policy)
    return ("doctor", "--config", str(folder), "--state", str(tmp_path / "s"), "--port", "0", "--admin-port", "0")


def test_a_table_has_lines_and_colour_on_a_terminal_and_neither_when_piped(well: tuple[str, ...]) -> None:
    shown = on_a_terminal(*well)
    assert "\x1b[32mok" in shown
    assert "─" in shown
    piped = subprocess.run(
        [sys.executable, "-m", "router", *well], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "\x1b" not in piped.stdout + piped.stderr
    assert "─" not in piped.stdout
    assert piped.stdout.splitlines()[1].startswith("ok  program")


def test_no_color_and_a_dumb_terminal_get_no_colour(well: tuple[str, ...]) -> None:
    assert "\x1b[3" not in on_a_terminal(*well, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(*well, TERM="dumb")


def test_help_loads_neither_rich_nor_a_client_nor_a_command() -> None:
    code = "import sys\nfrom router.cli import main\nmain(['--help'], standalone_mode=False)\n"
    told = "import atexit, sys\natexit.register(lambda: print('loaded', *sorted(sys.modules)))\n"
    ran = subprocess.run([sys.executable, "-c", told + code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.rpartition("loaded ")[2].split())
    assert not {"rich", "httpx", "msgspec", "asyncio", "evals", "router.cli.serve", "router.policy_files"} & loaded

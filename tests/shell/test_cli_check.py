"""`pointsman check`, `schema` and the group of commands: what they print, and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from router.cli import COMMANDS, main
from router.policy_files import load, schema
from tests.support.config_files import POLICY, policy, write

ROOT = Path(__file__).parents[2]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], catch_exceptions=False)


def test_check_of_good_files_says_what_they_hold_and_exits_0(tmp_path: Path) -> None:
    folder = write(tmp_path, default=POLICY + "examples: [{scores: {difficulty: 0.1}, expect: {group: small}}]\n")
    result = run("check", folder)
    digest = load(folder).digest[:12]
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        f"ok: policies 1, routes 1, groups 2, deployments 3, examples 1; digest {digest}\n",
        "",
    )


def test_check_of_the_shipped_policies_exits_0() -> None:
    assert run("check", ROOT / "policies").exit_code == 0


def test_check_prints_every_mistake_at_its_place_and_exits_1(tmp_path: Path) -> None:
    folder = write(tmp_path, default=policy("rotues: []", "zz: 1"))
    result = run("check", folder)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{folder}/default.yaml:5:1: rotues: unknown key 'rotues'; did you mean 'routes'?",
        f"{folder}/default.yaml:6:1: zz: unknown key 'zz'; known: name, models, default, routes, pin, fallback, "
        "allow_deployments, priority, record_prompts, target, explore, canary, hedge, judge, examples, order",
    ]
    assert result.stderr == "2 mistakes; nothing of this would be put in force\n"


def test_warnings_go_to_stderr_and_leave_the_exit_code_0(tmp_path: Path) -> None:
    result = run("check", write(tmp_path))
    assert result.exit_code == 0
    assert "default.yaml:1:1: (file): warning: this policy has no examples" in result.stderr


def test_check_as_json_holds_the_same(tmp_path: Path) -> None:
    good = json.loads(run("check", write(tmp_path), "--json").stdout)
    assert (good["ok"], good["policies"], good["examples"], good["mistakes"]) == (True, 1, 0, [])
    assert [one["path"] for one in good["warnings"]] == ["(file)"]
    result = run("check", write(tmp_path, default=policy("rotues: []")), "--json")
    bad = json.loads(result.stdout)
    assert (result.exit_code, bad["ok"], bad["digest"]) == (1, False, None)
    assert bad["mistakes"] == [
        {
            "file": f"{tmp_path}/default.yaml",
            "line": 5,
            "column": 1,
            "path": "rotues",
            "message": "unknown key 'rotues'; did you mean 'routes'?",
        }
    ]


def test_check_of_a_directory_that_is_not_there_exits_1(tmp_path: Path) -> None:
    result = run("check", tmp_path / "nowhere")
    assert result.exit_code == 1
    assert "nowhere:1:1: (file): cannot read this directory" in result.stdout
    assert "`pointsman init DIR` writes a first configuration" in result.stdout


def test_schema_prints_the_schema() -> None:
    result = run("schema")
    assert (result.exit_code, json.loads(result.stdout)) == (0, schema())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")


def test_a_command_that_does_not_exist_exits_2() -> None:
    assert run("chekc").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], {"pydantic", "yaml", "fastapi", "sqlalchemy", "numpy", "uvicorn", "httpx"}),
        (["check", "policies"], {"fastapi", "starlette", "sqlalchemy", "numpy", "uvicorn", "httpx", "watchfiles"}),
        (["schema"], {"fastapi", "starlette", "sqlalchemy", "numpy", "uvicorn", "httpx", "watchfiles"}),
    ],
)
def test_help_and_check_load_no_server_database_or_model(arguments: list[str], absent: set[str]) -> None:
    code = "import sys\nfrom router.cli import main\nmain(sys.argv[1:], standalone_mode=False)\n"
    told = "import atexit, sys\natexit.register(lambda: print('loaded', *sorted(sys.modules)))\n"
    ran = subprocess.run(
        [sys.executable, "-c", told + code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    loaded = set(ran.stdout.rpartition("loaded ")[2].split())
    assert "click" in loaded
    assert not absent & loaded


def test_F21_serve_on_bad_files_prints_every_mistake_at_its_place_and_exits_2(tmp_path: Path) -> None:
    folder = write(tmp_path, default=policy("rotues: []", "zz: 1"))
    ports = ["--port", "0", "--admin-port", "0"]
    ran = subprocess.run(
        [sys.executable, "-m", "router", "serve", "--config", str(folder), "--state", str(tmp_path / "state"), *ports],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 2
    assert f"{folder}/default.yaml:5:1: rotues: unknown key 'rotues'; did you mean 'routes'?" in ran.stderr
    assert f"{folder}/default.yaml:6:1: zz: unknown key" in ran.stderr


def test_python_m_router_is_the_same_command(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "router", "check", str(write(tmp_path, default="["))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert f"{tmp_path}/default.yaml:2:1: (file): this is not valid YAML" in ran.stdout

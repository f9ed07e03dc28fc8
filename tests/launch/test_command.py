"""`pointsman plan render`, as a person runs it, and what it writes serving requests."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from router.cli import main
from router.cluster import reader
from router.cluster.values import Cluster, Group, Machine, Node, Plan, Replica, Wiring
from router.replicas import Scored
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.shell.test_replicas import running as scorer_replica
from tests.support.rig import running

HERE = Path(__file__).parent


def run(*argv: str) -> Result:
    return CliRunner().invoke(main, ["plan", "render", *argv])


def test_the_files_are_written_and_named_and_what_comes_next_is_said(tmp_path: Path):
    done = run("--plan", str(HERE / "switch.yaml"), "--target", "systemd", "--out", str(tmp_path / "out"))
    assert done.exit_code == 0
    named = [Path(line) for line in done.stdout.splitlines()]
    assert sorted(named) == sorted(path for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert os.access(tmp_path / "out" / "spark-1" / "install.sh", os.X_OK)
    assert f"pointsman serve --config {tmp_path / 'out' / 'gateway'}" in done.stderr


def test_a_second_time_writes_the_same_and_leaves_other_files_alone(tmp_path: Path):
    argv = ("--plan", str(HERE / "switch.yaml"), "--target", "lws", "--out", str(tmp_path), "--json")
    assert run(*argv).exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "gateway" / "keys.yaml").write_text("version: 1\n")
    done = run(*argv)
    assert {path: path.read_bytes() for path in before} == before
    assert (tmp_path / "gateway" / "keys.yaml").exists()
    assert sorted(json.loads(done.stdout)["files"]) == sorted(str(path.relative_to(tmp_path)) for path in before)


def test_another_image_stands_in_every_rank(tmp_path: Path):
    image = "registry.example/vllm:1"
    run("--plan", str(HERE / "ring.yaml"), "--target", "compose", "--out", str(tmp_path), "--image", image)
    assert all(f"image: {image}\n" in path.read_text() for path in tmp_path.glob("*/compose.yaml"))


def test_a_model_that_the_catalogue_does_not_know_is_said_and_rendered(tmp_path: Path):
    plan = tmp_path / "plan.yaml"
    plan.write_text((HERE / "ring.yaml").read_text().replace("model: glm-5.3-requantised", "model: of-our-own"))
    done = run("--plan", str(plan), "--target", "systemd", "--out", str(tmp_path / "out"))
    assert done.exit_code == 0
    assert "the catalogue does not know of-our-own" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "target", "code", "words"),
    [
        ("engine: vllm", "engine: trtllm", "compose", 1, "--target systemd"),
        ("- spark-2\n", "- spark-9\n", "systemd", 2, "spark-9"),
        ("engine: vllm", "engine: vlm", "systemd", 2, "plan.yaml:4:"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_words_and_nothing_is_written(
    old: str, new: str, target: str, code: int, words: str, tmp_path: Path
):
    plan = tmp_path / "plan.yaml"
    text = (HERE / "switch.yaml").read_text()
    assert old in text
    plan.write_text(text.replace(old, new, 1))
    done = run("--plan", str(plan), "--target", target, "--out", str(tmp_path / "out"))
    assert done.exit_code == code
    assert words in done.stderr
    assert not (tmp_path / "out").exists()


async def test_one_plan_file_gives_a_gateway_that_scores_by_the_classifier_and_serves_both_groups(tmp_path: Path):
    """The engines are scripted, and the classifier is a replica of the lexical scorer; all else is as rendered."""
    async with (
        ScriptedServer(chat("from the large one")) as large,
        ScriptedServer(chat("from the small one")) as small,
        scorer_replica(Scored(kind="lexical")) as judge,
    ):
        plan = local_plan(large.port, small.port, int(judge.split(":")[2].split("/")[0]))
        reader.write_plan(plan, tmp_path / "plan.yaml")
        argv = ("--plan", str(tmp_path / "plan.yaml"), "--target", "systemd", "--out", str(tmp_path))
        assert (await asyncio.to_thread(run, *argv)).exit_code == 0
        made = {name: (tmp_path / "gateway" / f"{name}.yaml").read_text() for name in ("groups", "scorers", "default")}
        made["scorers"] = made["scorers"].replace("deadline_s: 0.5", "deadline_s: 20")
        async with running(tmp_path, made["groups"], made["default"], made["scorers"]) as rig:
            easy = await rig.ask("What is the capital of France?")
            hard = await rig.ask("Prove that every finite integral domain is a field.")
    assert easy.json()["choices"][0]["message"]["content"] == "from the small one"
    assert hard.json()["choices"][0]["message"]["content"] == "from the large one"
    assert easy.headers["x-pointsman-deployment"] == "small-a"
    assert float(easy.headers["x-pointsman-score"]) < 0.5 < float(hard.headers["x-pointsman-score"])


def local_plan(large: int, small: int, judge: int) -> Plan:
    """Three groups on nodes that are all this machine."""
    machine = Machine(
        name="m", memory_gb=128, visible_gib=120, bandwidth_gbs=273, efficiency=0.8, prefill_tflops=45, usable=0.85
    )
    nodes = tuple(Node(id=f"node-{n}", address="127.0.0.1") for n in (1, 2, 3))
    ports = {"large": large, "small": small, "classifier": judge}
    groups = tuple(
        Group(
            name=name,
            model=f"m-{name}",
            served=f"m-{name}",
            replicas=(Replica(name=f"{name}-a", nodes=(f"node-{number}",), port=port),),
        )
        for number, (name, port) in enumerate(ports.items(), 1)
    )
    return Plan(
        name="here",
        cluster=Cluster(name="here", machine=machine, nodes=nodes, fabric=Wiring(kind="none")),
        groups=groups,
    )

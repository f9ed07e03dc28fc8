"""deploy/monitoring: rules that Prometheus takes and that say what their tests write, and a dashboard that asks only
for what a running gateway exports."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.rig import groups, running

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "monitoring"
RULES = FOLDER / "rules" / "pointsman.rules.yml"
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (apt package prometheus)")


def check(*arguments: str, folder: Path = FOLDER) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def rules(kind: str) -> list[dict[str, Any]]:
    read = yaml.safe_load(RULES.read_text())
    return [rule for group in read["groups"] for rule in group["rules"] if kind in rule]


def queries() -> list[str]:
    """Every query of the dashboard, with Grafana's variables as Grafana would fill them in."""
    board = json.loads((FOLDER / "grafana" / "pointsman.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(found) >= 25
    return [one.replace("$__rate_interval", "1m").replace("$instance", ".*") for one in found]


@promtool
def test_the_scrape_configuration_and_the_rules_are_taken():
    check("check", "config", "prometheus.yml")
    check("check", "rules", "rules/pointsman.rules.yml")


@promtool
def test_the_rules_say_what_their_tests_write_of_series_that_are_written_out():
    check("test", "rules", "pointsman.test.yml", folder=FOLDER / "rules")


def test_every_alert_is_tested_and_stands_in_the_manual_with_what_to_do():
    tested = (FOLDER / "rules" / "pointsman.test.yml").read_text()
    manual = (ROOT / "docs" / "operating.md").read_text()
    names = [rule["alert"] for rule in rules("alert")]
    assert len(names) >= 12
    assert [name for name in names if f"alertname: {name}" not in tested] == []
    assert [name for name in names if f"| `{name}` |" not in manual] == []


@promtool
def test_every_query_of_the_dashboard_is_promql(tmp_path: Path):
    made = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries())]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": made}]}))
    check("check", "rules", "rules.yml", folder=tmp_path)


async def test_queries_and_rules_name_only_metrics_and_labels_that_a_running_gateway_exports(tmp_path: Path):
    async with ScriptedServer(chat("hi you")) as small:
        files = groups(
            {"small-a": small}, {"small": ["small-a"], "large": ["small-a"]}, ", price: {input: 1, output: 1}"
        )
        async with running(tmp_path, files) as rig, httpx.AsyncClient(base_url=rig.admin) as admin:
            await rig.ask(stream=True)
            await rig.ask(score=2.0)
            await asyncio.sleep(0)
            text = (await admin.get("/metrics")).text
    exported: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(family.type, ("",))
        labels = {label for sample in family.samples for label in sample.labels}
        for suffix in suffixes:
            exported[family.name + suffix] = labels
    recorded = {rule["record"] for rule in rules("record")}
    asked = [*queries(), *(rule["expr"] for kind in ("record", "alert") for rule in rules(kind))]
    for query in asked:
        plain = re.sub(r'"[^"]*"', '""', query)
        names = set(re.findall(r"\b(?:pointsman_|process_)\w+", plain))
        assert names - set(exported) == set(), query
        assert set(re.findall(r"\bpointsman:[\w:]+", plain)) <= recorded, query
        known = {label for name in names for label in exported[name]} | {"instance", "job", "le"}
        if any(exported[name] for name in names):
            used = {label for found in re.findall(r"by \(([^)]*)\)", plain) for label in re.split(r",\s*", found)}
            used |= set(re.findall(r"(\w+)(?:=~|!=|=)\"\"", plain))
            assert used <= known, query

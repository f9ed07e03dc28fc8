"""The Kubernetes files are valid, fit together, and fit what the gateway does."""

from __future__ import annotations

from typing import Any

import pytest

from router import __version__
from router.cli.serve import command
from router.serving import DRAIN_S, PRE_STOP_S
from tests.support.validators import DEPLOY, documents, kubernetes, kustomize

KUBERNETES = DEPLOY / "kubernetes"
PLACES = ["base", "overlays/lws", "overlays/kuberay", "overlays/inferencepool"]


def named(resources: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return next(r for r in resources if r["kind"] == kind and r["metadata"]["name"] == name)


def pod(resources: list[dict[str, Any]]) -> dict[str, Any]:
    return named(resources, "Deployment", "pointsman")["spec"]["template"]["spec"]


@pytest.mark.parametrize("place", PLACES)
def test_every_resource_is_valid_and_in_the_namespace(place: str):
    resources = kustomize(KUBERNETES / place)
    assert kubernetes(resources) == []
    assert {r["metadata"].get("namespace") for r in resources if r["kind"] != "Namespace"} == {"pointsman"}


@pytest.mark.parametrize(
    ("kind", "name", "path", "value"),
    [
        ("Deployment", "pointsman", ("spec", "template", "spec", "terminationGraceSeconds"), 3),
        ("LeaderWorkerSet", "large", ("spec", "leaderWorkerTemplate", "size"), "two"),
        ("LeaderWorkerSet", "large", ("spec", "leaderWorkerTemplate", "restartpolicy"), "None"),
        ("LeaderWorkerSet", "large", ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec", "contaners"), []),
    ],
)
def test_a_mistake_in_a_resource_is_found(kind: str, name: str, path: tuple[str, ...], value: object):
    resources = kustomize(KUBERNETES / "overlays/lws")
    here = named(resources, kind, name)
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    assert len(kubernetes(resources)) == 1


def test_a_pod_is_given_the_time_that_the_gateway_drains():
    spec = pod(kustomize(KUBERNETES / "base"))
    sleep_s = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] >= sleep_s + PRE_STOP_S + DRAIN_S + 5


def test_the_gateway_is_asked_for_what_it_understands():
    container = pod(kustomize(KUBERNETES / "base"))["containers"][0]
    assert container["image"] == f"pointsman:{__version__}"
    assert container["args"][0] == "serve"
    options = command.make_context("serve", container["args"][1:]).params
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (options["port"], options["admin_port"]) == (ports["http"], ports["admin"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(options["config"]) == mounts["config"]


@pytest.mark.parametrize("place", PLACES)
def test_services_lead_to_pods_and_ports_that_there_are(place: str):
    resources = kustomize(KUBERNETES / place)
    pods: list[dict[str, Any]] = []
    for resource in resources:
        spec = resource.get("spec", {})
        group = spec.get("leaderWorkerTemplate", {})
        pods += [t for t in (spec.get("template"), group.get("leaderTemplate")) if t]
    for service in (r for r in resources if r["kind"] == "Service"):
        wanted = {k: v for k, v in service["spec"]["selector"].items() if not k.startswith("leaderworkerset")}
        found = [p for p in pods if wanted.items() <= p["metadata"]["labels"].items()]
        assert found, service["metadata"]["name"]
        names = {port.get("name") for p in found for c in p["spec"]["containers"] for port in c.get("ports", ())}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names


@pytest.mark.parametrize("place", PLACES)
def test_the_large_group_is_where_the_gateway_looks_for_it(place: str):
    resources = kustomize(KUBERNETES / place)
    environment = {one["name"]: one.get("value") for one in pod(resources)["containers"][0]["env"]}
    host = environment["LARGE_URL"].split("//")[1].split("/")[0].split(":")[0]
    there = {r["metadata"]["name"] for r in resources if r["kind"] in ("Service", "Gateway")}
    there |= {f"{r['metadata']['name']}-serve-svc" for r in resources if r["kind"] == "RayService"}
    assert host in there or place == "base"


def test_what_the_autoscaler_counts_is_what_the_adapter_makes_of_the_gateways_metric():
    scaler = named(kustomize(KUBERNETES / "base"), "HorizontalPodAutoscaler", "pointsman")
    metric = scaler["spec"]["metrics"][0]["pods"]["metric"]["name"]
    (adapter,) = documents((KUBERNETES / "prometheus-adapter.yaml").read_text())
    (rule,) = adapter["rules"]["custom"]
    assert rule["name"]["as"] == metric
    assert rule["seriesQuery"].startswith(metric)
    assert f"`{metric}` | deployment |" in (DEPLOY.parent / "docs" / "operating.md").read_text()

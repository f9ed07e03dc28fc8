"""Targets for Kubernetes: LeaderWorkerSets, one for each replica, and KubeRay RayServices, one for each group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.cluster.values import Group, Impossible, Model, Plan, Replica
from router.launch import gateway, network
from router.launch.gateway import CLASSIFIER, MADE, text
from router.launch.ranks import ENGINES, IMAGES, Place, cache_type, drafting, in_pods

NAMESPACE = "pointsman"
STORE = "${POINTSMAN_REDIS:-redis://redis:6379/0}"  # of deploy/kubernetes/base
RAY_IMAGE = "rayproject/ray-llm:2.52.0-py311-cu128"
SCORER_IMAGE = "pointsman-scorer:0.1.0"  # the gateway's, with Ray and the extra that its scorer needs
PART_OF = {"app.kubernetes.io/part-of": "pointsman"}
STARTS_S = 2400  # weights of hundreds of gigabytes load for a quarter of an hour
HELD = {"name": "models", "hostPath": {"path": "/srv/models", "type": "DirectoryOrCreate"}}
SHARED_MEMORY = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
MOUNTS = [{"name": "models", "mountPath": "/root/.cache/huggingface"}, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108


def leaderworkerset(plan: Plan, models: Mapping[str, Model], image: str) -> dict[str, str]:
    """A LeaderWorkerSet and a Service for each replica, on its nodes; the gateway's configuration as its ConfigMap."""
    in_pods(plan)

    def url(group: Group, replica: Replica) -> str:
        del group
        return f"http://{replica.name}:{replica.port}/v1"

    files = gateway.files(plan, url, store=STORE)
    made: list[str] = []
    for group in plan.groups:
        for replica in group.replicas:
            name = f"{replica.name}.yaml"
            workers = _set(plan, group, replica, models.get(group.model), image or IMAGES[plan.engine])
            files[name] = "---\n".join((text(workers, f"{replica.name}. {MADE}."), text(_service(replica))))
            made.append(name)
    return files | {"kustomization.yaml": _kustomization(plan, made)}


def _kustomization(plan: Plan, resources: list[str]) -> str:
    config = {
        "name": "pointsman-config",
        "files": [f"gateway/{name}.yaml" for name in ("groups", "scorers", "default")],
        "options": {"disableNameSuffixHash": True},
    }
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "resources": resources,
        "configMapGenerator": [config],
    }
    head = [f"{MADE}: the groups of", f"{plan.name}, and the gateway's configuration for them."]
    head.append("Apply deploy/kubernetes/base first: its gateways take this configuration from the same ConfigMap.")
    return text(document, *head)


def _set(plan: Plan, group: Group, replica: Replica, model: Model | None, image: str) -> dict[str, Any]:
    size = len(replica.nodes)
    leader = _pod(plan, group, replica, model, image, leads=True)
    template: dict[str, Any] = {"size": size, "restartPolicy": "RecreateGroupOnPodRestart", "workerTemplate": leader}
    if size > 1:
        template |= {"leaderTemplate": leader, "workerTemplate": _pod(plan, group, replica, model, image, leads=False)}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": replica.name, "labels": _labels(replica.name)},
        "spec": {"replicas": 1, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": template},
    }


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name, **PART_OF}


def _pod(plan: Plan, group: Group, replica: Replica, model: Model | None, image: str, *, leads: bool) -> dict[str, Any]:
    size = len(replica.nodes)
    number = "0" if leads else "$(LWS_WORKER_INDEX)"
    place = Place(size=size, number=number, head="$(LWS_LEADER_ADDRESS)", leads=leads)
    argv = [word for option in ENGINES[plan.engine](group, replica, place, model) for word in option]
    environment: list[dict[str, Any]] = [
        {"name": k, "value": v} for k, v in network.environment(plan.cluster, replica, plan.engine).items()
    ]
    if size > 1 and plan.engine == "vllm":
        environment.insert(0, {"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    container: dict[str, Any] = {"name": "engine", "image": image, "command": argv[:1], "args": argv[1:]}
    if environment:
        container["env"] = environment
    if leads:
        container["ports"] = [{"name": "http", "containerPort": replica.port}]
        container |= _probes()
    container["volumeMounts"] = MOUNTS
    spec: dict[str, Any] = {"automountServiceAccountToken": False, "affinity": _on(replica)}
    spec |= _gpu(container, replica)
    spec |= {"containers": [container], "volumes": [HELD, SHARED_MEMORY]}
    if size > 1:
        # RDMA is the host's: its devices, its addresses, and memory that is registered with the card.
        container["securityContext"] = {"privileged": True}
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return {"metadata": {"labels": _labels(replica.name)}, "spec": spec}


def _on(replica: Replica) -> dict[str, Any]:
    """The nodes of the plan are those of the cluster by their host names."""
    match = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(replica.nodes)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _gpu(container: dict[str, Any], replica: Replica) -> dict[str, Any]:
    """A GPU of its own, or a share of another group's, which the scheduler must not count twice."""
    if not replica.shared:
        container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        return {}
    container["env"] = [*container.get("env", []), {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    return {"runtimeClassName": "nvidia"}


def _probes() -> dict[str, Any]:
    """Of the leader, for no other rank answers HTTP."""
    get = {"httpGet": {"path": "/health", "port": "http"}}
    return {
        "startupProbe": get | {"periodSeconds": 10, "failureThreshold": STARTS_S // 10},
        "readinessProbe": get | {"periodSeconds": 5, "timeoutSeconds": 5},
        "livenessProbe": get | {"periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
    }


def _service(replica: Replica) -> dict[str, Any]:
    chosen = {"app.kubernetes.io/name": replica.name, "leaderworkerset.sigs.k8s.io/worker-index": "0"}
    ports = [{"name": "http", "port": replica.port, "targetPort": "http"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": replica.name, "labels": _labels(replica.name)},
        "spec": {"selector": chosen, "ports": ports},
    }


# --- Ray -------------------------------------------------------------------------------------------------


def rayservice(plan: Plan, models: Mapping[str, Model], image: str) -> dict[str, str]:
    """A RayService for each group, and the same application as a file of its own for a Ray without Kubernetes."""
    if plan.engine != "vllm":
        raise Impossible(f"Ray Serve LLM runs vLLM, and the plan says `engine: {plan.engine}`; use another --target")

    def url(group: Group, replica: Replica) -> str:
        del replica
        return f"http://{group.name}-serve-svc:8000/v1"

    files = gateway.files(plan, url, single=True, store=STORE)
    made: list[str] = []
    for group in plan.groups:
        judges = group.name == CLASSIFIER
        application = scorer_application(group) if judges else _application(plan, group, models.get(group.model))
        serve = text({"applications": [application]})
        files[f"serve/{group.name}.yaml"] = f"# {group.name}, for `serve deploy`. {MADE}.\n" + serve
        runs = SCORER_IMAGE if judges else image or RAY_IMAGE
        files[f"{group.name}.yaml"] = text(_ray(plan, group, serve, runs), f"{group.name}. {MADE}.")
        made.append(f"{group.name}.yaml")
    return files | {"kustomization.yaml": _kustomization(plan, made)}


def scorer_application(group: Group) -> dict[str, Any]:
    """Replicas of a scorer behind one address, which the gateway's `remote` scorer asks (`router.replicas`)."""
    options = {"model": group.served, "deadline_s": 0.4}
    scorer = {"name": "difficulty", "kind": "generative", "options": options}
    return {
        "name": group.name,
        "route_prefix": "/",
        "import_path": "router.replicas:build",
        "args": {"scorer": scorer, "replicas": len(group.replicas), "num_cpus": 1, "num_gpus": 0.1},
    }


def _application(plan: Plan, group: Group, model: Model | None) -> dict[str, Any]:
    engine: dict[str, Any] = {
        "tensor_parallel_size": group.tensor,
        "pipeline_parallel_size": group.pipeline,
        "enable_expert_parallel": group.expert,
        "max_model_len": group.context,
        "max_num_seqs": group.sequences,
        "gpu_memory_utilization": group.memory_share,
        "enable_prefix_caching": True,
    }
    if (cache := cache_type(model)) is not None:
        engine["kv_cache_dtype"] = cache
    if group.drafts:
        engine["speculative_config"] = drafting(group)
    config: dict[str, Any] = {
        "model_loading_config": {"model_id": group.served, "model_source": group.served},
        "engine_kwargs": engine,
        "deployment_config": {"num_replicas": len(group.replicas), "max_ongoing_requests": 2 * group.sequences},
    }
    if group.parallel.nodes > 1:
        engine["distributed_executor_backend"] = "ray"
        bundles = [{"CPU": 2, "GPU": 1} for _ in range(group.parallel.nodes)]
        config["placement_group_config"] = {"bundles": bundles, "strategy": "STRICT_SPREAD"}
        config["runtime_env"] = {"env_vars": network.environment(plan.cluster, group.replicas[0], "vllm")}
    return {
        "name": group.name,
        "route_prefix": "/",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [config]},
    }


def _ray(plan: Plan, group: Group, serve: str, image: str) -> dict[str, Any]:
    nodes = sorted({node for replica in group.replicas for node in replica.nodes})
    head_ports = {"gcs-server": 6379, "dashboard": 8265, "client": 10001, "serve": 8000}
    head = {
        "name": "ray-head",
        "image": image,
        "ports": [{"name": name, "containerPort": port} for name, port in head_ports.items()],
        "resources": {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "8Gi"}},
    }
    everywhere = Replica(name=group.name, nodes=tuple(nodes), shared=group.replicas[0].shared)
    worker: dict[str, Any] = {"name": "ray-worker", "image": image}
    spec: dict[str, Any] = {"affinity": _on(everywhere)} | _gpu(worker, everywhere)
    worker["volumeMounts"] = MOUNTS
    spec |= {"containers": [worker], "volumes": [HELD, SHARED_MEMORY]}
    if group.parallel.nodes > 1:
        worker["securityContext"] = {"privileged": True}
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    count = len(nodes)
    started = {"num-gpus": "1"} if everywhere.shared else {}
    workers = {"groupName": "nodes", "replicas": count, "minReplicas": count, "maxReplicas": count}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": group.name, "labels": _labels(group.name)},
        "spec": {
            "serveConfigV2": serve,
            "rayClusterConfig": {
                "headGroupSpec": {"rayStartParams": {"num-gpus": "0"}, "template": {"spec": {"containers": [head]}}},
                "workerGroupSpecs": [workers | {"rayStartParams": started, "template": {"spec": spec}}],
            },
        },
    }

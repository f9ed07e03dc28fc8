"""How the ranks of one replica find each other: which of a node's addresses they meet at, and what NCCL, Gloo and the
engines read of the network from the environment. What is true of one kind of wiring stands in one function of it.
"""

from __future__ import annotations

from router.cluster.values import Cluster, Engine, Impossible, Node, Replica

RDMA_LIMIT = 16  # ranks that RoCEnante reduces over, one GPU each


def node(cluster: Cluster, of: str) -> Node:
    return next(one for one in cluster.nodes if one.id == of)


def address(cluster: Cluster, of: str) -> str:
    """Where a node's servers are reached. Raises Impossible."""
    found = node(cluster, of).address
    if not found:
        raise Impossible(f"{of} has no address; give it one under `nodes` of the plan's cluster: address: IP")
    return found


def meeting(cluster: Cluster, of: str) -> str:
    """Where the ranks of a group meet. On a ring each cable has subnets of its own, so no address of it is reached by
    all of them, and they meet on the management network."""
    if cluster.fabric.kind != "ring":
        return node(cluster, of).fabric_address or address(cluster, of)
    return address(cluster, of)


def environment(cluster: Cluster, replica: Replica, engine: Engine) -> dict[str, str]:
    """What every rank of a replica has in common; nothing where it is on one node. Raises Impossible."""
    fabric, size = cluster.fabric, len(replica.nodes)
    if size == 1:
        return {}
    if fabric.kind == "none":
        raise Impossible(f"{replica.name} takes {size} nodes, and the cluster has no fast network; set `fabric.kind`")
    ring = fabric.kind == "ring"
    device = fabric.management if ring else next(iter(fabric.interfaces), "")
    if not device:
        key = "fabric.management" if ring else "fabric.interfaces"
        raise Impossible(
            f"{replica.name} takes {size} nodes; name their network device in the plan: {key}"
            " (`pointsman plan inventory` finds it)"
        )
    found = {
        "NCCL_SOCKET_IFNAME": device,
        "GLOO_SOCKET_IFNAME": device,
        "TP_SOCKET_IFNAME": device,
        "UCX_NET_DEVICES": device,
        "OMPI_MCA_btl_tcp_if_include": device,
        "NCCL_IGNORE_CPU_AFFINITY": "1",
    }
    found |= _rdma(fabric.hcas)
    if ring and size > 2:
        found |= _ring(size)
    if fabric.collectives == "rocenante" and engine == "vllm":
        if size > RDMA_LIMIT:
            raise Impossible(f"RoCEnante reduces over {RDMA_LIMIT} ranks at most, and {replica.name} has {size}")
        found |= {"VLLM_ENABLE_ROCE_ALLREDUCE": "1", "VLLM_ROCE_ALLREDUCE_MAX_SIZE": "2MB"}
    return found


def _rdma(hcas: tuple[str, ...]) -> dict[str, str]:
    """RDMA devices, which are not the network devices; without any, sockets, at a tenth of the rate."""
    if not hcas:
        return {"NCCL_IB_DISABLE": "1"}
    return {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": ",".join(hcas), "NCCL_IB_GID_INDEX": "3"}


def _ring(size: int) -> dict[str, str]:
    """Two subnets a cable, port 0 to port 1 of the next node: NCCL has to choose the port by the peer's subnet."""
    found = {"NCCL_NET_PLUGIN": "none", "NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_IB_MERGE_NICS": "0"}
    # Trees would connect nodes that no cable joins.
    return found | ({"NCCL_ALGO": "Ring"} if size >= 4 else {})

"""What each machine is asked: one POSIX shell script that reads and changes nothing, needs no rights, and prints each
answer under a mark. What a machine lacks prints nothing.
"""

from __future__ import annotations

from typing import Final

MARK: Final = "=== pointsman: "

# Of an engine's environment only what concerns the network: keys and tokens stay where they are.
NETWORK: Final = ("VLLM_HOST_IP", "VLLM_ENABLE_ROCE", "VLLM_ROCE", "NCCL_", "GLOO_", "TP_SOCKET", "UCX_", "OMPI_MCA")

_COMMANDS: Final = {
    "hostname": "hostname",
    "system": '. /etc/os-release 2>/dev/null; echo "$PRETTY_NAME, $(uname -r) $(uname -m)"',
    "gpu": "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader",
    "memory": "grep MemTotal /proc/meminfo",
    "links": "ip -json address show",
    "speeds": "for d in /sys/class/net/*; do "
    'echo "$(basename "$d") $(cat "$d/speed" 2>/dev/null || echo -) $([ -e "$d/device" ] && echo device)"; done',
    "rdma": 'for d in /sys/class/infiniband/*; do [ -e "$d" ] && '
    'for n in "$d"/device/net/*; do echo "$(basename "$d") $(basename "$n")"; done; done',
    "neighbours": "ip -json neighbour show",
    "lldp": "lldpctl -f json0",
    "versions": "for p in /opt/vllm/bin/python3 /opt/sglang/bin/python3 /opt/trtllm/bin/python3 python3; do "
    '"$p" -c "import importlib.metadata as m\n'
    "for n in ('vllm', 'sglang', 'tensorrt_llm', 'torch', 'ray', 'nvidia-nccl-cu13', 'nvidia-nccl-cu12'):\n"
    "    try: print(n, m.version(n))\n"
    '    except m.PackageNotFoundError: pass"; done',
    "environments": "for f in /etc/pointsman/engines/*.env; do "
    '[ -r "$f" ] && echo "# $(basename "$f" .env)" && grep -E "^(' + "|".join(NETWORK) + ')" "$f"; done',
}

SCRIPT: Final = (
    "#!/bin/sh\n# Reads what `pointsman plan inventory` and `plan doctor` want to know; changes nothing.\n"
    "export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin\n"
    + "".join(f"echo '{MARK}{name}'\n{{ {command}; }} 2>/dev/null\n" for name, command in _COMMANDS.items())
    + f"echo '{MARK}end'\n"
)
SECTIONS: Final = tuple(_COMMANDS)

"""What is known of machines, as values: devices, neighbours, memory, versions; what engines answered; findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct


class Interface(Struct, frozen=True, kw_only=True):
    """One network device."""

    name: str
    mac: str = ""
    up: bool = False
    mtu: int = 0
    speed_mbps: int | None = None  # None: it does not say
    addresses: tuple[str, ...] = ()  # IP/prefix
    hca: str = ""  # its RDMA device
    physical: bool = True


class Neighbour(Struct, frozen=True, kw_only=True):
    """Somebody at the other end of a device: as LLDP names it, or as its address was resolved."""

    device: str
    name: str = ""  # LLDP: of the system
    mac: str = ""
    port: str = ""  # LLDP: of the other end


class Facts(Struct, frozen=True, kw_only=True):
    """One machine."""

    id: str
    address: str  # at which it was asked
    hostname: str = ""
    system: str = ""
    gpu: str = ""
    driver: str = ""
    memory_gib: float | None = None
    interfaces: tuple[Interface, ...] = ()
    lldp: tuple[Neighbour, ...] = ()
    resolved: tuple[Neighbour, ...] = ()
    versions: Mapping[str, str] = {}
    environments: Mapping[str, Mapping[str, str]] = {}  # by rank, of /etc/pointsman/engines
    unknown: tuple[str, ...] = ()  # what it could not say

    def interface(self, name: str) -> Interface | None:
        return next((one for one in self.interfaces if one.name == name), None)

    def holds(self, address: str) -> Interface | None:
        """The device that has this address."""
        return next((i for i in self.interfaces if address in (one.partition("/")[0] for one in i.addresses)), None)


class Silent(Struct, frozen=True, kw_only=True):
    """A machine that could not be asked, and why."""

    id: str
    address: str
    why: str


class Answered(Struct, frozen=True, kw_only=True):
    """What the first rank of a replica answered. None where it was not asked."""

    replica: str
    url: str
    health: int | str | None = None  # status, or what went wrong
    models: tuple[str, ...] | str | None = None
    metrics: int | str | None = None  # lines of an engine's own, or what went wrong
    completed: int | str | None = None  # status of a request for one token


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `do` says what would mend it."""

    level: Literal["error", "warning", "ok"]
    where: str
    what: str
    do: str = ""

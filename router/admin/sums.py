"""Several workers' metrics as one: counts are added, and what a worker that died had counted is kept, so that no sum
ever falls; gauges are of those that live. Pure: text in, text out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

Key = tuple[str, tuple[tuple[str, str], ...]]  # of a sample: its name and labels

# How gauges of several workers are one; the rest is the highest, which says what one of them has.
GAUGES: Mapping[str, Callable[[float, float], float]] = {
    "pointsman_in_flight": float.__add__,
    "pointsman_waiting": float.__add__,
    "pointsman_deployment_up": min,
    "pointsman_config_generation": min,
    "pointsman_config_reload_ok": min,
    "process_open_fds": float.__add__,
    "process_resident_memory_bytes": float.__add__,
    "process_virtual_memory_bytes": float.__add__,
    "process_start_time_seconds": min,
}
_COUNTED = ("counter", "histogram")


def counted(text: str) -> dict[Key, float]:
    """The counts of one worker, without its gauges."""
    return {
        _key(sample): sample.value
        for family in text_string_to_metric_families(text)
        if family.type in _COUNTED
        for sample in family.samples
    }


def add(to: dict[Key, float], more: Mapping[Key, float]) -> None:
    for key, value in more.items():
        to[key] = to.get(key, 0.0) + value


def together(texts: Sequence[str], gone: Mapping[Key, float]) -> bytes:
    """The text exposition format. `gone`: what workers that are no more had counted."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[Key, float]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            families.setdefault(family.name, family)
            known = values.setdefault(family.name, {})
            sum_ = family.type in _COUNTED
            join = float.__add__ if sum_ else GAUGES.get(family.name, max)
            for sample in family.samples:
                key = _key(sample)
                known[key] = join(known[key], float(sample.value)) if key in known else float(sample.value)
    for name, known in values.items():
        if families[name].type in _COUNTED:
            names = {key[0] for key in known} | {f"{name}_total", f"{name}_bucket", f"{name}_count", f"{name}_sum"}
            add(known, {key: value for key, value in gone.items() if key[0] in names})
        families[name].samples = [Sample(key[0], dict(key[1]), value) for key, value in known.items()]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(families.values()))
    return generate_latest(registry)


def _key(sample: Sample) -> Key:
    return sample.name, tuple(sorted(sample.labels.items()))


class _Given(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families

"""Where sessions live. `STORES` lists the kinds by the URL's scheme; `build` makes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from router.errors import ConfigError, Mistake
from router.seams import Store
from router.store.memory import MemoryStore


def _memory(url: str) -> Store:
    return MemoryStore()


STORES: Mapping[str, Callable[[str], Store]] = {
    "memory": _memory,
}


def build(url: str | None) -> Store:
    """The store that `store:` names; None is memory. Raises `ConfigError` for a scheme that no kind has."""
    url = url if url is not None else "memory:"
    scheme = urlsplit(url).scheme
    make = STORES.get(scheme)
    if make is None:
        message = f"no store of kind {scheme!r}; there is {', '.join(sorted(STORES))}"
        raise ConfigError([Mistake(file="groups.yaml", line=1, column=1, path="store", message=message)])
    return make(url)

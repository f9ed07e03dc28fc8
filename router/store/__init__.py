"""Where sessions live and limits are counted. `STORES` and `LIMITERS` list the kinds by the URL's scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import urlsplit

from router.errors import ConfigError, Mistake
from router.seams import Limiter, Store
from router.store.limits import MemoryLimiter
from router.store.memory import MemoryStore

Kind = TypeVar("Kind")


def _memory(url: str) -> Store:
    return MemoryStore()


def _memory_limits(url: str) -> Limiter:
    return MemoryLimiter()


STORES: Mapping[str, Callable[[str], Store]] = {
    "memory": _memory,
}
LIMITERS: Mapping[str, Callable[[str], Limiter]] = {
    "memory": _memory_limits,
}


def build(url: str | None) -> Store:
    """The store that `store:` names; None is memory. Raises `ConfigError` for a scheme that no kind has."""
    return _made(STORES, url)


def limiter(url: str | None) -> Limiter:
    """The limiter that goes with the store of this URL. Raises `ConfigError` as `build` does."""
    return _made(LIMITERS, url)


def _made(kinds: Mapping[str, Callable[[str], Kind]], url: str | None) -> Kind:
    url = url if url is not None else "memory:"
    scheme = urlsplit(url).scheme
    make = kinds.get(scheme)
    if make is None:
        message = f"no store of kind {scheme!r}; there is {', '.join(sorted(kinds))}"
        raise ConfigError([Mistake(file="groups.yaml", line=1, column=1, path="store", message=message)])
    return make(url)

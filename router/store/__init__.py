"""Where sessions live, limits are counted and replicas hear of each other: in `memory`, or in `redis` over a `link`
that is bounded and broken off when it fails. `STORES` and `LIMITERS` list the kinds by the URL's scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import urlsplit

from router.errors import ConfigError, Mistake
from router.seams import Limiter, Store
from router.store.limits import MemoryLimiter
from router.store.memory import MemoryStore

Kind = TypeVar("Kind")


_MISSING = "a Redis store needs the package redis: pip install 'pointsman[redis]'"


def _memory(url: str) -> Store:
    return MemoryStore()


def _memory_limits(url: str) -> Limiter:
    return MemoryLimiter()


def _redis(url: str) -> Store:
    try:
        from router.store.redis import RedisStore
    except ImportError:
        raise ValueError(_MISSING) from None
    return RedisStore(url)


def _redis_limits(url: str) -> Limiter:
    try:
        from router.store.redis_limits import RedisLimiter
    except ImportError:
        raise ValueError(_MISSING) from None
    return RedisLimiter(url)


STORES: Mapping[str, Callable[[str], Store]] = {
    "memory": _memory,
    "redis": _redis,
    "rediss": _redis,
    "unix": _redis,
}
LIMITERS: Mapping[str, Callable[[str], Limiter]] = {
    "memory": _memory_limits,
    "redis": _redis_limits,
    "rediss": _redis_limits,
    "unix": _redis_limits,
}


def build(url: str | None, *, file: str = "groups.yaml", path: str = "store") -> Store:
    """The store at a URL; None is memory. Raises `ConfigError`, which names `file` and `path` as its place."""
    return _made(STORES, url, file, path)


def limiter(url: str | None, *, file: str = "groups.yaml", path: str = "store") -> Limiter:
    """The limiter that goes with the store of this URL. Raises `ConfigError` as `build` does."""
    return _made(LIMITERS, url, file, path)


def _made(kinds: Mapping[str, Callable[[str], Kind]], url: str | None, file: str, path: str) -> Kind:
    url = url if url is not None else "memory:"
    scheme = urlsplit(url).scheme
    try:
        if scheme not in kinds:
            raise ValueError(
                f"no store of kind {scheme!r}; there is {', '.join(sorted(kinds))}, as in redis://HOST:6379/0"
            )
        return kinds[scheme](url)
    except ValueError as error:
        raise ConfigError([Mistake(file=file, line=1, column=1, path=path, message=str(error))]) from None

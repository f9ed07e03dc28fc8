"""Who asks: a key presented in a header to the key of keys.yaml, by digest. Making a key is here too.

What a key may use is counted in `limits`; where keys are written down is `policy_files`' and the command line's.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest

from msgspec import Struct
from msgspec.structs import replace

from router.config import Access, Config, Key, Policy, Tenant
from router.errors import Unauthorized, UnknownModel
from router.types import Caller

PREFIX = "pm_"  # by which people and secret scanners know such a key
_BYTES = 32  # of chance: a digest without salt or stretching is as good as one with, since nothing can be guessed

_MISSING = "a key is needed here: send it as `authorization: Bearer KEY` or as `x-api-key: KEY`"
_UNKNOWN = "this key is not known here; ask the gateway's operator for one"


class Grant(Struct, frozen=True, kw_only=True):
    """A key with its tenant: what whoever presents it may ask for."""

    key: Key
    digest: bytes
    tenant: Tenant | None  # what keys.yaml says of it, if anything
    models: frozenset[str] | None  # None = all

    def permits(self, model: str) -> bool:
        return self.models is None or model in self.models


class Ring:
    """All keys of one configuration."""

    def __init__(self, access: Access, config: Config) -> None:
        self._grants: dict[str, Grant] = {}
        for name, key in access.keys.items():
            tenant = access.tenants.get(key.tenant)
            models = frozenset(key.models) if key.models is not None else None
            if tenant is not None and tenant.models is not None:
                models = frozenset(tenant.models) if models is None else models & frozenset(tenant.models)
            self._grants[name] = Grant(
                key=key,
                digest=bytes.fromhex(key.sha256),
                tenant=tenant,
                models=models,
            )
        self._by_digest = {grant.digest: grant for grant in self._grants.values()}
        prices = [d.price for d in config.deployments.values() if d.price is not None]
        self.dearest_input = max((price.input for price in prices), default=0.0)  # US dollars per million tokens
        self.dearest_output = max((price.output for price in prices), default=0.0)

    def grant(self, headers: Mapping[bytes, bytes], now: float) -> Grant:
        """What the presented key may use; `now` is Unix seconds. Raises Unauthorized.

        Nothing of the key but its digest is looked up or compared, so the time it takes tells nothing of other keys.
        """
        presented = list(_presented(headers))
        found: Grant | None = None
        for key in presented:
            digest = sha256(key).digest()
            grant = self._by_digest.get(digest)
            if grant is not None and compare_digest(grant.digest, digest):
                found = found or grant
        if found is None:
            raise Unauthorized(_UNKNOWN if presented else _MISSING)
        expires = found.key.expires
        if expires is not None and now >= expires:
            raise Unauthorized(f"the key {found.key.name} expired at {written(expires)}; ask for a new one")
        return found

    def of(self, caller: Caller) -> Grant:
        """The grant of a caller who was let in. Raises Unauthorized where the key has been revoked since."""
        grant = self._grants.get(caller.key)
        if grant is None:
            raise Unauthorized(_UNKNOWN)
        return grant


def keeps_prompts(policy: Policy, grant: Grant | None) -> bool:
    """Whether a record holds the user's words: as the caller's tenant says, else as the policy says."""
    tenant = grant.tenant if grant is not None else None
    said = tenant.record_prompts if tenant is not None else None
    return policy.record_prompts if said is None else said


def known(caller: Caller, grant: Grant) -> Caller:
    """The caller with its names; the key itself goes no further than this."""
    return replace(caller, tenant=grant.key.tenant, key=grant.key.name)


def permit(grant: Grant, model: str) -> None:
    """Raises UnknownModel where the key may not ask for `model`, in the words for one that does not exist."""
    if not grant.permits(model):
        raise UnknownModel(
            f"the model {model[:100]!r} does not exist; GET /v1/models lists those that do", param="model"
        )


def _presented(headers: Mapping[bytes, bytes]) -> Iterator[bytes]:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer" and (token := token.strip()):
        yield token
    if token := headers.get(b"x-api-key", b"").strip():
        yield token


def new() -> tuple[str, str]:
    """A new key and its digest in hex. The key is nowhere else."""
    key = PREFIX + secrets.token_urlsafe(_BYTES)
    return key, sha256(key.encode()).hexdigest()


def written(moment: float) -> str:
    """Unix seconds as keys.yaml has them."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

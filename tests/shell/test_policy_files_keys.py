"""keys.yaml: what it may hold, mistakes at their place, and that it is no part of what routes requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from router.errors import ConfigError
from router.policy_files import load, review
from router.serving import Gateway, Options
from tests.support.config_files import marked, messages, places, write

D = "a" * 64


def keys(entry: str, more: str = "") -> str:
    return f"version: 1\nkeys:\n  ci: {entry}\n{more}"


@pytest.mark.parametrize(
    ("content", "path", "message"),
    [
        (keys("{^sha256: x}").replace("^", ""), "keys.ci.tenant", "the key 'tenant' is missing"),
        (keys("{tenant: a, sha256: ^abc}"), "keys.ci.sha256", "64 hex digits"),
        (keys(f"{{tenant: a, sha256: {D}, expires: ^soon}}"), "keys.ci.expires", "must be a date"),
        (keys(f"{{tenant: a, sha256: {D}, ^expirse: 2027-01-01}}"), "keys.ci.expirse", "did you mean 'expires'?"),
        (keys(f"{{tenant: a, sha256: {D}, requests_per_minute: ^0}}"), "keys.ci.requests_per_minute", "at least 1"),
        (keys(f"{{tenant: a, sha256: {D}, dollars_per_day: ^0}}"), "keys.ci.dollars_per_day", "more than 0"),
        (keys(f"{{tenant: a, sha256: {D}, concurrent: ^many}}"), "keys.ci.concurrent", "a whole number"),
        (keys(f"{{tenant: a, sha256: {D}, models: [^atuo]}}"), "keys.ci.models[0]", "did you mean 'auto'?"),
        (keys(f"{{tenant: a, sha256: {D}, models: ^[]}}"), "keys.ci.models", "at least one model"),
        (keys(f"{{tenant: a, sha256: {D}, quota: {{^lagre: 1}}}}"), "keys.ci.quota.lagre", "did you mean 'large'?"),
        (keys(f"{{tenant: a, sha256: {D}, quota: {{large: ^-1}}}}"), "keys.ci.quota.large", "0 or more"),
        (keys(f"{{tenant: a, sha256: {D}}}", f"  old: {{tenant: a, sha256: ^{D}}}\n"), "keys.old.sha256", "'ci' above"),
        (keys(f"{{tenant: a, sha256: {D}}}", "^tenatns: {}\n"), "tenatns", "did you mean 'tenants'?"),
        ("version: 1\nkeys: ^[]\n", "keys", "must be a mapping"),
    ],
)
def test_a_mistake_is_told_at_its_place(tmp_path: Path, content: str, path: str, message: str) -> None:
    text, place = marked(content)
    folder = write(tmp_path, keys=text)
    found = places(folder)
    if "^" in content:
        assert f"keys.yaml:{place}: {path}" in found
    else:
        assert any(one.endswith(f": {path}") for one in found)
    assert message in messages(folder)


def test_what_is_odd_is_a_warning(tmp_path: Path) -> None:
    text = keys(f"{{tenant: a, sha256: {D}, dollars_per_day: 1}}", "tenants: {b: {concurrent: 1}}\n")
    found = review(write(tmp_path, keys=text), {})
    assert found.config is not None
    told = "\n".join(str(one) for one in found.warnings)
    assert "tenants.b: no key belongs to this tenant" in told
    assert "without a price: small-a, large-b" in told


def test_keys_change_no_digest(tmp_path: Path) -> None:
    before = load(write(tmp_path), {})
    after = load(write(tmp_path, keys=keys(f"{{tenant: a, sha256: {D}}}")), {})
    assert before.digest == after.digest
    assert before != after


async def test_an_address_that_others_reach_needs_keys_or_a_word_to_do_without(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    folder = write(tmp_path / "config")
    options: dict[str, Any] = {"config": folder, "state": tmp_path / "state", "port": 0, "admin_port": 0}
    with pytest.raises(ConfigError, match="--open-to-everyone"):
        await Gateway(Options(host="0.0.0.0", **options)).start()
    gateways = [Gateway(Options(host="0.0.0.0", open_to_everyone=True, **options))]
    gateways += [Gateway(Options(host=host, **options)) for host in ("127.0.0.1", "localhost", "::1")]
    write(folder, keys=keys(f"{{tenant: a, sha256: {D}}}"))
    gateways.append(Gateway(Options(host="0.0.0.0", **options)))
    for gateway in gateways:
        await gateway.start()
    try:
        (folder / "keys.yaml").unlink()
        assert not await gateways[-1].reload(), "the door stays closed where its file vanishes"
        assert gateways[-1].snapshot.ring is not None
        assert "is missing" in (gateways[-1].last_error or "")
    finally:
        for gateway in gateways:
            await gateway.close()

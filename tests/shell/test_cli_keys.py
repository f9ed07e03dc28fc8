"""`pointsman keys`: a key is shown once, its digest kept; what operators wrote beside it stays."""

from __future__ import annotations

import json
import stat
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from router.cli.keys import command
from router.policy_files import load
from router.policy_files.keyfile import CannotEdit, added, removed
from tests.support.config_files import write

D1, D2 = "1" * 64, "2" * 64
WRITTEN = f"""\
version: 1
# Ask Ana before changing these.
keys:
    web:           # the shop
        tenant: shop
        sha256: {D1}

    # runs at night
    nightly: {{tenant: batch, sha256: {D2}}}

tenants:
    batch: {{dollars_per_day: 5}}
"""


def keys(*given: str) -> Result:
    return CliRunner().invoke(command, [*given])


def test_a_key_is_printed_once_and_kept_as_its_digest(tmp_path: Path) -> None:
    folder = write(tmp_path)
    made = keys("create", "--config", str(folder), "--tenant", "acme", "--name", "ci")
    assert made.exit_code == 0
    token = made.stdout.strip()
    assert token.startswith("pm_")
    assert len(token) >= 46
    assert "every request" in made.stderr
    text = (folder / "keys.yaml").read_text()
    assert token not in text
    access = load(folder, {}).access
    assert access is not None
    assert access.keys["ci"].sha256 == sha256(token.encode()).hexdigest()
    assert token not in keys("list", "--config", str(folder)).output


def test_limits_expiry_and_models_are_written_as_the_files_have_them(tmp_path: Path) -> None:
    folder = write(tmp_path)
    given = ["--expires", "90d", "--models", "auto,large", "--requests-per-minute", "60", "--tokens-per-minute", "9000"]
    given += ["--concurrent", "4", "--dollars-per-day", "2.5", "--quota", "large=100"]
    made = keys("create", "--config", str(folder), "--tenant", "acme", "--json", *given)
    assert made.exit_code == 0
    name = json.loads(made.stdout)["name"]
    access = load(folder, {}).access
    assert access is not None
    key = access.keys[name]
    assert (key.models, key.requests_per_minute, key.tokens_per_minute) == (("auto", "large"), 60, 9000)
    assert (key.concurrent, key.dollars_per_day, key.quota) == (4, 2.5, {"large": 100})
    assert key.expires is not None
    [row] = json.loads(keys("list", "--config", str(folder), "--json").stdout)
    assert row["name"] == name
    assert row["quota"] == {"large": 100}
    assert f"{name}  acme" in keys("list", "--config", str(folder)).stdout


def test_what_would_not_load_is_not_written(tmp_path: Path) -> None:
    folder = write(tmp_path)
    made = keys("create", "--config", str(folder), "--tenant", "acme", "--quota", "lagre=1", "--models", "atuo")
    assert made.exit_code == 1
    assert "did you mean 'large'?" in made.output
    assert "did you mean 'auto'?" in made.output
    assert not (folder / "keys.yaml").exists()


def test_keys_are_added_and_revoked_beside_comments_and_other_entries(tmp_path: Path) -> None:
    folder = write(tmp_path, keys=WRITTEN)
    (folder / "keys.yaml").chmod(0o640)
    assert keys("create", "--config", str(folder), "--tenant", "shop", "--name", "web-2").exit_code == 0
    text = (folder / "keys.yaml").read_text()
    assert [line for line in WRITTEN.splitlines() if line not in text.splitlines()] == []
    assert stat.S_IMODE((folder / "keys.yaml").stat().st_mode) == 0o640
    gone = keys("revoke", "web", "--config", str(folder))
    assert gone.exit_code == 0
    text = (folder / "keys.yaml").read_text()
    access = load(folder, {}).access
    assert access is not None
    assert set(access.keys) == {"nightly", "web-2"}
    assert "# runs at night" in text
    assert "# Ask Ana" in text
    assert "# the shop" not in text


def test_all_keys_of_a_tenant_go_at_once_and_the_last_one_leaves_a_closed_door(tmp_path: Path) -> None:
    folder = write(tmp_path, keys=WRITTEN)
    assert keys("revoke", "--tenant", "batch", "--config", str(folder)).exit_code == 0
    assert keys("revoke", "web", "--config", str(folder)).exit_code == 0
    access = load(folder, {}).access
    assert access is not None
    assert access.keys == {}
    assert "nobody is let in" in keys("list", "--config", str(folder)).output


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["revoke", "wbe"], "there is no key 'wbe'; there is web, nightly"),
        (["revoke"], "say which"),
        (["create", "--tenant", "x", "--name", "web"], "there is a key 'web' already"),
        (["create", "--tenant", "x", "--expires", "soon"], "write a duration such as 90d"),
        (["create", "--tenant", "x", "--quota", "large"], "write GROUP=N"),
        (["create", "--tenant", "a b"], "a name is up to 128 letters"),
    ],
)
def test_a_mistake_says_what_to_do_and_writes_nothing(tmp_path: Path, given: list[str], told: str) -> None:
    folder = write(tmp_path, keys=WRITTEN)
    result = keys(*given, "--config", str(folder))
    assert result.exit_code != 0
    assert told in result.output
    assert (folder / "keys.yaml").read_text() == WRITTEN


@pytest.mark.parametrize("name", ["a", "12", "a.b/c@d", "x:y", "null"])
def test_what_is_added_under_any_name_can_be_removed_again(name: str) -> None:
    for text in (WRITTEN, "", "version: 1\nkeys: {}\n", "version: 1\nkeys: {}  # nobody\ntenants: {}\n"):
        more = added(text, name, {"tenant": "t", "sha256": D1})
        assert added(removed(more, name), name, {"tenant": "t", "sha256": D1}) == more


@pytest.mark.parametrize("text", [f"version: 1\nkeys: {{web: {{tenant: a, sha256: {D1}}}}}\n", "version: 1\n", "- a\n"])
def test_a_text_in_another_style_is_left_to_its_owner(text: str) -> None:
    with pytest.raises(CannotEdit, match="by hand"):
        added(text, "other", {"tenant": "t", "sha256": D2})

"""docs/policies.md says what is so: its examples load, and it names every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from router.policy_files import review
from router.policy_files.descriptions import KEYS
from tests.support.config_files import GROUPS, policy, write

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "policies.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
ENVIRON = {"LARGE_KEY": "k"}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_of_the_documentation_loads(tmp_path: Path, number: int) -> None:
    """A block that begins with a file's name is that file, up to the next one's; others are lines of a policy."""
    block = BLOCKS[number]
    before, *named = re.split(r"^# (\w+)\.yaml\n", block, flags=re.MULTILINE)
    files = {"groups": GROUPS, "default": policy()}
    files |= dict(zip(named[::2], named[1::2], strict=True)) if named else {"default": policy(before)}
    assert review(write(tmp_path, **files), ENVIRON).mistakes == ()


def test_the_documentation_has_examples() -> None:
    assert len(BLOCKS) >= 12


@pytest.mark.parametrize(("owner", "key"), [(owner, key) for owner, keys in KEYS.items() for key in keys])
def test_every_key_is_documented_and_stands_in_an_example(owner: str, key: str) -> None:
    assert re.search(rf"`[^`\n]*\b{key}\b[^`\n]*`", TEXT), f"{owner}.{key} is not described"
    assert any(re.search(rf"\b{key}:", block) for block in BLOCKS), f"{owner}.{key} is in no example"


@pytest.mark.parametrize("name", ["chat", "agents", "cost-cap", "quality-floor", "three-tier"])
def test_a_shipped_example_policy_loads_beside_groups_of_the_usual_names(tmp_path: Path, name: str) -> None:
    text = (ROOT / "policies" / "examples" / f"{name}.yaml").read_text()
    groups = GROUPS.replace("groups:\n", "groups:\n  frontier: {deployments: [large-a]}\n")
    found = review(write(tmp_path, groups=groups, default=text), {})
    assert found.mistakes == ()
    assert found.examples >= 4
    assert found.config is not None
    assert set(found.config.policies) == {name}

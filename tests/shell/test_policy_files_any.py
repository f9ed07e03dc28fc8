"""Whatever stands in the files, the answer is a configuration or mistakes with places: never another exception."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from router.policy_files import review
from router.policy_files.review import Review
from tests.support.config_files import GROUPS, POLICY, write

ROOT = Path(__file__).parents[2]
FILES = [GROUPS, POLICY, *(path.read_text() for path in sorted((ROOT / "policies" / "examples").glob("*.yaml")))]
DATA: list[Any] = [yaml.safe_load(text) for text in FILES]

scalars = st.none() | st.booleans() | st.integers(-5, 10**30) | st.floats(width=32) | st.text(max_size=8)
words = st.sampled_from(["", "${NOPE}", "1h", "small", "large", "difficulty", "default", "any", "when", "group", "0.5"])
values = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def judged(groups: bytes, default: bytes) -> Review:
    with tempfile.TemporaryDirectory() as folder:
        found = review(write(Path(folder), groups=groups, default=default), {})
    assert (found.config is None) == bool(found.mistakes)
    for one in (*found.mistakes, *found.warnings):
        assert one.line >= 1
        assert one.column >= 1
        assert one.path
        assert one.message
    return found


def paths(data: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in the data at which a value can be replaced."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(below for key, value in pairs for below in paths(value, (*path, key)))]


def replaced(data: Any, path: tuple[Any, ...], value: object) -> Any:
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(data, dict):
        return {one: replaced(old, rest, value) if one == key else old for one, old in data.items()}
    return [replaced(old, rest, value) if one == key else old for one, old in enumerate(data)]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_value_at_any_key_is_taken_or_told(data: st.DataObject) -> None:
    original = data.draw(st.sampled_from(DATA))
    changed = replaced(original, data.draw(st.sampled_from(paths(original))), data.draw(values))
    text = yaml.safe_dump(changed, allow_unicode=True).encode()
    judged(*(text, POLICY.encode()) if original is DATA[0] else (GROUPS.encode(), text))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FILES), st.integers(0, 2000), st.integers(0, 20), st.binary(max_size=6))
def test_any_bytes_anywhere_in_a_file_are_taken_or_told(text: str, at: int, cut: int, put: bytes) -> None:
    content = text.encode()
    at = min(at, len(content))
    changed = content[:at] + put + content[at + cut :]
    judged(*(changed, POLICY.encode()) if text is GROUPS else (GROUPS.encode(), changed))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4000))
def test_a_half_written_file_is_taken_or_told(length: int) -> None:
    for text in FILES[1:]:
        judged(GROUPS.encode(), text.encode()[: length % len(text)])

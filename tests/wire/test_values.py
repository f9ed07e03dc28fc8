"""Values of a JSON text are counted outside of its strings, wherever a block of it ends."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from router.errors import BadRequest
from router.wire import CODECS, values
from router.wire.loose import is_array, is_object
from router.wire.values import MOST, too_many


def count(value: Any) -> int:
    """Commas and opening brackets: one for each value but the first, and one for each that is not empty or a leaf."""
    inside = [*value.values()] if is_object(value) else value
    return sum(map(count, inside)) + max(1, len(inside)) if is_array(inside) else 0


@pytest.mark.parametrize("shift", range(8))
def test_what_stands_in_strings_is_not_counted(shift: int):
    chance = random.Random(shift)
    texts = ["".join(chance.choices('\\",{[x', k=40)) for _ in range(200)]
    value = [{text: texts[i - 1], "n": [i]} for i, text in enumerate(texts)]
    body = json.dumps(value).encode()
    most = count(value)
    # Ends of blocks fall into texts, between a backslash and what it escapes too.
    block = values._BLOCK  # pyright: ignore[reportPrivateUsage]
    whole = b" " * (3 * block + shift - len(body) // 2) + body
    assert not too_many(whole, most)
    assert too_many(whole, most - 1)


def test_a_text_of_punctuation_is_one_value():
    assert not too_many(b'["' + b",{[" * MOST + b'"]')
    assert too_many(b'["' + b'","' * (MOST + 1) + b'"]')


def test_so_many_values_are_refused_before_any_is_made():
    body = b'{"model":"auto","messages":[],"tools":[' + b",".join([b"{}"] * MOST) + b"]}"
    with pytest.raises(BadRequest, match="values"):
        CODECS["chat"].decode(body)

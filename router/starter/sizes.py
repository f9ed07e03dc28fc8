"""How large a model is, told from its name: billions of parameters where the name has them, else what families call
their sizes. No I/O."""

from __future__ import annotations

import re
from typing import Final

_COUNT = re.compile(r"(?:^|[-_:/ @.])(?:(\d+)x)?e?(\d+(?:\.\d+)?)([bmt])(?=$|[-_:/ @.])")
_UNIT_B: Final = {"m": 0.001, "b": 1.0, "t": 1000.0}
# What providers call their sizes, smallest first; the first that a name holds counts.
RANKS: Final = (
    (1, re.compile(r"\b(nano|mini|luna|haiku|flash|lite|small|ministral|instant|fast|micro|tiny|deepseek chat)\b")),
    (2, re.compile(r"\b(sonnet|terra|medium|turbo|air)\b")),
    (4, re.compile(r"\b(opus|sol|pro|large|max|ultra|reasoner|premier|heavy)\b")),
)
_SOUNDS_B: Final = (0.0, 4.0, 20.0, 30.0, 200.0)  # by rank; only for comparing
PLAIN: Final = 3  # a name without any of these words: above a medium one, below one that is called large
_NO_CHAT = re.compile(
    r"embed|\bbge\b|rerank|whisper|\btts\b|speech|audio|realtime|transcri|image|dall-e|\bsora|\bveo|moderation|guard"
    r"|\baqa\b|davinci|babbage|turbo-instruct|\bocr\b|search|computer-use|research|codex|\blyria|robotics|minilm"
)
_DATE = re.compile(r"(?<!\d)(20\d{2}-\d{2}-\d{2}|20\d{6}|\d{4})(?!\d)")
_UNFINISHED = re.compile(r"preview|\bexp\b|experimental|beta")


def words(name: str) -> str:
    """The name with everything that parts its words made a space."""
    return re.sub(r"[^a-z0-9.]+", " ", name.lower())


def billions(name: str) -> float | None:
    """Billions of parameters that a name tells: 8 for `llama3.1:8b`, 56 for `mixtral-8x7b`, 0.27 for `gemma-3-270m`."""
    found = _COUNT.search(name.lower())
    if found is None:
        return None
    return float(found[1] or 1) * float(found[2]) * _UNIT_B[found[3]]


def rank(name: str) -> int:
    """1 for names that say small, 4 for those that say large."""
    said = words(name)
    return next((number for number, pattern in RANKS if pattern.search(said)), PLAIN)


def guess(*names: str) -> float:
    """Billions of parameters of a model that goes by these names; where none tells, as large as they sound."""
    known = next((size for name in names if (size := billions(name)) is not None), None)
    sounds = max((number for name in names if (number := rank(name)) != PLAIN), default=PLAIN)
    return known if known is not None else _SOUNDS_B[sounds]


def chats(name: str) -> bool:
    """Whether this is a model to talk to, by its name."""
    return _NO_CHAT.search(name.lower()) is None


def newness(name: str) -> tuple[bool, tuple[float, ...], bool]:
    """For sorting models of one family, the newest last: finished before previews, by version, an alias after a dated
    name of the same version."""
    dated = _DATE.search(name) is not None
    numbers = re.findall(r"\d+(?:\.\d+)?", _DATE.sub("", _COUNT.sub("", name.lower())))
    return _UNFINISHED.search(name.lower()) is None, tuple(float(number) for number in numbers), not dated

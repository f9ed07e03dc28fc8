"""Reading a prompt into one canonical form: bounded, case- and space-free, without advice to the router.

Every feature is computed from this form, so reformatting that keeps the meaning cannot move a score, and a
sentence such as "this is easy, use the cheap model" is gone before anything is counted. No scoring here.
"""

from __future__ import annotations

import re
import unicodedata

from msgspec import Struct

from router.scorers import advice

HEAD = 1400  # characters of the beginning that are read; half as many where a character is a word
TAIL = 600  # and of the end; both bound the cost at any length
_RAW = 3  # raw characters looked at per canonical one, so that padding with blanks cannot hide the text

_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_CJK = re.compile(f"[{_IDEOGRAPHS}]")
_TOKEN = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*|\d+(?:[.,]\d+)*|[^\w\s]")
_CJK_TOKEN = re.compile(rf"[{_IDEOGRAPHS}]|[^\W\d_{_IDEOGRAPHS}]+|\d+(?:[.,]\d+)*|[^\w\s]")
_POLITE = re.compile(
    r"\b(?:please|pls|kindly|bitte|por favor|пожалуйста|s'il (?:te|vous) pla[iî]t|per favore)\b[,:]?"
    r"|(?:请你?|麻烦你?)(?=\S)"
)
_POLITE_WORDS = ("please", "pls", "kindly", "bitte", "favor", "пожалуйста", "s'il", "请", "麻烦")  # cheap proof of none
_MARKS = ("**", "__", "#", ">")
_EMPHASIS = re.compile(r"\*\*|__|(?<!\S)#{1,6}(?=\s)|(?<!\S)>(?=\s)")


_COMPATIBLE = (
    (0xA0, 0xBF),
    (0x2000, 0x218F),
    (0x2460, 0x24FF),
    (0x3000, 0x3001),
    (0xFB00, 0xFB06),
    (0xFF01, 0xFFE6),
)


def _plain() -> dict[int, str | None]:
    """Look-alikes to what they look like: full-width forms, super- and subscripts, quotes, dashes; nothing for
    characters that show nothing. Unicode's own compatibility mapping over these ranges; all of it is too slow."""
    table: dict[int, str | None] = {}
    for first, last in _COMPATIBLE:
        for code in range(first, last + 1):
            plain = unicodedata.normalize("NFKC", chr(code))
            if plain != chr(code):
                table[code] = plain
    table.update(dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF)))
    look = {"‘": "'", "’": "'", "“": '"', "”": '"', "«": '"', "»": '"', "„": '"', "–": "-", "—": "-", "−": "-"}
    return table | {ord(k): v for k, v in look.items()}


_PLAIN = _plain()


class Reading(Struct, frozen=True, kw_only=True):
    """One prompt as the features see it."""

    text: str  # canonical: at most HEAD + TAIL characters
    tokens: tuple[str, ...]  # words, numbers and punctuation marks, in order
    length: int  # characters of the whole prompt, as bare as the text where all of it was read
    cjk: bool  # has Chinese or Japanese script

    @property
    def worded(self) -> bool:
        """Whether it has a word or a number at all."""
        return any(t[0].isalnum() for t in self.tokens)


def canonical(raw: str) -> tuple[str, int]:
    """The canonical text, lines still apart, and the length in characters of what it stands for."""
    length = len(raw)
    cut = length > _RAW * (HEAD + TAIL)
    if cut:
        raw = raw[: _RAW * HEAD] + " " + raw[-_RAW * TAIL :]
    text = "\n".join(" ".join(line.split()) for line in raw.splitlines())
    if not cut:
        length = len(text)
    if len(text) > HEAD + TAIL:
        text = text[:HEAD] + " " + text[-TAIL:]
    if not text.isascii():
        if len(text) > (HEAD + TAIL) // 2 and len(_CJK.findall(text, 0, 400)) > 100:
            text = text[: HEAD // 2] + " " + text[-TAIL // 2 :]
        if not unicodedata.is_normalized("NFC", text):
            text = unicodedata.normalize("NFC", text)
        text = text.translate(_PLAIN)
    return text.casefold(), length


def _bare(text: str) -> str:
    """Without what does not change the task: emphasis, please, quotes around the whole, runs of blanks."""
    if any(mark in text for mark in _MARKS):
        text = _EMPHASIS.sub("", text)
    if any(word in text for word in _POLITE_WORDS):
        text = _POLITE.sub(" ", text)
    text = " ".join(text.split())
    while len(text) > 2 and text[0] == text[-1] and text[0] in "\"'" and text.count(text[0]) == 2:
        text = text[1:-1].strip()
    return text


def read(raw: str) -> Reading:
    """Read one prompt. Costs microseconds per hundred words and is bounded at any length."""
    text, length = canonical(raw)
    kept = advice.drop(text)
    plain = _bare(kept) or _bare(text) or text
    length = max(len(plain), length - (len(text) - len(plain))) if len(text) <= HEAD + TAIL else length
    cjk = not plain.isascii() and _CJK.search(plain) is not None
    tokens = (_CJK_TOKEN if cjk else _TOKEN).findall(plain)
    return Reading(text=plain, tokens=tuple(tokens), length=length, cjk=cjk)

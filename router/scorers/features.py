"""Features of one prompt: surface, options of a multiple-choice question, kind of work, hashed n-grams.

Everything is a pure function of `text.read`. The order of `SURFACE`, `OPTIONS` and `WORK` is part of every
artifact; an artifact names the features it was trained on and refuses to load when they have changed.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from math import log1p
from zlib import crc32

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.scorers.advice import words as listed
from router.scorers.lexicon import CATEGORIES, NAMES
from router.scorers.text import Reading

Vector = NDArray[np.float32]
Index = NDArray[np.int32]

# --- surface ---------------------------------------------------------------------------------------------

_STOP = frozenset(
    listed(
        "the a an of to in and is are was were be for on with as by at from that this it its or which what "
        "who how when not if than then there their his her he she they we you i your my our can will would "
        "could should do does did has have had but so such may one two no into about over under between each "
        "all any some most more"
    )
)
_PERSON = frozenset(
    listed("i me my mine we us our you your yours я мне мой мы ты вы yo mi me mis tú su ich mir mein wir du je")
)
_WH = ("what", "which", "who", "when", "where", "why", "how")
_NEGATION = frozenset(
    listed("not except least false incorrect never cannot neither nor without нет не no nicht kein keine")
)
_SYMBOLS = "=^\\{}<>∑∫√≤≥≠∈∀∃→∞πθλ±×÷"
_FORMULA = frozenset([*_SYMBOLS, "x", "y", "z", "n", "f", "frac", "sqrt", "sin", "cos", "log", "mod"])
_CODE = (
    "```", "; ", "{ ", "} ", "def ", "class ", "return ", "=>", "::", "()", "</", "import ", "#include", "select ",
    "!=",
    "==", "&&", "->", "[0]", "/>",
)  # fmt: skip
_UNITS = frozenset(
    listed(
        "% ° km kg cm mm mg ml m s g j n k w v ev kj mol hz psi ft lb atm pa kpa meters metres grams seconds "
        "hours degrees"
    )
)
_MONEY = frozenset(listed("$ € £ ¥ ₽ dollars cents euros pounds руб рублей euro yuan 元"))
_AGE = frozenset(("year-old", "years-old", "month-old", "week-old", "old", "лет", "años", "jahre", "岁"))
_ROMAN = frozenset(("ii", "iii", "iv"))
_ASKED = (
    "how many",
    "how much",
    "how long",
    "how far",
    "how old",
    "the total",
    "the average",
    "in total",
    "altogether",
)

SURFACE: tuple[str, ...] = (
    "log_chars", "log_tokens", "log_words", "word_length", "long_words", "stop_share", "distinct_share", "digit_share",
    "numbers", "first_number_size", "punctuation_share", "commas", "question_marks", "sentences", "sentence_words",
    "quotes", "parentheses", "formula", "formula_share", "code", "units", "money", "age", "roman", "quantity", "blank",
    "negation", "person", *(f"wh_{w}" for w in _WH), "wh_first", "ends_question", "ends_colon", "ends_blank", "best",
    "most_likely", "following", "according_to", "passage", "conditional", "true_false", "statements", "of_these",
    "non_ascii", "cjk", "cyrillic", "hyphens", "slashes", "colon_payload", "calculate", "percent", "year_numbers",
    "decimal_numbers", "capital_free_ratio",
)  # fmt: skip


# Which of the lists a token stands in, one bit each: one look for all of them.
_STOP_BIT, _FORMULA_BIT, _UNIT_BIT, _NEGATION_BIT, _PERSON_BIT = 1, 2, 4, 8, 16
_LISTS: dict[str, int] = {}
for _bit, _list in (
    (_STOP_BIT, _STOP),
    (_FORMULA_BIT, _FORMULA),
    (_UNIT_BIT, _UNITS),
    (_NEGATION_BIT, _NEGATION),
    (_PERSON_BIT, _PERSON),
):
    for _token in _list:
        _LISTS[_token] = _LISTS.get(_token, 0) | _bit
_SMALL_CYRILLIC = re.compile("[а-я]")


def surface(stem: str, tokens: tuple[str, ...], length: int, *, cjk: bool) -> list[float]:
    """Counts and shapes of a text; `stem` is the question without its options. One number per `SURFACE`."""
    bag = Counter(tokens)
    count = bag.get  # a missing key is much dearer by []
    lists = [(bits, c) for t, c in bag.items() if (bits := _LISTS.get(t))]

    def standing_in(bit: int) -> int:
        return sum(c for bits, c in lists if bits & bit)

    words = [(t, c) for t, c in bag.items() if t[0].isalpha()]
    numbers = [t for t in tokens if t[0].isdigit()]
    n = max(1, len(tokens))
    total = sum(c for _, c in words)
    nw = max(1, total)
    chars = max(1, len(stem))
    sentences = max(1, count(".", 0) + count("?", 0) + count("!", 0) + count("。", 0) + count("？", 0) + count("！", 0))
    formula = standing_in(_FORMULA_BIT)
    colon = stem.find(":", 0, 200)
    ascii_only = stem.isascii()
    first = next((t for t in tokens[:4] if t[0].isalpha()), "")
    return [
        log1p(length), log1p(n), log1p(total), sum(len(w) * c for w, c in words) / nw,
        sum(c for w, c in words if len(w) > 8) / nw, standing_in(_STOP_BIT) / nw, len(words) / nw,
        sum(map(len, numbers)) / chars, log1p(len(numbers)), _size(numbers), (n - total - len(numbers)) / n,
        log1p(count(",", 0)), min(3.0, count("?", 0) + count("？", 0)), log1p(sentences), log1p(total / sentences),
        log1p(count('"', 0)),
        log1p(count("(", 0)), log1p(formula), formula / n, log1p(sum(c in stem for c in _CODE)),
        log1p(standing_in(_UNIT_BIT)),
        float(not _MONEY.isdisjoint(bag)), float(not _AGE.isdisjoint(bag) and bool(numbers)),
        float(not _ROMAN.isdisjoint(bag)), float(any(a in stem for a in _ASKED)), float("__" in stem),
        min(2.0, standing_in(_NEGATION_BIT)), log1p(standing_in(_PERSON_BIT)), *(float(w in bag) for w in _WH),
        float(first in _WH), float(stem.endswith(("?", "？"))), float(stem.endswith(":")),
        float(stem[-6:].count("_") > 1),
        float("best" in bag), float("most likely" in stem), float("following" in bag), float("according" in bag),
        float("refer" in stem or "passage" in bag), float("if" in bag or "suppose" in bag or "assume" in bag),
        float("true" in bag or "false" in bag), float("statement" in bag),
        float("of these" in stem or "of the above" in stem),
        0.0 if ascii_only else _beyond_ascii(stem[:300]) / min(chars, 300), float(cjk),
        0.0 if ascii_only else float(_SMALL_CYRILLIC.search(stem, 0, 100) is not None),
        log1p(count("-", 0)), log1p(count("/", 0)),
        (chars - colon) / chars if colon >= 0 else 0.0, float("calculate" in bag or "compute" in bag or "find" in bag),
        float("%" in bag or "percent" in bag), float(any(len(t) == 4 and t[0] in "12" for t in numbers)),
        log1p(sum("." in t for t in numbers)), sum(c for w, c in words if len(w) <= 3) / nw,
    ]  # fmt: skip


def _beyond_ascii(text: str) -> int:
    return len(text) - len(text.encode("ascii", "ignore"))


def _size(numbers: list[str]) -> float:
    digits = numbers[0].split(".", 1)[0].replace(",", "")[:15] if numbers else ""
    return min(14.0, log1p(int(digits))) if digits.isdecimal() else 0.0


# --- the options of a multiple-choice question -----------------------------------------------------------

_LETTER = re.compile(r"(?:^|[\s(\[])([a-j])[.):\]]\s?")
_SECOND = (" b.", " b)", "(b)", " b:", "[b]")  # cheap proof that there is a second option
_NUMERIC = re.compile(r"^[^a-z]*\d[^a-z]*(?:[a-z]{1,4}\S{0,4})?$")

OPTIONS: tuple[str, ...] = (
    "options", "option_chars", "option_chars_max", "option_chars_min", "option_chars_spread", "option_words",
    "option_numeric", "option_overlap", "option_stem_overlap", "option_formula", "option_none_all", "option_true_false",
    "option_same_start", "option_digit_share", "option_total_share", "option_longest_last", "option_and",
    "option_commas",
    "option_distinct", "option_blank", "option_sorted", "option_negation", "option_long_words", "option_one_word",
)  # fmt: skip


class Question(Struct, frozen=True, kw_only=True):
    """A prompt taken apart: the stem, and the options where it offers at least three."""

    stem: str
    options: tuple[str, ...]


def take_apart(text: str) -> Question:
    """Find the longest run of options a, b, c, ... in a canonical text, on one line or on many."""
    text = text.removesuffix(":").removesuffix("answer").rstrip() if text.endswith(("answer:", " answer")) else text
    if not any(b in text for b in _SECOND):
        return Question(stem=text, options=())
    chain: list[re.Match[str]] = []
    best: list[re.Match[str]] = []
    for match in _LETTER.finditer(text):
        letter = match[1]
        if letter == chr(97 + len(chain)):
            chain.append(match)
        elif letter == "a":
            best = chain if len(chain) > len(best) else best
            chain = [match]
    best = chain if len(chain) >= len(best) else best
    if len(best) < 3:
        return Question(stem=text, options=())
    edges = [m.start() for m in best[1:]] + [len(text)]
    options = tuple(text[m.end() : edge].strip() for m, edge in zip(best, edges, strict=True))
    return Question(stem=text[: best[0].start()].strip(), options=options)


def option_shape(question: Question) -> list[float]:
    """What the options look like, one number per `OPTIONS`; all zero without options."""
    options = question.options
    if not options:
        return [0.0] * len(OPTIONS)
    k = len(options)
    sizes = [len(o) for o in options]
    total = sum(sizes)
    mean = total / k
    bags = [set(o.split()) for o in options]
    stem = set(question.stem.split())
    words = [w for o in options for w in o.split()]
    nw = max(1, len(words))
    union = {w for b in bags for w in b}
    pairs = list(pairwise(bags))
    overlap = sum(len(a & b) / max(1, len(a | b)) for a, b in pairs) / max(1, len(pairs))
    joined = " ".join(options)
    numeric = [o for o in options if _NUMERIC.match(o)]
    leading = [re.sub(r"[^\d.-]", "", o) for o in numeric]
    values = [float(v) for v in leading if re.fullmatch(r"-?\d+(?:\.\d+)?", v)]
    return [
        float(k), log1p(mean), log1p(max(sizes)), log1p(min(sizes)), (max(sizes) - min(sizes)) / max(1.0, mean),
        log1p(len(words) / k), len(numeric) / k, overlap, len(union & stem) / max(1, len(union)),
        log1p(sum(c in _FORMULA for c in joined)), float("none of" in joined or "all of" in joined or "both" in joined),
        float("true" in joined and "false" in joined), float(len({o[:4] for o in options}) < k),
        sum(map(str.isdigit, joined)) / max(1, total), total / max(1, total + len(question.stem)),
        float(sizes[-1] == max(sizes)), joined.count(" and ") / k, joined.count(",") / k, len(union) / nw,
        float(min(sizes) == 0), float(len(values) > 2 and values in (sorted(values), sorted(values, reverse=True))),
        sum(w in _NEGATION for w in words) / k, sum(len(w) > 8 for w in words) / nw, sum(len(b) <= 1 for b in bags) / k,
    ]  # fmt: skip


# --- the kind of work ------------------------------------------------------------------------------------

_NEAR_START = 7  # tokens that count as the beginning of the prompt
_NEAR_END = 14  # tokens that count as its end: an instruction often follows the material
_CJK_WIDTH = 2  # a Chinese character carries about half a word

WORK: tuple[str, ...] = tuple(f"{name}_{place}" for place in ("start", "end", "count") for name in NAMES)


def _is_cjk(entry: str) -> bool:
    return any("\u3040" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7af" for c in entry)


def _tables() -> tuple[dict[str, tuple[int, ...]], list[tuple[str, int]], dict[str, dict[str, int]], dict[str, int]]:
    exact: dict[str, set[int]] = {}
    prefixes: list[tuple[str, int]] = []
    phrases: dict[str, dict[str, int]] = {}
    scripts: dict[str, int] = {}
    for index, entries in enumerate(CATEGORIES.values()):
        for entry in entries.split():
            if _is_cjk(entry):
                scripts.setdefault(entry, index)
            elif "_" in entry:
                phrases.setdefault(entry.split("_", 1)[0].rstrip("*"), {})[entry.replace("_", " ")] = index
            elif entry.endswith("*"):
                prefixes.append((entry[:-1], index))
            else:
                exact.setdefault(entry, set()).add(index)
    return {k: tuple(sorted(v)) for k, v in exact.items()}, prefixes, phrases, scripts


_EXACT, _PREFIXES, _PHRASES, _SCRIPTS = _tables()
_PREFIX_MAP: dict[str, list[int]] = {}
for _prefix, _category in _PREFIXES:
    _PREFIX_MAP.setdefault(_prefix, []).append(_category)
_PREFIX_SIZES = sorted({len(p) for p in _PREFIX_MAP})
_SCRIPT_BY_FIRST: dict[str, list[tuple[str, int]]] = {}
for _entry, _category in sorted(_SCRIPTS.items(), key=lambda e: (-len(e[0]), e[0])):
    _SCRIPT_BY_FIRST.setdefault(_entry[0], []).append((_entry, _category))
_SCRIPT_FIRST = re.compile(f"[{''.join(_SCRIPT_BY_FIRST)}]")


def _script_entries(text: str) -> list[tuple[int, int]]:
    """(position, category) of the entries in scripts without blanks, the longest at each position."""
    found: list[tuple[int, int]] = []
    for match in _SCRIPT_FIRST.finditer(text):
        i = match.start()
        for entry, category in _SCRIPT_BY_FIRST[match[0]]:
            if text.startswith(entry, i):
                found.append((i, category))
                break
    return found


@lru_cache(maxsize=32768)
def categories(token: str) -> tuple[int, ...]:
    """Categories of one word: its own entry, and every prefix entry it begins with."""
    found = set(_EXACT.get(token, ()))
    for size in _PREFIX_SIZES:
        if size > len(token):
            break
        found.update(_PREFIX_MAP.get(token[:size], ()))
    return tuple(sorted(found))


def _phrase_at(tokens: tuple[str, ...], i: int) -> tuple[int, ...]:
    found = _PHRASES.get(tokens[i])
    if found is None:
        return ()
    rest = " ".join(tokens[i : i + 5]) + " "
    return tuple(
        c for p, c in found.items() if (rest.startswith(p[:-1]) if p.endswith("*") else rest.startswith(p + " "))
    )


def work(reading: Reading) -> list[float]:
    """Which kinds of work are asked for: near the start, near the end, and how often. One number per `WORK`."""
    k = len(NAMES)
    out = [0.0] * (3 * k)
    tokens = reading.tokens
    last = len(tokens) - _NEAR_END
    for i, token in enumerate(tokens):
        found = categories(token)
        if token in _PHRASES:
            found += _phrase_at(tokens, i)
        for c in found:
            out[2 * k + c] += 1.0
            if i < _NEAR_START:
                out[c] = 1.0
            if i >= last:
                out[k + c] = 1.0
    if reading.cjk:
        end = len(reading.text) - _NEAR_END * _CJK_WIDTH
        for at, c in _script_entries(reading.text):
            out[2 * k + c] += 1.0
            if at < _NEAR_START * _CJK_WIDTH:
                out[c] = 1.0
            if at >= end:
                out[k + c] = 1.0
    for c in range(2 * k, 3 * k):
        if out[c]:
            out[c] = log1p(out[c])
    return out


# --- hashed n-grams --------------------------------------------------------------------------------------

BITS = 15  # of the hashed spaces: 32,768 weights each
_P = tuple(np.uint32(p) for p in (2654435761, 2246822519, 3266489917, 668265263))
_SHIFT = np.uint32(32 - BITS)


_EDGE = 5  # words at either end that also count by where they stand


def hashed_words(tokens: tuple[str, ...]) -> Index:
    """Buckets of the words and word pairs, and of the first and last words as such. Numbers count by length only."""
    worded = [t for t in tokens if t[0].isalnum()]
    if len(worded) > 450:
        worded = worded[:300] + worded[-150:]
    plain = [(t if t[0].isalpha() else f"#{len(t)}").encode("utf-8", "replace") for t in worded]
    grams = [crc32(t) for t in plain]
    pairs = list(map(crc32, plain[1:], grams))  # the checksum goes on from the word before
    edges = [crc32(b"^", g) for g in grams[:_EDGE]] + [crc32(b"$", g) for g in grams[-_EDGE:]]
    return (np.array(grams + pairs + edges, dtype=np.uint32) >> _SHIFT).astype(np.int32)


def hashed_chars(text: str) -> Index:
    """Buckets of the character 2- to 4-grams, repeated as they occur."""
    codes = np.frombuffer(f" {text} ".encode("utf-32-le", "replace"), dtype=np.uint32)
    two = codes[:-1] * _P[0] ^ codes[1:] * _P[1]
    three = two[:-1] * _P[2] ^ codes[2:] * _P[3]
    four = three[:-1] * _P[1] ^ codes[3:] * _P[0]
    mixed = np.concatenate([two, three, four]) * _P[0]
    return (mixed >> _SHIFT).astype(np.int32)


SUPPORT_BITS = 20


def pieces(text: str) -> Index:
    """Character pairs and trigrams in a wider space, for telling how much of a text is like anything seen."""
    codes = np.frombuffer(f" {text} ".encode("utf-32-le", "replace"), dtype=np.uint32)
    two = codes[:-1] * _P[0] ^ codes[1:] * _P[1]
    mixed = np.concatenate([two, two[:-1] * _P[2] ^ codes[2:] * _P[3]]) * _P[0]
    return (mixed >> np.uint32(32 - SUPPORT_BITS)).astype(np.int32)


_LOG = np.log1p(np.arange(4096, dtype=np.float64)).astype(np.float32)


_FIRST = np.array([True])


def bag(buckets: Index) -> tuple[Index, Vector]:
    """Distinct buckets and their dampened counts, of length one together."""
    if not len(buckets):
        return buckets, np.zeros(0, np.float32)
    ordered = np.sort(buckets)
    first = np.flatnonzero(np.concatenate((_FIRST, ordered[1:] != ordered[:-1])))
    counts = np.empty_like(first)
    counts[:-1] = first[1:] - first[:-1]
    counts[-1] = len(ordered) - first[-1]
    value = _LOG[np.minimum(counts, len(_LOG) - 1)]
    return ordered[first], value / np.float32(max(float(np.sqrt(value @ value)), 1e-9))


# --- all together ----------------------------------------------------------------------------------------

DENSE: tuple[str, ...] = (*SURFACE, *OPTIONS, *WORK)


class Features:
    """Everything a head may look at. The hashed n-grams are computed when first asked for."""

    __slots__ = ("_chars", "_words", "dense", "meaning", "options", "reading")

    def __init__(self, reading: Reading, options: int, dense: Vector, meaning: Vector | None = None) -> None:
        self.reading = reading
        self.options = options  # how many options the question offers; 0 where it offers none
        self.dense = dense  # one number per `DENSE`
        self.meaning = meaning  # a sentence encoder's vector of length one; None where none was asked
        self._words: tuple[Index, Vector] | None = None
        self._chars: tuple[Index, Vector] | None = None

    @property
    def words(self) -> tuple[Index, Vector]:
        if self._words is None:
            self._words = bag(hashed_words(self.reading.tokens))
        return self._words

    @property
    def chars(self) -> tuple[Index, Vector]:
        if self._chars is None:
            self._chars = bag(hashed_chars(self.reading.text))
        return self._chars


def extract(reading: Reading, meaning: Vector | None = None) -> Features:
    """The features of one prompt, with an encoder's vector of it where a head wants that."""
    question = take_apart(reading.text)
    tokens = reading.tokens
    if question.options:
        share = max(1, len(question.stem)) / max(1, len(reading.text))
        tokens = tokens[: max(1, round(len(tokens) * share))]
    dense = surface(question.stem, tokens, reading.length, cjk=reading.cjk)
    dense += option_shape(question)
    dense += work(reading)
    return Features(reading, len(question.options), np.array(dense, dtype=np.float32), meaning)

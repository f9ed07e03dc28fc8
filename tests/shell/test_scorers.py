"""Scorers answer with a score in [0, 1] or abstain; nothing a prompt contains makes them raise."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router import scorers
from router.config import ScorerSpec
from router.errors import ConfigError
from router.scorers import heads, text
from router.scorers.features import DENSE, extract, take_apart
from router.scorers.lexical import Lexical, explain
from router.types import Abstain, Prompt, Score, Signals

LEXICAL = Lexical("difficulty")


def prompt(words: str, **headers: str) -> Prompt:
    return Prompt(text=words, signals=Signals(headers=headers))


def value(words: str) -> float:
    answer = LEXICAL.score(prompt(words))
    assert isinstance(answer, Score), f"abstained ({answer.reason}) on {words[:60]!r}"
    return answer.value


EASY = (
    "What is the capital of France?",
    "hi",
    "thanks, that's perfect!",
    "Translate 'good morning' into Spanish.",
    "¿Cuál es la capital de Perú?",
    "你好",
    "Tidy up this paragraph: " + "the meeting were on monday and we talk about the budget and then lunch. " * 5,
)
HARD = (
    "Prove that the square root of 2 is irrational and generalise to all primes",
    "Show that e is irrational.",
    "Demuestra que hay infinitos números primos.",
    "证明根号2是无理数。",
    "Design a lock-free queue for 40 producers and prove that it is linearizable.",
)


@pytest.mark.parametrize("words", EASY)
def test_an_easy_prompt_scores_below_the_default_cut(words: str) -> None:
    assert value(words) < 0.5


@pytest.mark.parametrize("words", HARD)
def test_a_hard_prompt_scores_above_the_default_cut(words: str) -> None:
    assert value(words) >= 0.5


@pytest.mark.parametrize("words", ["", "   \n\t ", "...", "\u200b"])
def test_an_empty_prompt_is_abstained_on(words: str) -> None:
    assert LEXICAL.score(prompt(words)) == Abstain(scorer="difficulty", reason="empty")


@pytest.mark.parametrize("size", [1, 512, 4_000, 100_000, 1_000_000])
@pytest.mark.parametrize("unit", ["word ", "x", "证", " ", "a. b. c. ", "\ud800", "{[("])
def test_K04_a_prompt_of_any_size_is_scored_or_abstained_on(size: int, unit: str) -> None:
    answer = LEXICAL.score(prompt(unit * size))
    assert isinstance(answer, Abstain) or 0.0 <= answer.value <= 1.0


@settings(deadline=None, max_examples=200)
@given(st.text())
def test_any_text_is_scored_in_range_or_abstained_on(words: str) -> None:
    answer = LEXICAL.score(prompt(words))
    assert isinstance(answer, Abstain) or 0.0 <= answer.value <= 1.0


@pytest.mark.parametrize("words", [*EASY, *HARD, "Pick one.\nA. red\nB. blue\nC. green\nD. none of these\nAnswer:"])
def test_case_and_blanks_do_not_change_a_score(words: str) -> None:
    base = value(words)
    for other in (words.upper(), words.lower(), f"  {words}\n\n", words.replace(" ", "  "), words.replace("\n", " ")):
        assert value(other) == pytest.approx(base, abs=1e-6)


def test_options_are_found_on_one_line_as_on_many() -> None:
    many = take_apart(text.read("Find it.\nA. 0\nB. 4\nC. 2\nD. 6\nAnswer:").text)
    one = take_apart(text.read("(FIND IT. a) 0 b) 4 c) 2 d) 6").text)
    assert many.options == one.options == ("0", "4", "2", "6")
    assert take_apart(text.read("Vitamin a. Then rest.").text).options == ()


def test_the_shipped_artifact_is_small_and_has_no_pickle() -> None:
    file = Path(scorers.lexical.SHIPPED) / heads.MODEL_FILE
    assert file.stat().st_size < 2_000_000
    with np.load(file, allow_pickle=False) as stored:
        assert "meta" in stored.files


def test_an_artifact_of_other_features_is_refused(tmp_path: Path) -> None:
    wrong = np.frombuffer(b'{"version": 1, "features": "other"}', dtype=np.uint8)
    np.savez(tmp_path / heads.MODEL_FILE, meta=wrong)
    with pytest.raises(heads.Incompatible, match="rebuild"):
        Lexical("x", tmp_path).load()
    (tmp_path / heads.MODEL_FILE).write_bytes(b"not a zip")
    with pytest.raises(heads.Incompatible):
        Lexical("x", tmp_path).load()


def test_an_artifact_survives_being_written_and_read(tmp_path: Path) -> None:
    heads.dump(LEXICAL.model, tmp_path)
    again = Lexical("difficulty", tmp_path)
    for words in (*EASY, *HARD):
        assert again.score(prompt(words)) == LEXICAL.score(prompt(words))
    assert (tmp_path / heads.MODEL_FILE).read_bytes() == (LEXICAL.artifact / heads.MODEL_FILE).read_bytes()


def test_explain_names_the_features_that_moved_the_score() -> None:
    effects = explain(LEXICAL, prompt(HARD[0]), top=5)
    assert 1 <= len(effects) <= 5
    assert {name for name, _ in effects} <= set(DENSE)
    assert any(name.startswith("prove") and effect > 0 for name, effect in effects)
    assert explain(LEXICAL, prompt("")) == [] or LEXICAL.score(prompt("")) is not None


def test_every_dense_feature_is_a_finite_number() -> None:
    for words in (*EASY, *HARD, "", "1e999 99999999999999999999", "²³ ٣٤ ½"):
        dense = extract(text.read(words)).dense
        assert dense.shape == (len(DENSE),)
        assert np.isfinite(dense).all()


def test_fixed_says_its_value_or_abstains() -> None:
    half = scorers.build(ScorerSpec(name="half", kind="fixed", options={"value": 0.5}))
    assert half.score(prompt("anything")) == Score(scorer="half", value=0.5)
    never = scorers.build(ScorerSpec(name="never", kind="fixed"))
    assert never.score(prompt("anything")) == Abstain(scorer="never", reason="unsure")


def test_header_believes_a_number_and_nothing_else() -> None:
    given_by = scorers.build(ScorerSpec(name="told", kind="header", options={"header": "X-Hard"}))
    assert given_by.score(prompt("p", **{"x-hard": "0.25"})) == Score(scorer="told", value=0.25)
    assert given_by.score(prompt("p")) == Abstain(scorer="told", reason="missing")
    for wrong in ("much", "1.5", "-0.1", "nan", ""):
        assert given_by.score(prompt("p", **{"x-hard": wrong})) == Abstain(scorer="told", reason="error")


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [("fixed", {"value": 2}, "0, 1"), ("fixed", {"vaule": 1}, "vaule"), ("lexical", {"file": "x"}, "file")],
)
def test_a_wrong_option_is_a_configuration_error_at_the_scorer(
    kind: str, options: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        scorers.build(ScorerSpec(name="bad", kind=kind, options=options))  # type: ignore[arg-type]
    assert caught.value.mistakes[0].path == "scorers.bad"


class Counting:
    """A scorer that counts how often it is asked; `answers` are given in turn."""

    name = "counting"

    def __init__(self, *answers: Score | Abstain, later: bool = False) -> None:
        self.answers = list(answers)
        self.later = later
        self.asked = 0

    def score(self, prompt: Prompt) -> Score | Abstain | Awaitable[Score | Abstain]:
        del prompt
        self.asked += 1
        answer = self.answers.pop(0)
        return self._later(answer) if self.later else answer

    async def _later(self, answer: Score | Abstain) -> Score | Abstain:
        return answer

    async def aclose(self) -> None:
        self.answers.clear()


def test_a_prompt_seen_before_is_not_scored_again() -> None:
    inner = Counting(Score(scorer="counting", value=0.1), Score(scorer="counting", value=0.2))
    cached = scorers.Cached(inner)
    assert [cached.score(prompt(p)) for p in ("a", "a", "b", "a")] == [
        Score(scorer="counting", value=v) for v in (0.1, 0.1, 0.2, 0.1)
    ]
    assert (inner.asked, cached.hits) == (2, 2)


def test_the_cache_is_bounded_and_forgets_the_least_recent() -> None:
    inner = Counting(*(Score(scorer="counting", value=v / 10) for v in range(6)))
    cached = scorers.Cached(inner, size=2)
    for p in ("a", "b", "a", "c", "a", "b"):
        cached.score(prompt(p))
    assert inner.asked == 4  # a, b, c, and b again


def test_a_failure_is_not_remembered() -> None:
    inner = Counting(Abstain(scorer="counting", reason="timeout"), Score(scorer="counting", value=0.9))
    cached = scorers.Cached(inner)
    assert cached.score(prompt("a")) == Abstain(scorer="counting", reason="timeout")
    assert cached.score(prompt("a")) == Score(scorer="counting", value=0.9)


async def test_an_awaited_score_is_remembered_when_it_arrives() -> None:
    inner = Counting(Score(scorer="counting", value=0.3), later=True)
    cached = scorers.Cached(inner)
    first = cached.score(prompt("a"))
    assert isinstance(first, Awaitable)
    assert await first == Score(scorer="counting", value=0.3)
    assert cached.score(prompt("a")) == Score(scorer="counting", value=0.3)
    await cached.aclose()

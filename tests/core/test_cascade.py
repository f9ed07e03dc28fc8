"""Cascades: what an answer comes to, whether it refuses, and the verdict on what was found of it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.cascade import Said, agrees, compared, conclusion, empty, hopeless, refuses, settled, verdict
from router.config import Cascade, Config, Deployment, Group, Pin, Policy, Route, Verify, When
from router.decide import decide
from router.errors import BadAnswer
from router.explain import explain, render
from router.plan import after, plan
from router.policy import order
from router.types import Attempt, Checked, Decision, Load, Plan, Session, Signals, Target, ToolCall

CASCADE = Cascade(first="small", then="large", scouts=("s1", "s2", "s3"), verify=Verify(agreement_at_least=0.6))
POLICY = Policy(
    name="p",
    models=("auto",),
    routes=(
        Route(name="images", when=When(has_images=True), group="vision"),
        Route(name="try", cascade=CASCADE, set={"seed": 1}),
    ),
    default="vision",
    fallback={"small": ("spare", "large"), "large": ("small",)},
)
CONFIG = Config(
    policies={"p": POLICY},
    models={"auto": POLICY},
    groups={name: Group(name=name, deployments=(f"{name}-a",)) for name in ("small", "spare", "large", "vision")},
    deployments={
        f"{name}-a": Deployment(name=f"{name}-a", upstream="scripted") for name in ("small", "spare", "large", "vision")
    },
    scorers={},
    digest="d" * 64,
)

found = st.builds(
    Checked,
    empty=st.booleans(),
    refused=st.booleans(),
    valid=st.sampled_from([True, False, None]),
    logprob=st.none() | st.floats(-5, 0),
    score=st.none() | st.floats(0, 1),
).flatmap(
    lambda one: st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)).map(
        lambda counts: msgspec.structs.replace(one, scouts=max(counts), heard=sorted(counts)[1], agreed=min(counts))
    )
)
verifies = st.builds(
    Verify,
    not_empty=st.booleans(),
    no_refusal=st.booleans(),
    valid_json=st.booleans(),
    logprob_at_least=st.none() | st.floats(-5, 0),
    agreement_at_least=st.none() | st.floats(0.01, 1),
    scorer=st.sampled_from([None, "c"]),
    score_below=st.floats(0.01, 1),
)
cascades = st.builds(
    lambda verify, unsure: replace(CASCADE, verify=verify, unsure=unsure),
    verifies,
    st.sampled_from(["escalate", "accept"]),
)
PLAIN = Signals()
GOOD = Checked(logprob=-0.1, scouts=3, heard=3, agreed=3, score=0.1)


def decided(signals: Signals = PLAIN, session: Session | None = None, checked: Checked | None = None) -> Decision:
    made = decide(POLICY, signals, {}, session, Load(), checked=checked)
    assert isinstance(made, Decision)
    return made


# --- the verdict -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "check"),
    [
        (Checked(empty=True), "not_empty"),
        (Checked(refused=True), "no_refusal"),
        (Checked(valid=False), "valid_json"),
        (Checked(logprob=-0.6), "logprob_at_least"),
        (Checked(logprob=-0.1, scouts=2, heard=2, agreed=0), "agreement_at_least"),
        (Checked(logprob=-0.1, scouts=2, heard=2, agreed=1, score=0.5), "score_below"),
    ],
)
def test_each_check_that_fails_escalates_and_is_named(bad: Checked, check: str):
    verify = Verify(logprob_at_least=-0.5, agreement_at_least=0.5, scorer="c", score_below=0.5)
    assert verdict(bad, replace(CASCADE, verify=verify)) == check
    assert verdict(GOOD, replace(CASCADE, verify=verify)) is None


@given(found)
def test_without_checks_every_answer_will_do(one: Checked):
    off = Verify(not_empty=False, no_refusal=False, valid_json=False)
    assert verdict(one, replace(CASCADE, verify=off)) is None


@given(found, cascades)
def test_a_check_that_cannot_tell_does_as_the_policy_says_and_one_that_fails_always_escalates(
    one: Checked, cascade: Cascade
):
    strict, lenient = replace(cascade, unsure="escalate"), replace(cascade, unsure="accept")
    assert (verdict(one, lenient) is not None) == hopeless(one, cascade)
    if verdict(one, lenient) is not None:
        assert verdict(one, strict) == verdict(one, lenient)


@given(found, cascades, st.integers(0, 4))
def test_once_the_verdict_is_settled_no_scout_that_was_silent_changes_it(one: Checked, cascade: Cascade, agreed: int):
    more = min(agreed, one.scouts - one.heard)
    later = msgspec.structs.replace(one, heard=one.scouts, agreed=one.agreed + more)
    if settled(one, cascade):
        assert (verdict(later, cascade) is None) == (verdict(one, cascade) is None)


@given(found, st.floats(0.01, 1))
def test_agreement_passes_with_the_share_fails_without_it_and_else_cannot_tell(one: Checked, share: float):
    told = agrees(one, share)
    if one.scouts == one.heard and one.scouts:
        assert told == (one.agreed >= share * one.scouts)
    if told is None and one.scouts:
        assert one.heard < one.scouts


# --- what answers come to --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "comes_to"),
    [
        ("C", "c"),
        ("(C)", "c"),
        ("c) Paris", "c"),
        ("The answer is (C).", "c"),
        ("Paris.", "paris"),
        ("  A  cat ", "a cat"),
        ("1,000", "1000"),
        ("Add them up.\nTwelve and thirty.\n#### 42", "42"),
        ("Therefore " * 20 + "the result is \\boxed{42}.", "42"),
        ("Let us see. " * 10 + "**Final answer: B**", "b"),
        ("Nun gut. " * 10 + "Die Antwort ist 7.", "7"),
        ('{"b": 1, "a": [2]}', '{"a":[2],"b":1}'),
        ("It depends on many things, of which I will name a few. " * 4, ""),
        ("", ""),
    ],
)
def test_what_an_answer_comes_to(text: str, comes_to: str):
    assert conclusion(Said(text=text)) == comes_to


def test_tool_calls_are_compared_by_their_arguments_as_values():
    one = Said(calls=(ToolCall(name="f", arguments='{"a": 1, "b": 2}'),))
    same = Said(calls=(ToolCall(name="f", arguments='{"b":2,"a":1}'),), text="I will look.")
    other = Said(calls=(ToolCall(name="f", arguments='{"a": 1, "b": 3}'),))
    assert conclusion(one) == conclusion(same) != conclusion(other)


@given(st.text(max_size=400))
def test_every_text_comes_to_something_without_fail(text: str):
    said = Said(text=text)
    assert conclusion(said) == conclusion(Said(text=f" {text}\n"))
    assert isinstance(refuses(said), bool)


def test_scouts_that_are_silent_or_cannot_be_compared_are_not_heard():
    scouts = [Said(text="B"), None, Said(text="That depends. " * 20), Said(text="The answer is (b)")]
    counted = compared(Checked(), Said(text="b"), scouts)
    assert (counted.scouts, counted.heard, counted.agreed) == (4, 2, 2)
    prose = compared(Checked(), Said(text="That depends. " * 20), scouts)
    assert (prose.heard, prose.agreed) == (0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, I am unable to assist you with this request.",
        "I cannot provide instructions for that.",
        "Unfortunately, I can't access the internet.",
        "As an AI language model, I don't have opinions.",
        "Es tut mir leid, dabei kann ich dir nicht helfen.",
        "Lo siento, pero no puedo ayudarte con eso.",
        "Désolé, je ne peux pas répondre à cette question.",
        "Извините, но я не могу помочь с этим.",
        "很抱歉，我无法提供这方面的帮助。",
        "申し訳ありませんが、その質問にはお答えできません。",
    ],
)
def test_the_usual_words_of_a_refusal_are_one(text: str):
    assert refuses(Said(text=text))
    assert not refuses(Said(text=text, calls=(ToolCall(name="f"),)))


@pytest.mark.parametrize(
    "text",
    [
        "I can help with that.",
        "Sorry for the delay. Here is the list.",
        "The function cannot return null because it is checked above.",
        "In the letter she writes: I'm sorry, but I can't come.",
        "Yes. I am sorry to hear that your dog is ill.",
        "We cannot divide by zero, so the limit is taken.",
        "Unfortunately for Napoleon, winter came early.",
    ],
)
def test_an_answer_that_speaks_of_such_things_is_no_refusal(text: str):
    assert not refuses(Said(text=text))


def test_a_refusal_by_the_apis_own_field_is_one_and_thoughts_alone_are_empty():
    assert refuses(Said(text="", refused=True))
    assert not empty(Said(refused=True))
    assert empty(Said(text=" \n"))
    assert not empty(Said(calls=(ToolCall(name="f"),)))


# --- decisions and plans ---------------------------------------------------------------------------------


def test_before_its_first_answer_a_cascade_names_both_groups():
    made = decided()
    assert (made.route, made.group, made.then, made.why, made.set) == ("try", "small", "large", "cascade", {"seed": 1})


def test_what_was_found_decides_who_serves():
    made = decided(checked=GOOD)
    assert (made.group, made.why, made.check) == ("small", "verified", None)
    made = decided(checked=msgspec.structs.replace(GOOD, agreed=1))
    assert (made.group, made.why, made.check, made.then) == ("large", "escalated", "agreement_at_least", None)
    assert made.set == {"seed": 1}


@given(found, st.sampled_from([None, "small", "large", "vision"]), st.booleans(), st.booleans())
def test_replay_equals_production(one: Checked, group: str | None, tool_loop: bool, has_images: bool):
    signals = Signals(tool_loop=tool_loop, has_images=has_images)
    session = None if group is None else Session(id="c", group=group, deployment=f"{group}-a", route="try")
    made = decided(signals, session, one)
    line = msgspec.json.encode((made, one))
    again, found_ = msgspec.json.decode(line, type=tuple[Decision, Checked])
    assert decided(signals, session, found_) == again


def test_a_conversation_in_a_tool_loop_stays_where_it_is_and_nothing_is_verified():
    for group in ("small", "large"):
        made = decided(Signals(tool_loop=True), Session(id="c", group=group, deployment="x", route="try"))
        assert (made.group, made.why, made.then, made.set) == (group, "pin", None, {"seed": 1})


def test_at_a_user_turn_a_conversation_in_the_first_group_is_verified_again_and_one_that_escalated_stays():
    small = decided(session=Session(id="c", group="small", deployment="small-a", route="try"))
    assert (small.why, small.group, small.then, small.deployment) == ("cascade", "small", "large", "small-a")
    large = decided(session=Session(id="c", group="large", deployment="large-a", route="try"), checked=GOOD)
    assert (large.why, large.group, large.then) == ("pin", "large", None)
    never = replace(POLICY, pin=Pin(upgrade="never"))
    held = decide(never, Signals(), {}, Session(id="c", group="small"), Load())
    assert isinstance(held, Decision)
    assert (held.why, held.then) == ("pin", None)


def test_embeddings_go_to_the_first_group_unverified():
    made = decided(Signals(dialect="embeddings"))
    assert (made.group, made.why, made.then) == ("small", "signal", None)


def test_a_cascade_orders_its_groups():
    assert order(POLICY) == ("small", "large", "vision")


def test_the_plan_of_a_cascade_goes_from_the_first_group_and_its_fallbacks_to_the_second():
    made = plan(decided(), POLICY, CONFIG, Load(), Signals(), 0.0)
    assert [target.group for target in made.targets] == ["small", "spare", "large"]


def test_only_calls_that_failed_count_against_the_attempts_of_a_request():
    targets = tuple(Target(deployment=f"{n}-a", group=n) for n in ("small", "spare", "large"))
    done = [Attempt(deployment="large-a", group="large", scout=True, error="timeout") for _ in range(3)]
    done += [Attempt(deployment="small-a", group="small", status=200)]
    failed = Attempt(deployment="spare-a", group="spare", status=500, error="upstream_error")
    following = after(Plan(targets=targets), [*done, failed], BadAnswer("no JSON"), CONFIG)
    assert following == Target(deployment="small-a", group="small")


def test_a_cascade_is_told_before_and_after():
    told = explain(CONFIG, POLICY, Signals(), {}, None, Load(), 0.0)
    text = render(told)
    assert "try: holds -> group small, verified, else large" in text
    assert "group small first, by route try; if its answer does not pass, group large" in text
    assert "3. large-a (large)" in text
    bad = explain(CONFIG, POLICY, Signals(), {}, None, Load(), 0.0, Checked(refused=True))
    assert "group large: the first answer did not pass no_refusal of route try" in render(bad)
    assert "refused=True" in render(bad)
    good = explain(CONFIG, POLICY, Signals(), {}, None, Load(), 0.0, GOOD)
    assert "group small: its answer passed the checks of route try" in render(good)

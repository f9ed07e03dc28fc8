"""Balance: where a conversation's prefix is, and how far that outweighs the load."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.balance import claim, home, order, room, weights
from router.config import Config, Deployment, Group, Policy
from router.explain import explain, render
from router.plan import plan
from router.signals import prefix
from router.types import Decision, Load, Report, Request, Signals, ToolCall, ToolResult, Turn
from router.wire import CODECS

NAMES = ("a", "b", "c", "d")
LONG = "You are an agent. " * 400


def said(role: str, text: str) -> Turn:
    return Turn(role=role, texts=(text,))


def ask(*turns: Turn) -> Request:
    return Request(dialect="chat", body=b"{}", model="auto", model_span=(0, 0), turns=turns)


def talk(turns: int, *, system: str = "be brief", first: str = "hello") -> tuple[Turn, ...]:
    """A conversation with so many user turns, of which the last is new."""
    out = [said("system", system), said("user", first)]
    for n in range(1, turns):
        out += [said("assistant", f"answer {n} to {first}"), said("user", f"question {n}")]
    return tuple(out)


# --- what the prefix is ----------------------------------------------------------------------------------


def test_the_prefix_holds_tools_system_and_the_turns_before_and_not_the_newest_words():
    body = b'{"model":"auto","tools":[%b],"messages":[{"role":"system","content":"%b"},{"role":"user","content":"%b"}]}'
    read = CODECS["chat"].decode
    tool, other = b'{"type":"function","function":{"name":"read"}}', b'{"type":"function","function":{"name":"write"}}'
    long = LONG.encode()
    one = prefix(read(body % (tool, long, b"one")))
    assert one == prefix(read(body % (tool, long, b"two")))
    assert one != prefix(read(body % (other, long, b"one")))
    assert one != prefix(read(body % (tool, long + b"!", b"one")))


def test_conversations_with_the_same_first_message_have_prefixes_of_their_own():
    one, two = talk(2), (*talk(2)[:2], said("assistant", "another answer"), said("user", "next"))
    assert prefix(ask(*one)) != prefix(ask(*two))
    three, four = talk(3), (*talk(3)[:4], said("assistant", "gone another way"), said("user", "next"))
    assert prefix(ask(*three)) != prefix(ask(*four))


def test_a_prefix_changes_when_the_conversation_has_doubled_and_not_with_every_turn():
    seen = [prefix(ask(*talk(turns))) for turns in range(2, 18)]
    assert len(set(seen)) == 5  # 2, 4, 8, 16 and 32 turns
    assert seen[3] == seen[6]


def test_results_of_tools_belong_to_what_is_new_until_they_are_answered():
    call = Turn(role="assistant", tool_calls=(ToolCall(name="read", arguments='{"path": "a"}'),))
    result = Turn(role="tool", tool_results=(ToolResult(text="contents"),))
    begun = (said("user", "read it"), call)
    assert prefix(ask(*begun, result)) == prefix(ask(*begun, result, result))


def test_what_is_too_short_to_be_worth_a_cache_has_no_prefix():
    assert prefix(ask(said("system", "be brief"), said("user", LONG))) == ""
    assert prefix(ask(said("system", LONG), said("user", "hello"))) != ""
    assert prefix(ask()) == ""


def test_a_lone_surrogate_has_a_prefix_too():
    assert prefix(ask(said("user", "\ud800"), said("assistant", "yes"), said("user", "go on")))


# --- whose it is -----------------------------------------------------------------------------------------


def test_prefixes_spread_over_the_deployments_and_each_has_one_of_its_own():
    homes = [home(NAMES, Load(prefix=f"p{n}"), 1.25) for n in range(2000)]
    assert all(homes[n] == home(NAMES[::-1], Load(prefix=f"p{n}"), 1.25) for n in range(2000))
    assert all(400 < homes.count(name) < 600 for name in NAMES)


def test_a_deployment_that_goes_moves_its_own_prefixes_alone():
    for n in range(300):
        load = Load(prefix=f"p{n}")
        before, after = home(NAMES, load, 1.25), home(NAMES[:3], load, 1.25)
        assert before == "d" or before == after


@given(
    in_flight=st.dictionaries(st.sampled_from(NAMES), st.integers(-1, 50)),
    prefix=st.text("abcdef", min_size=1),
    bound=st.floats(1, 4),
)
def test_the_one_with_a_prefix_goes_first_unless_it_is_busier_than_the_bound_allows(
    in_flight: dict[str, int], prefix: str, bound: float
):
    load = Load(in_flight=in_flight, prefix=prefix)
    ordered = order(NAMES, load, 0.3, bound)
    busy = weights(NAMES, load)
    most = room(busy, bound)
    assert sorted(ordered) == sorted(NAMES)
    assert busy[ordered[0]] <= most
    assert all(busy[name] > most for name in NAMES if claim(prefix, name) > claim(prefix, ordered[0]))
    assert order(NAMES, load, 0.3, 0) == order(NAMES, Load(in_flight=in_flight), 0.3, bound)


def test_a_thousand_requests_of_one_prefix_load_no_deployment_past_its_share():
    in_flight = dict.fromkeys(NAMES, 0)
    for n in range(1000):
        first = order(NAMES, Load(in_flight=in_flight, prefix="all the same"), n / 1000, 1.25)[0]
        in_flight[first] += 1
    assert max(in_flight.values()) <= 1.25 * 1000 / 4 + 1
    assert min(in_flight.values()) > 0


def test_what_an_engine_reports_counts_against_the_one_with_the_prefix():
    load = Load(prefix="p")
    first = home(NAMES, load, 1.25)
    assert first is not None
    full = Load(prefix="p", reports={first: Report(running=20, waiting=10, elsewhere=30)})
    assert order(NAMES, full, 0.3, 1.25)[0] != first


# --- in a plan -------------------------------------------------------------------------------------------


def config(affinity: float = 1.25) -> Config:
    return Config(
        policies={},
        models={},
        groups={"g": Group(name="g", deployments=NAMES, affinity=affinity)},
        deployments={name: Deployment(name=name, upstream="scripted") for name in NAMES},
        scorers={},
        digest="d",
    )


POLICY = Policy(name="p", models=("auto",), default="g")


def planned(decision: Decision, load: Load, affinity: float = 1.25) -> list[str]:
    made = plan(decision, POLICY, config(affinity), load, Signals(), 0.3)
    return [target.deployment for target in made.targets]


def test_a_pin_to_a_deployment_goes_before_the_prefix_and_a_prefix_before_the_load():
    load = Load(prefix="p", in_flight={"a": 1, "b": 1, "c": 1, "d": 1})
    first = home(NAMES, load, 1.25)
    other = next(name for name in NAMES if name != first)
    to = Decision(policy="p", route="default", group="g", why="default")
    assert planned(to, load)[0] == first
    pinned = Decision(policy="p", route="pin", group="g", why="pin", deployment=other)
    assert planned(pinned, load)[0] == other


def test_a_group_without_affinity_is_balanced_by_load_alone():
    to = Decision(policy="p", route="default", group="g", why="default")
    firsts = {planned(to, Load(prefix=f"p{n}", in_flight={"a": 0, "b": 1, "c": 1, "d": 1}), 0)[0] for n in range(50)}
    assert firsts == {"a"}


def test_an_explanation_tells_every_claim_and_who_was_passed_over():
    first = home(NAMES, Load(prefix="p"), 1.25)
    assert first is not None
    told = explain(config(), POLICY, Signals(), {}, None, Load(prefix="p", in_flight={first: 9}), 0.3)
    by_name = {one.deployment: one for one in told.deployments}
    assert all(by_name[name].claim == claim("p", name) for name in NAMES)
    assert [name for name in NAMES if by_name[name].full] == [first]
    assert next(one.deployment for one in told.deployments if one.place == 1) != first
    assert "passed over: it is too busy" in render(told)
    unled = explain(config(0), POLICY, Signals(), {}, None, Load(prefix="p"), 0.3)
    assert all(one.claim is None for one in unled.deployments)

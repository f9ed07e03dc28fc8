"""Files that are well formed and yet cannot be meant are refused, in words that say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from router.errors import Mistake
from router.policy_files import load, review
from tests.support.config_files import GROUPS, POLICY, marked, messages, places, policy, route, write

SCORED = route("{name: d, score: {scorer: difficulty, bands: [{below: 0.5, group: small}, {group: large}]}}")
# Each case: a policy with ^ where the mistake stands, its key path, and words of its message.
POLICIES = {
    "no such default": (policy().replace("default: large", "default: ^larg"), "default", "did you mean 'large'?"),
    "no such group": (
        route("{name: a, when: {turns: 1}, group: ^smal}"),
        "routes[0].group",
        "there is no group 'smal'; did you mean 'small'?",
    ),
    "no such group, nothing like it": (
        route("{name: a, when: {turns: 1}, group: ^vision}"),
        "routes[0].group",
        "there is no group 'vision'; known: small, large",
    ),
    "no such group in a band": (
        route("{name: a, score: {scorer: difficulty, bands: [{below: 0.5, group: ^tiny}, {group: large}]}}"),
        "routes[0].score.bands[0].group",
        "there is no group 'tiny'",
    ),
    "no such scorer": (
        route("{name: a, score: {scorer: ^dificulty, bands: [{below: 0.5, group: small}, {group: large}]}}"),
        "routes[0].score.scorer",
        "did you mean 'difficulty'?",
    ),
    "no such fallback": (policy("fallback: {small: [^big]}"), "fallback.small[0]", "there is no group 'big'"),
    "a fallback of no group": (policy("fallback: {^big: [small]}"), "fallback.big", "there is no group 'big'"),
    "a fallback on itself": (policy("fallback: {small: [large, ^small]}"), "fallback.small[1]", "on itself"),
    "a fallback twice": (policy("fallback: {small: [large, ^large]}"), "fallback.small[1]", "already"),
    "no such group in the order": (policy("order: [^tiny]"), "order[0]", "there is no group 'tiny'"),
    "a group twice in the order": (policy("order: [small, ^small]"), "order[1]", "already"),
    "neither group nor score": (route("^{name: a, when: {turns: 1}}"), "routes[0]", "leads nowhere"),
    "both group and score": (
        route(
            "{name: x, group: small, ^score: {scorer: lexical, bands: [{below: 0.5, group: small}, {group: large}]}}"
        ),
        "routes[0].score",
        "keep one of group and score",
    ),
    "both group and cascade": (
        route("{name: x, group: small, ^cascade: {first: small, then: large}}"),
        "routes[0].cascade",
        "keep one of group and cascade",
    ),
    "no such first group": (
        route("{name: x, cascade: {first: ^smal, then: large}}"),
        "routes[0].cascade.first",
        "did you mean 'small'?",
    ),
    "no such scout": (
        route("{name: x, cascade: {first: small, then: large, scouts: [^scot], verify: {agreement_at_least: 1}}}"),
        "routes[0].cascade.scouts[0]",
        "there is no group 'scot'",
    ),
    "a cascade to itself": (
        route("{name: x, cascade: {first: small, then: ^small}}"),
        "routes[0].cascade.then",
        "the first group again",
    ),
    "a cascade downwards": (
        route("{name: x, cascade: {first: large, then: ^small}}") + "order: [small, large]\n",
        "routes[0].cascade.then",
        "a cascade goes up",
    ),
    "a cascade that verifies nothing": (
        route(
            "name: x\n    cascade:\n      first: small\n      then: large\n"
            "      verify: ^{not_empty: false, no_refusal: false, valid_json: false}"
        ),
        "routes[0].cascade.verify",
        "every check is off",
    ),
    "scouts that nothing looks at": (
        route("{name: x, cascade: {first: small, then: large, ^scouts: [small]}}"),
        "routes[0].cascade.scouts",
        "no check looks at them",
    ),
    "agreement with nobody": (
        route("{name: x, cascade: {first: small, then: large, verify: {^agreement_at_least: 0.5}}}"),
        "routes[0].cascade.verify.agreement_at_least",
        "nobody to agree with",
    ),
    "a share above one": (
        route("{name: x, cascade: {first: small, then: large, scouts: [small], verify: {agreement_at_least: ^2}}}"),
        "routes[0].cascade.verify.agreement_at_least",
        "at most 1",
    ),
    "a scorer without a bound": (
        route("{name: x, cascade: {first: small, then: large, verify: {^scorer: difficulty}}}"),
        "routes[0].cascade.verify.scorer",
        "without score_below",
    ),
    "no such scorer in a cascade": (
        route("{name: x, cascade: {first: small, then: large, verify: {scorer: ^dificulty, score_below: 0.5}}}"),
        "routes[0].cascade.verify.scorer",
        "did you mean 'difficulty'?",
    ),
    "a probability for its logarithm": (
        route("{name: x, cascade: {first: small, then: large, verify: {logprob_at_least: ^0.6}}}"),
        "routes[0].cascade.verify.logprob_at_least",
        "0 or less",
    ),
    "no time to verify": (
        route("{name: x, cascade: {first: small, then: large, wait_s: ^0}}"),
        "routes[0].cascade.wait_s",
        "more than 0 seconds",
    ),
    "a misspelt check": (
        route("{name: x, cascade: {first: small, then: large, verify: {^no_refusals: true}}}"),
        "routes[0].cascade.verify.no_refusals",
        "did you mean 'no_refusal'?",
    ),
    "a reserved name": (route("{name: ^pin, when: {turns: 1}, group: small}"), "routes[0].name", "are taken"),
    "a name twice": (
        route("{name: a, when: {turns: 1}, group: small}", "{name: ^a, when: {turns: 2}, group: small}"),
        "routes[1].name",
        "another route above has this name",
    ),
    "exploring where no fallback leads": (
        route("{name: x, score: {scorer: lexical, bands: [{below: 0.5, group: small}, {group: large}]}}").replace(
            "routes:", "^explore: {share: 0.1}\nroutes:"
        ),
        "explore",
        "only a group's fallback is",
    ),
    "exploring more than half": (
        policy("fallback: {small: [large]}", "explore: {share: ^0.6}")
        + "routes: [{name: x, score: {scorer: lexical, bands: [{below: 0.5, group: small}, {group: large}]}}]\n",
        "explore.share",
        "at most 0.5",
    ),
    "exploring at no distance": (
        policy("fallback: {small: [large]}", "explore: {share: 0.5, within: ^0}")
        + "routes: [{name: x, score: {scorer: lexical, bands: [{below: 0.5, group: small}, {group: large}]}}]\n",
        "explore.within",
        "more than 0",
    ),
    "one band": (
        route("{name: a, score: {scorer: lexical, bands: ^[{group: small}]}}"),
        "routes[0].score.bands",
        "at least two bands",
    ),
    "bands out of order": (
        route("{name: a, score: {scorer: lexical, bands: [{below: 0.5, group: small}, {below: ^0.4, group: large},",
              "     {group: large}]}}").replace("  -      {", "      {"),
        "routes[0].score.bands[1].below",
        "the band above ends at 0.5",
    ),
    "a band above 1": (
        route("{name: a, score: {scorer: lexical, bands: [{below: ^1.2, group: small}, {group: large}]}}"),
        "routes[0].score.bands[0].below",
        "above 0 and at most 1",
    ),
    "a band at 0": (
        route("{name: a, score: {scorer: lexical, bands: [{below: ^0, group: small}, {group: large}]}}"),
        "routes[0].score.bands[0].below",
        "above 0 and at most 1",
    ),
    "a last band with below": (
        route("{name: a, score: {scorer: lexical, bands: [{below: 0.5, group: small}, {below: ^0.9, group: large}]}}"),
        "routes[0].score.bands[1].below",
        "remove its below",
    ),
    "a first band without below": (
        route("{name: a, score: {scorer: lexical, bands: [^{group: small}, {group: large}]}}"),
        "routes[0].score.bands[0]",
        "only the last band goes without below",
    ),
    "a route after one without a condition": (
        route("{name: a, group: small}", "^{name: b, when: {turns: 1}, group: large}"),
        "routes[1]",
        "routes[0] above takes every request",
    ),
    "a route after a score without a condition": (
        POLICY.replace("default: large", "  - ^{name: b, when: {turns: 1}, group: large}\ndefault: large"),
        "routes[1]",
        "routes[0] above takes every request",
    ),
    "a route after a wider one": (
        route("{name: a, when: {turns: {at_least: 2}}, group: small}",
              "^{name: b, when: {turns: {above: 4}, stream: true}, group: large}"),
        "routes[1]",
        "routes[0] above takes every request that this one would",
    ),
    "a range with nothing in it": (
        route("{name: a, when: {turns: ^{at_least: 3, below: 3}}, group: small}"),
        "routes[0].when.turns",
        "this never holds",
    ),
    "a range without a bound": (
        route("{name: a, when: {turns: ^{}}, group: small}"), "routes[0].when.turns", "says nothing"
    ),
    "an hour that no clock shows": (
        route("{name: a, when: {hour: ^24}, group: small}"), "routes[0].when.hour", "hour is from 0 to 23"
    ),
    "a negative count": (
        route("{name: a, when: {tools: {below: 0}}, group: small}").replace("{below: 0", "^{below: 0"),
        "routes[0].when.tools",
        "tools is 0 or more",
    ),
    "an impossible condition inside any": (
        route("{name: a, when: {any: [{turns: 1}, {code_share: {above: 1}}]}, group: small}").replace(
            "{above", "^{above"
        ),
        "routes[0].when.any[1].code_share",
        "from 0 to 1",
    ),
    "an empty any": (route("{name: a, when: {any: ^[]}, group: small}"), "routes[0].when.any", "never holds"),
    "an empty list of words": (route("{name: a, when: {tenant: ^[]}, group: small}"), "routes[0].when.tenant", "never"),
    "a span over midnight": (
        route("{name: a, when: {hour: ^{at_least: 22, below: 6}}, group: small}"),
        "routes[0].when.hour",
        "any: [{hour: {at_least: ...}}, {...}]",
    ),
    "half a turn": (route("{name: a, when: {turns: ^1.5}, group: small}"), "routes[0].when.turns", "a whole number"),
    "a language that is never told": (
        route("{name: a, when: {language: ^english}, group: small}"), "routes[0].when.language", "known: ar, bn, cs"
    ),
    "a language in capitals": (
        route("{name: a, when: {language: [de, ^EN]}, group: small}"), "routes[0].when.language[1]", "mean 'en'?"
    ),
    "a field of the gateway's own in a route": (
        route("{name: a, group: small, set: {^model: m}}"), "routes[0].set.model", "the gateway's own"
    ),
    "a number that is not finite in a band": (
        SCORED.replace("{group: large}", "{group: large, set: {a: ^[1, {b: .inf}]}}"),
        "routes[0].score.bands[1].set.a",
        "not finite",
    ),
    "no such dialect": (
        route("{name: a, when: {dialect: [chat, ^mesages]}, group: small}"),
        "routes[0].when.dialect[1]",
        "did you mean 'messages'?",
    ),
    "an unknown target": (policy("target: {^large_shre: {at_most: 0.3}}"), "target.large_shre", "'large_share'?"),
    "a target of another shape": (policy("target: {large_share: ^0.3}"), "target.large_share", "a mapping"),
    "a target beyond reach": (
        SCORED + "target: {large_share: {at_most: ^1.5}}\n", "target.large_share.at_most", "less than 1"
    ),
    "two targets": (
        SCORED + "target: ^{large_share: {at_most: 0.5}, cost_per_1k: {at_most: 2}}\n", "target", "keep one"
    ),
    "bounds the wrong way round": (
        SCORED + "target: {large_share: {at_most: 0.5}, bounds: ^[0.8, 0.2]}\n", "target.bounds", "the lower one first"
    ),
    "one bound": (SCORED + "target: {large_share: {at_most: 0.5}, bounds: ^[0.8]}\n", "target.bounds", "two scores"),
    "bounds without the threshold": (
        SCORED + "target: {large_share: {at_most: 0.5}, bounds: ^[0.6, 0.8]}\n", "target.bounds", "routes[0]"
    ),
    "a target without a threshold": (policy("^target: {large_share: {at_most: 0.5}}"), "target", "no route here"),
    "an example of no route": (
        policy("examples: [{expect: ^fast}]"), "examples[0].expect", "this policy has no route 'fast'; known: default"
    ),
    "an example of no group": (
        policy("examples: [{expect: {group: ^larg}}]"), "examples[0].expect.group", "did you mean 'large'?"
    ),
    "an example of no scorer": (
        policy("examples: [{expect: default, scores: {^dif: 0.3}}]"), "examples[0].scores.dif", "there is no scorer"
    ),
    "an example with a score above 1": (
        policy("examples: [{expect: default, scores: {difficulty: ^3}}]"), "examples[0].scores.difficulty", "0 to 1"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", POLICIES)
def test_a_policy_that_cannot_be_meant_is_refused(tmp_path: Path, case: str) -> None:
    content, path, message = POLICIES[case]
    content, place = marked(content)
    folder = write(tmp_path, default=content)
    assert places(folder) == [f"default.yaml:{place}: {path}"]
    assert message in messages(folder)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{turns: {at_least: 2}}", "{turns: {at_least: 1}}"),
        ("{turns: {above: 2}}", "{turns: {at_least: 2}}"),
        ("{turns: 1, stream: true}", "{turns: 1}"),
        ("{language: [en, de]}", "{language: [en, fr]}"),
        ("{headers: {x-a: b}}", "{headers: {x-a: [b, c]}}"),
        ("{stream: true}", "{stream: false}"),
        ("{any: [{turns: 1}]}", "{any: [{turns: 2}]}"),
        ("{turns: 1}", "{any: [{turns: 1}, {turns: 2}]}"),
    ],
)
def test_a_route_that_some_request_can_reach_is_not_refused(tmp_path: Path, first: str, second: str) -> None:
    content = route(f"{{name: a, when: {first}, group: small}}", f"{{name: b, when: {second}, group: large}}")
    assert len(load(write(tmp_path, default=content), {}).policies["p"].routes) == 2


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("{turns: {at_least: 2}}", "{turns: 2}"),
        ("{code_share: {at_most: 0.5}}", "{code_share: {below: 0.5}}"),
        ("{tools: {at_least: 0}}", "{tools: {at_most: 3}}"),
        ("{language: [en, de]}", "{language: de}"),
        ("{headers: {x-a: [b, c]}}", "{headers: {X-A: b}, stream: true}"),
        ("{}", "{turns: 1}"),
    ],
)
def test_a_route_that_an_earlier_one_always_takes_is_refused(tmp_path: Path, wide: str, narrow: str) -> None:
    content = route(f"{{name: a, when: {wide}, group: small}}", f"{{name: b, when: {narrow}, group: large}}")
    assert [one.rpartition(" ")[2] for one in places(write(tmp_path, default=content))] == ["routes[1]"]


def test_groups_may_fall_back_on_each_other(tmp_path: Path) -> None:
    fallback = load(write(tmp_path, default=policy("fallback: {small: [large], large: [small]}")), {}).policies["p"]
    assert fallback.fallback == {"small": ("large",), "large": ("small",)}


def test_two_policies_may_not_claim_one_name_or_model(tmp_path: Path) -> None:
    folder = write(tmp_path, default=POLICY, other=POLICY.replace("[auto]", "[mine, auto]"))
    assert places(folder) == ["other.yaml:2:7: name", "other.yaml:3:16: models[1]"]
    assert f"the model name 'auto' is claimed by {folder}/default.yaml too" in messages(folder)


def test_a_model_may_not_have_a_deployments_name_where_clients_may_name_deployments(tmp_path: Path) -> None:
    content = policy().replace("[auto]", "[small-a]")
    assert load(write(tmp_path, default=content), {}).models
    assert places(write(tmp_path, default=content + "allow_deployments: true\n")) == ["default.yaml:3:10: models[0]"]


# --- warnings --------------------------------------------------------------------------------------------


def test_what_is_allowed_yet_odd_is_a_warning(tmp_path: Path) -> None:
    groups = GROUPS.replace("api_key: none}", "api_key: sk-1}") + "  spare: {upstream: local}\n"
    (tmp_path / "old.yml").write_text("")
    (tmp_path / "Shouted.YAML").write_text("")
    folder = write(tmp_path, groups=groups, default=POLICY + "target: {quality_loss: {at_most: 0.3}}\n")
    found = review(folder, {})
    assert found.config is not None
    assert [f"{Path(one.file).name}:{one.line}: {one.path}" for one in found.warnings] == [
        "Shouted.YAML:1: (file)",
        "old.yml:1: (file)",
        "groups.yaml:10: deployments.spare",
        "groups.yaml:9: deployments.large-b.api_key",
        "default.yaml:7: target.quality_loss",
        "default.yaml:1: (file)",
    ]
    assert "sk-1" not in "".join(one.message for one in found.warnings)


def test_a_field_to_set_that_is_nearly_one_of_an_api_is_a_warning(tmp_path: Path) -> None:
    bands = "bands: [{below: 0.5, group: small, set: {reasonig_effort: low}}, {group: large, set: {my_own: 1}}]"
    content = route("{name: d, set: {temprature: 1, top_p: 1}, score: {scorer: difficulty, " + bands + "}}")
    found = review(write(tmp_path, default=content), {})
    told = {one.path: one.message for one in found.warnings if "did you mean" in one.message}
    assert set(told) == {"routes[0].set.temprature", "routes[0].score.bands[0].set.reasonig_effort"}
    assert "did you mean 'reasoning_effort'?" in told["routes[0].score.bands[0].set.reasonig_effort"]


def test_a_file_that_this_machine_does_not_have_is_a_warning(tmp_path: Path) -> None:
    groups = GROUPS.replace("deployments:\n  small-a: {", "deployments:\n  small-a: {path: /no/such.gguf, ")
    scorers = "version: 1\nscorers: {difficulty: {kind: lexical, artifact: /no/such}}\n"
    found = review(write(tmp_path, groups=groups, scorers=scorers), {})
    told = [one for one in found.warnings if "not on this machine" in one.message]
    assert [one.path for one in told] == ["deployments.small-a.path", "scorers.difficulty.artifact"]


def test_checks_of_a_cascade_that_can_tell_nothing_are_warned_of(tmp_path: Path) -> None:
    verify = "{logprob_at_least: -1, scorer: difficulty, score_below: 0.5}"
    lines = (
        route(f"{{name: x, cascade: {{first: small, then: large, verify: {verify}}}}}") + "examples: [{expect: x}]\n"
    )
    found = review(write(tmp_path, default=lines), {})
    told = {one.path: one.message for one in found.warnings}
    assert "can never tell" in told["routes[0].cascade.verify.logprob_at_least"]
    assert "looks at the prompt alone" in told["routes[0].cascade.verify.scorer"]
    groups = GROUPS.replace("model: m-small,", "model: m-small, logprobs: true,")
    found = review(
        write(tmp_path, groups=groups, default=lines.replace("scorer: difficulty, score_below: 0.5", "")), {}
    )
    assert found.warnings == ()


def test_a_scout_that_its_group_never_has_room_for_is_warned_of(tmp_path: Path) -> None:
    cascade = "{first: small, then: large, scouts: [small, large, small], verify: {agreement_at_least: 0.5}}"
    content = route(f"{{name: x, cascade: {cascade}}}") + "examples: [{expect: x}]\n"
    groups = GROUPS.replace("[small-a]}", "[small-a], max_in_flight: 2}")
    assert groups != GROUPS
    found = review(write(tmp_path, groups=groups, default=content), {})
    assert [(one.path, "max_in_flight: 2" in one.message) for one in found.warnings] == [
        ("routes[0].cascade.scouts[2]", True)
    ]


# --- judges ----------------------------------------------------------------------------------------------

JUDGED = GROUPS.replace("groups:\n", "groups:\n  judge: {deployments: [judge-a]}\n") + (
    '  judge-a: {upstream: openai, base_url: "http://127.0.0.1:9004/v1", model: m-judge, api_key: none}\n'
)


@pytest.mark.parametrize(
    ("judge", "place", "words"),
    [
        ("{share: 0, group: judge}", "judge.share", "more than 0"),
        ("{share: 0.01, near_share: 0.5, group: judge}", "judge.near_share", "20 times"),
        ("{share: 0.1}", "judge", "nobody compares"),
        ("{share: 0.1, checker: same_answer, calibration: x.jsonl}", "judge.calibration", "measures a model"),
        ("{share: 0.1, group: large}", "judge.group", "who is judged cannot judge"),
        ("{share: 0.1, group: jugde}", "judge.group", "did you mean 'judge'"),
        ("{share: 0.1, group: judge, budget_per_day: 0}", "judge.budget_per_day", "at least 1"),
        ("{share: 0.1, group: judge, precision: 0}", "judge.precision", "more than 0"),
        ("{share: 0.1, group: judge, within: 0}", "judge.within", "more than 0"),
        ("{share: 0.1, group: judge, idle: 0}", "judge.idle", "at least 1"),
        ("{share: 0.1, group: judge, checker: luck}", "judge.checker", "same_answer"),
        ("{share: 0.1, group: judge, when: {turns: {above: 3, below: 2}}}", "judge.when.turns", ""),
    ],
)
def test_a_judge_that_cannot_judge_is_refused_at_its_place(tmp_path: Path, judge: str, place: str, words: str) -> None:
    folder = write(tmp_path, groups=JUDGED, default=POLICY + f"judge: {judge}\n")
    found = review(folder, {})
    assert [one.path for one in found.mistakes] == [place]
    assert words in found.mistakes[0].message


def test_a_judge_that_is_one_of_the_judged_under_another_name_is_refused(tmp_path: Path) -> None:
    same_place = JUDGED.replace("deployments: [judge-a]", "deployments: [large-b]").replace("m-judge", "m-spare")
    same_model = JUDGED.replace("m-judge", "m-small")
    for groups, words in ((same_place, "deployment large-b"), (same_model, "is the model m-small")):
        folder = write(tmp_path, groups=groups, default=POLICY + "judge: {share: 0.1, group: judge}\n")
        (mistake,) = review(folder, {}).mistakes
        assert mistake.path == "judge.group"
        assert words in mistake.message


def test_a_judge_whose_errors_nobody_knows_is_a_warning(tmp_path: Path) -> None:
    folder = write(tmp_path, groups=JUDGED, default=POLICY + "judge: {share: 0.1, group: judge}\n")
    found = review(folder, {})
    assert found.config is not None
    assert [one.path for one in found.warnings if "judge" in one.path] == ["judge.group"]
    gone = POLICY + "judge: {share: 0.1, group: judge, calibration: /no/such/file}\n"
    assert "not on this machine" in messages_of(review(write(tmp_path, groups=JUDGED, default=gone), {}).warnings)


def messages_of(found: Sequence[Mistake]) -> str:
    return " ".join(one.message for one in found)

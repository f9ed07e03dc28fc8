"""A policy's examples run when it is checked, and one that fails says what came instead, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.policy_files import review
from tests.support.config_files import POLICY, marked, messages, places, policy, route, write

AGENTS = POLICY.replace(
    "routes:\n",
    "routes:\n  - {name: stuck, when: {tool_errors: {at_least: 2}}, group: large}\n"
    "  - {name: short, when: {prompt_chars: {below: 10}, stream: true}, group: small}\n",
)


def test_examples_that_hold_are_counted(tmp_path: Path) -> None:
    examples = """\
examples:
  - {given: {tool_errors: 3}, expect: stuck}
  - {given: {prompt_chars: 50}, scores: {difficulty: 0.7}, expect: {route: difficulty, group: large}}
  - {given: {prompt_chars: 50}, scores: {difficulty: null}, expect: {route: default, group: large}}
  - {given: {stream: true}, expect: {group: small}}
"""
    found = review(write(tmp_path, default=AGENTS + examples), {})
    assert (found.mistakes, found.examples) == ((), 4)


@pytest.mark.parametrize(
    ("example", "path", "message"),
    [
        (
            "{given: {prompt_chars: 20}, scores: {difficulty: 0.3}, expect: {route: difficulty, group: ^large}}",
            "examples[0].expect.group",
            "expected route 'difficulty' and group 'large', but route 'difficulty' leads to group 'small': "
            "the score 0.3 of difficulty is below 0.5",
        ),
        (
            "{given: {tool_errors: 1}, scores: {difficulty: 0.3}, expect: ^stuck}",
            "examples[0].expect",
            "expected route 'stuck', but route 'difficulty' leads to group 'small': the score 0.3 of difficulty is "
            "below 0.5; 'stuck' does not hold: tool_errors is 1, not at least 2",
        ),
        (
            "{given: {tool_errors: 2, stream: true}, expect: ^short}",
            "examples[0].expect",
            "expected route 'short', but route 'stuck' leads to group 'large': its condition holds; 'short' holds too, "
            "but stands below",
        ),
        (
            "^{given: {tool_errors: 1}, expect: difficulty}",
            "examples[0]",
            "this example needs a score: add scores: {difficulty: 0.7}, or null for an abstention",
        ),
        (
            "{scores: {difficulty: null}, expect: {group: ^small}}",
            "examples[0].expect.group",
            "expected group 'small', but route 'default' leads to group 'large': difficulty abstains, so the default "
            "serves",
        ),
    ],
)
def test_an_example_that_fails_says_what_came_and_why(tmp_path: Path, example: str, path: str, message: str) -> None:
    content, place = marked(f"{AGENTS}examples: [{example}]\n")
    folder = write(tmp_path, default=content)
    assert places(folder) == [f"default.yaml:{place}: {path}"]
    assert messages(folder) == message


def test_a_signal_that_there_is_not_is_told_beside_a_wrong_key_of_the_policy(tmp_path: Path) -> None:
    content, place = marked(f"{AGENTS}rotues: []\nexamples: [{{given: {{^has_image: true}}, expect: stuck}}]\n")
    folder = write(tmp_path, default=content)
    assert f"default.yaml:{place}: examples[0].given.has_image" in places(folder)
    assert len(places(folder)) == 2


def test_examples_of_one_policy_run_while_another_is_wrong(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        default=policy("examples: [{expect: {group: small}}]"),
        other="version: 1\nname: other\nmodels: [o]\ndefault: tiny\n",
    )
    assert places(folder) == ["default.yaml:5:29: examples[0].expect.group", "other.yaml:4:10: default"]


def test_an_examples_headers_are_compared_as_http_has_them(tmp_path: Path) -> None:
    content = route("{name: gold, when: {headers: {X-Tier: gold}}, group: large}")
    example = "examples: [{given: {headers: {X-TIER: gold}}, expect: gold}]\n"
    assert review(write(tmp_path, default=content + example), {}).examples == 1

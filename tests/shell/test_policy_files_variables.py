"""${NAME} in scalars: expanded once, after parsing, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.policy_files import load, review
from router.policy_files.variables import BadVariable, Variables
from tests.support.config_files import GROUPS, POLICY, messages, places, policy, write

SECRET = "sk-c4n4ry'\"#$ {x}: [y]"


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${A}", "1"),
        ("https://${H}/v${A}", "https://host/v1"),
        ("${MISSING:-fallback}", "fallback"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-fallback}", "fallback"),
        ("${EMPTY}", ""),
        ("${A:-other}", "1"),
        ("${MISSING:-a:-b c#d$e}", "a:-b c#d$e"),
        ("${NESTED}", "${A}"),
        ("$${A}", "${A}"),
        ("$A $ {A} $", "$A $ {A} $"),
    ],
)
def test_a_reference_is_replaced_once(text: str, expanded: str) -> None:
    environ = {"A": "1", "H": "host", "EMPTY": "", "NESTED": "${A}"}
    assert Variables(environ).expand(text) == expanded


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${MISSING}", "the variable MISSING is not set; set it, or write ${MISSING:-default}"),
        ("x ${A", "not closed"),
        ("${}", "no variable name"),
        ("${1A}", "no variable name"),
        ("${A-x}", "no variable name"),
        ("${A.b}", "no variable name"),
        ("${MISSING:-${A}}", "the default of MISSING holds another variable"),
        ("${BYTES}", "not UTF-8"),
    ],
)
def test_a_reference_that_cannot_be_expanded_says_why(text: str, message: str) -> None:
    with pytest.raises(BadVariable) as raised:
        Variables({"A": SECRET, "BYTES": "\udcff" + SECRET}).expand(text)
    assert message in str(raised.value)
    assert SECRET not in str(raised.value)


def test_G05_an_unset_variable_refuses_the_load_naming_key_path_and_variable(tmp_path: Path) -> None:
    folder = write(tmp_path, groups=GROUPS.replace("${SMALL_KEY:-none}", "${SMALL_KEY}"))
    assert places(folder) == ["groups.yaml:6:94: deployments.small-a.api_key"]
    assert "the variable SMALL_KEY is not set" in messages(folder)


@pytest.mark.parametrize("value", [SECRET, "two words", "- a", "yes", "12", "# no comment", "&a *b !!x"])
def test_G05_a_value_is_taken_as_it_is(tmp_path: Path, value: str) -> None:
    folder = write(tmp_path)
    assert load(folder, {"SMALL_KEY": value}).deployments["small-a"].api_key == value


def test_G05_a_line_break_in_a_value_is_kept_where_it_can_be_sent(tmp_path: Path) -> None:
    groups = GROUPS.replace("model: m-small", 'model: m-small, set: {user: "${U}"}')
    config = load(write(tmp_path, groups=groups), {"U": "a\nb: c\n"})
    assert config.deployments["small-a"].set == {"user": "a\nb: c\n"}


def test_G05_a_key_that_no_header_carries_is_refused_without_showing_it(tmp_path: Path) -> None:
    folder = write(tmp_path)
    environ = {"SMALL_KEY": SECRET + "\n"}
    assert places(folder, environ) == ["groups.yaml:6:94: deployments.small-a.api_key"]
    assert "no HTTP header carries" in messages(folder, environ)
    assert SECRET not in messages(folder, environ)


def test_G05_part_of_a_scalar_may_be_a_variable(tmp_path: Path) -> None:
    folder = write(tmp_path, groups=GROUPS.replace("http://127.0.0.1:9001/v1", "https://${H}/v1"))
    assert load(folder, {"H": "example.com"}).deployments["small-a"].base_url == "https://example.com/v1"


def test_keys_are_not_expanded(tmp_path: Path) -> None:
    groups = 'version: 1\ngroups: {small: {deployments: [a]}, "${G}": {deployments: [a]}}\n'
    folder = write(tmp_path, groups=groups + "deployments: {a: {upstream: local}}\n")
    assert places(folder, {"G": "large"}) == [
        "default.yaml:5:96: routes[0].score.bands[1].group",
        "default.yaml:6:10: default",
        "groups.yaml:2:37: groups.${G}",
    ]


def test_a_number_may_come_from_a_variable(tmp_path: Path) -> None:
    groups = """\
        version: 1
        groups: {small: {deployments: [a]}, large: {deployments: [a]}}
        deployments:
          a:
            upstream: local
            max_in_flight: ${N}
            images: ${IMAGES}
            options: {threads: "${N}"}
            set:
              max_tokens: ${N}
              user: "${N}"
        """.replace('"${N}"}', "2}")
    one = load(write(tmp_path, groups=groups), {"N": "7", "IMAGES": "false"}).deployments["a"]
    assert (one.max_in_flight, one.images) == (7, False)
    assert one.set == {"max_tokens": 7, "user": "7"}


EVERYWHERE = """\
version: "${S}"
name: "${S}"
models: ["${S}"]
default: "${S}"
routes:
  - {name: "${S}", when: {turns: "${S}"}, group: "${S}", set: {user: "${S}"}}
order: ["${S}"]
pin: {ttl: "${S}", upgrade: "${S}"}
target: {large_share: {at_most: "${S}"}}
"""
EXAMPLES = """\
examples:
  - {given: {tenant: "${S}", turns: "${S}"}, scores: {difficulty: 0.1}, expect: "${S}"}
  - {given: {tenant: "${S}"}, scores: {difficulty: "${S}"}, expect: {group: "${S}"}}
"""


def test_no_mistake_shows_the_value_of_a_variable(tmp_path: Path) -> None:
    keys = ["api_key", "upstream", "base_url", "model", "context_window", "timeouts", "price", "dialects"]
    folder = write(
        tmp_path,
        groups='version: 1\nstore: "${S}"\ngroups: {small: {deployments: ["${S}"]}, large: {deployments: [a]}}\n'
        "deployments:\n  a:\n" + "".join(f'    {key}: "${{S}}"\n' for key in keys),
        default=EVERYWHERE,
        named=POLICY.replace("name: difficulty", 'name: "${S}"') + EXAMPLES,
        twice=POLICY.replace("name: default", 'name: "${S}"').replace("[auto]", '["${S}"]'),
    )
    found = review(folder, {"S": SECRET})
    shown = "\n".join(map(str, found.mistakes + found.warnings))
    assert len(found.mistakes) > 15
    assert "c4n4ry" not in shown
    assert "${S}" in shown


def test_a_failing_example_shows_no_value_of_a_variable(tmp_path: Path) -> None:
    content = policy(
        'routes: [{name: gold, when: {tenant: "${S}"}, group: small}]',
        'examples: [{given: {tenant: "x"}, expect: gold}, {given: {tenant: "${S}"}, expect: default}]',
    )
    folder = write(tmp_path, default=content)
    assert messages(folder, {"S": SECRET}) == (
        "expected otherwise: no route holds, so the default serves; "
        "the route expected does not hold because of tenant\n"
        "expected otherwise: an earlier condition holds"
    )

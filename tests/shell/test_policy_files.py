"""Configuration files are read whole or refused whole, with every mistake at its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from router.config import Band, Pin, Policy, Price, Range, Route, ScorerSpec, ScoreRule, Timeouts, When
from router.errors import ConfigError
from router.policy_files import load, review
from tests.support.config_files import GROUPS, POLICY, marked, messages, places, policy, route, write

# --- good files ------------------------------------------------------------------------------------------


def test_the_least_that_must_work_loads(tmp_path: Path) -> None:
    config = load(write(tmp_path), {})
    assert set(config.policies) == {"default"}
    assert config.models["auto"] is config.policies["default"]
    assert config.groups["large"].deployments == ("large-a", "large-b")
    small, large = config.deployments["small-a"], config.deployments["large-a"]
    assert (small.name, small.upstream, small.model, small.api_key) == ("small-a", "openai", "m-small", "none")
    assert large.dialects == ("chat", "messages")
    assert large.price == Price(input=1.0, output=3.0)
    assert config.policies["default"].routes == (
        Route(
            name="difficulty",
            score=ScoreRule(scorer="difficulty", bands=(Band(below=0.5, group="small"), Band(group="large"))),
        ),
    )
    assert config.store is None


def test_without_a_scorers_file_difficulty_and_lexical_are_the_lexical_scorer(tmp_path: Path) -> None:
    scorers = load(write(tmp_path), {}).scorers
    assert {name: (spec.kind, spec.options) for name, spec in scorers.items()} == {
        "difficulty": ("lexical", {}),
        "lexical": ("lexical", {}),
    }


def test_a_scorers_own_keys_become_its_options(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        scorers="""\
            version: 1
            scorers:
              difficulty: {kind: lexical}
              judge: {kind: remote, url: "http://127.0.0.1:9005/v1", model: "${M:-2}"}
              late:
                kind: remote
                url: http://127.0.0.1:9005/v1
                model: m
                deadline_s: ${D:-0.15}
            """,
    )
    scorers = load(folder, {}).scorers
    assert set(scorers) == {"difficulty", "judge", "late"}
    assert scorers["judge"] == ScorerSpec(
        name="judge",
        kind="remote",
        options={"url": "http://127.0.0.1:9005/v1", "model": "2"},
    )
    assert scorers["late"].options["deadline_s"] == 0.15


def test_every_sugar_of_a_policy_is_understood(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        default="""\
            version: 1
            name: agents
            models: [auto, auto-code]
            routes:
              - {name: stuck, when: {tool_errors: {at_least: 2}, headers: {X-Tier: [gold, silver]}}, group: large}
              - {name: norwegian, when: {tenant: no, any: [{turns: 1}, {stream: true}]}, group: small,
                 set: {max_tokens: 100}}
              - {name: difficulty, score: {scorer: difficulty, bands: [{below: 0.4, group: small}, {group: large}]}}
            default: large
            pin: {ttl: 1h30m, upgrade: never}
            fallback: {small: [large], large: [small]}
            order: [small, large]
            """,
    )
    policy: Policy = load(folder, {}).policies["agents"]
    assert policy.routes[0].when == When(tool_errors=Range(at_least=2), headers={"x-tier": ("gold", "silver")})
    assert policy.routes[1].when == When(tenant="no", any=(When(turns=1), When(stream=True)))
    assert policy.routes[1].set == {"max_tokens": 100}
    assert policy.pin == Pin(ttl_s=5400.0, upgrade="never")
    assert policy.fallback == {"small": ("large",), "large": ("small",)}
    assert policy.order == ("small", "large")


@pytest.mark.parametrize(
    ("written", "seconds"), [("90s", 90), ("1h", 3600), ("2d", 172800), ("250ms", 0.25), ("30", 30), ("1.5", 1.5)]
)
def test_a_ttl_is_a_duration_or_a_number_of_seconds(tmp_path: Path, written: str, seconds: float) -> None:
    pin = load(write(tmp_path, default=POLICY + f"pin: {{ttl: {written}}}\n"), {}).policies["default"].pin
    assert pin is not None
    assert pin.ttl_s == seconds


def test_the_rest_of_a_deployments_keys_are_understood(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        groups="""\
            version: 1
            store: redis://127.0.0.1:6379/0
            groups: {large: {deployments: [a]}, small: {deployments: [b]}}
            deployments:
              a: {upstream: openai, base_url: "https://h/v1", model: m, max_in_flight: 4, set: {temperature: 0},
                  timeouts: {connect_s: 1, first_byte_s: 2.5, idle_s: 3, total_s: 4}, partition: {nodes: [n1, n2]}}
              b: {upstream: local, options: {threads: 2}}
            """,
    )
    config = load(folder, {})
    one = config.deployments["a"]
    assert one.timeouts == Timeouts(connect_s=1, first_byte_s=2.5, idle_s=3, total_s=4)
    assert one.partition is not None
    assert one.partition.nodes == ("n1", "n2")
    assert (one.max_in_flight, one.set) == (4, {"temperature": 0})
    assert config.deployments["b"].options == {"threads": 2}
    assert config.store == "redis://127.0.0.1:6379/0"


def test_a_policy_may_have_no_routes(tmp_path: Path) -> None:
    default = "version: 1\nname: d\nmodels: [auto]\nroutes: []\ndefault: large\n"
    assert load(write(tmp_path, default=default), {}).policies["d"].routes == ()


def test_an_anchor_may_be_used_a_few_times(tmp_path: Path) -> None:
    groups = """\
        version: 1
        groups: {small: {deployments: [a]}, large: {deployments: [b]}}
        deployments:
          a: {upstream: local, timeouts: &slow {total_s: 9}}
          b: {upstream: local, timeouts: *slow}
        """
    assert load(write(tmp_path, groups=groups), {}).deployments["b"].timeouts.total_s == 9


def test_hidden_files_other_suffixes_and_folders_below_are_not_read(tmp_path: Path) -> None:
    folder = write(tmp_path)
    for name in (".default.yaml", "default.yaml~", "schema.json", "default.yaml.swp"):
        (folder / name).write_text("{{{")
    (folder / "examples").mkdir()
    (folder / "examples" / "x.yaml").write_text("{{{")
    assert set(load(folder, {}).policies) == {"default"}


# --- digest and reload -----------------------------------------------------------------------------------


def test_G03_reading_unchanged_files_again_gives_an_equal_configuration(tmp_path: Path) -> None:
    folder = write(tmp_path)
    assert load(folder, {}) == load(folder, {})


def test_the_digest_changes_with_bytes_and_names_and_not_with_the_environment(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    before = load(write(tmp_path / "one"), {}).digest
    assert load(tmp_path / "one", {"SMALL_KEY": "other"}).digest == before
    assert load(write(tmp_path / "one", default=POLICY + "# a comment\n"), {}).digest != before
    assert load(write(tmp_path / "two", default=None, renamed=POLICY), {}).digest != before


def test_the_digest_does_not_depend_on_the_order_of_writing(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "groups.yaml").write_text(GROUPS)
    (tmp_path / "two" / "default.yaml").write_text(POLICY)
    assert load(write(tmp_path / "one"), {}).digest == load(tmp_path / "two", {}).digest


# --- files that cannot be read at all --------------------------------------------------------------------

BOMB = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 11))
SLOW_BOMB = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 6)}]\n" for i in range(1, 11))


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        pytest.param("version: 1\nname: [a", "default.yaml:3:1: (file)", "the [ of line 2 is not closed", id="syntax"),
        pytest.param("", "default.yaml:1:1: (file)", "is empty", id="empty"),
        pytest.param("# only a comment\n", "default.yaml:1:1: (file)", "is empty", id="comment-only"),
        pytest.param(
            "version: 1\nname: default\nmod", "default.yaml:3:1: (file)", "no key with a value", id="half-written"
        ),
        pytest.param("- a\n- b\n", "default.yaml:1:1: (file)", "must be a mapping", id="a-list"),
        pytest.param("word\n", "default.yaml:1:1: (file)", "must be a mapping", id="a-word"),
        pytest.param(POLICY + "---\na: 1\n", "default.yaml:7:1: (file)", "second document", id="two-documents"),
        pytest.param("a: 1\nb: \x01\n", "default.yaml:2:4: (file)", "U+0001", id="control-character"),
        pytest.param(b"a: 1\nb: \xff\n", "default.yaml:2:4: (file)", "not UTF-8", id="not-utf-8"),
        pytest.param("a: &x [*x]\n", "default.yaml:1:8: (file)", "inside what it names", id="recursive-alias"),
        pytest.param("a: *x\n", "default.yaml:1:4: (file)", "names nothing", id="unknown-alias"),
        pytest.param("a: " + "[" * 60 + "]" * 60, "default.yaml:1:43: (file)", "nested more than", id="deep"),
        pytest.param(BOMB, "default.yaml:9:15: (file)", "aliases", id="alias-bomb"),
        pytest.param(SLOW_BOMB, "default.yaml:2:5: (file)", "aliases make more than", id="alias-bomb-below-the-cap"),
        pytest.param("a: [" + "1," * 110_000 + "]", "default.yaml:1:200001: (file)", "more than 100,000", id="many"),
        pytest.param(b"#" * 50_000_000, "default.yaml:1:1: (file)", "larger than 1,000,000 bytes", id="50-MB"),
    ],
)
def test_F21_X08_a_file_that_cannot_be_read_is_refused(
    tmp_path: Path, content: str | bytes, place: str, message: str
) -> None:
    folder = write(tmp_path, default=content)
    assert places(folder) == [place]
    assert message in messages(folder)


def test_F21_a_deleted_groups_file_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, groups=None)
    assert places(folder) == ["groups.yaml:1:1: (file)"]
    assert "missing" in messages(folder)


def test_F21_a_directory_without_a_policy_is_refused(tmp_path: Path) -> None:
    assert places(write(tmp_path, default=None)) == [f"{tmp_path.name}:1:1: (file)"]


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    assert places(tmp_path / "nowhere") == ["nowhere:1:1: (file)"]


@pytest.mark.parametrize(
    "tag",
    ["!!python/object/apply:os.system [ls]", "!!python/name:os.system ''", "!mine 1", "!!binary aGk=", "!!set {a}"],
)
def test_F21_X08_a_foreign_tag_is_refused_and_runs_nothing(tmp_path: Path, tag: str) -> None:
    folder = write(tmp_path, default=POLICY + f"pin: {{ttl: {tag}}}\n")
    assert places(folder)[0] == "default.yaml:7:12: pin.ttl"
    assert "is not allowed" in messages(folder)


def test_core_tags_are_understood(tmp_path: Path) -> None:
    default = POLICY.replace("name: default", "name: !!str 7").replace("0.5", '!!float "0.5"')
    assert "7" in load(write(tmp_path, default=default), {}).policies


def test_X08_duplicate_keys_are_refused_each_at_its_second_place(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        default=POLICY + "default: small\n",
        groups=GROUPS.replace("model: m-small,", "model: m-small, model: m-other,"),
    )
    assert places(folder) == ["default.yaml:7:1: default", "groups.yaml:6:85: deployments.small-a.model"]
    assert "already on line 6" in messages(folder)


def test_merge_keys_and_odd_keys_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, default=POLICY + "<<: {a: 1}\n? [a]\n: 1\n")
    assert places(folder) == ["default.yaml:7:1: <<", "default.yaml:8:3: (file)"]


# What YAML's own parser would say is of no help to somebody who does not know its grammar.
IN_PLAIN_WORDS = {
    "a tab": ("version: 1\nroutes:\n^\t- {name: a}\n", "a tab stands here"),
    "an item too far left": ("routes:\n  - name: a\n  ^group: b\n", "not indented like the list that begins on line 2"),
    "a key too far right": ("version: 1\n  name^: p\n", "an indentation too deep"),
    "no colon": ("version: 1\n^default large\nname: p\n", "after a key stand ':' and a space"),
    "no space behind a colon": ("version: 1\n^default:large\nname: p\n", "after a key stand ':' and a space"),
    "no comma": ("routes: [{below: 0.5 group^: small}]\n", "a comma or quotes are missing"),
    "quotes left open": ('name: "p\nversion: 1\n^', "the quotes of line 1 are not closed"),
    "a variable between braces": ("a: {key: $^{KEY}}\n", 'a variable stands in quotes: "${NAME}"'),
    "a value of a kind": ("name: ^@home\n", "put the value in quotes"),
}


def test_a_line_ends_where_yaml_says_that_it_does(tmp_path: Path) -> None:
    folder = write(tmp_path, default="a: {b: 1\r\u2028 \r\n\x85c")
    assert places(folder) == ["default.yaml:6:1: (file)"]
    assert "the { of line 1 is not closed" in messages(folder)


@pytest.mark.parametrize("case", IN_PLAIN_WORDS)
def test_what_is_not_yaml_is_told_in_plain_words_where_it_stands(tmp_path: Path, case: str) -> None:
    content, message = IN_PLAIN_WORDS[case]
    content, place = marked(content)
    folder = write(tmp_path, default=content)
    assert places(folder) == [f"default.yaml:{place}: (file)"]
    assert message in messages(folder)


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    folder = write(tmp_path)
    place = folder / "pipe.yaml"
    if kind == "a pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    assert places(folder) == ["pipe.yaml:1:1: (file)"]
    assert "not a regular file" in messages(folder)


def test_a_mistake_is_one_line_whatever_stands_in_a_name(tmp_path: Path) -> None:
    folder = write(
        tmp_path, default=policy('routes: [{name: "a\\nx: 1\\e[2J", group: small}]', "examples: [{expect: b}]")
    )
    told = [str(one) for one in review(folder, {}).mistakes]
    assert len(told) == 2
    assert all(one.isprintable() for one in told)
    assert "known: a\\nx: 1\\x1b[2J" in told[1]


# --- keys and values -------------------------------------------------------------------------------------


# Each case: a policy with ^ where the mistake stands, its key path, and words of its message.
KEYS_AND_VALUES = {
    "no version": ("^name: p\nmodels: [auto]\ndefault: large\n", "version", "add version: 1"),
    "version 2": (policy().replace("version: 1", "version: ^2"), "version", "must be 1"),
    "version true": (policy().replace("version: 1", "version: ^true"), "version", "must be 1"),
    "no name": ("^version: 1\nmodels: [auto]\ndefault: large\n", "name", "the key 'name' is missing"),
    "misspelt": (policy("^rotues: []"), "rotues", "did you mean 'routes'?"),
    "unknown": (policy("^zzz: []"), "zzz", "unknown key 'zzz'; known: name, models"),
    "a mapping for a list": (policy("routes: ^{a: 1}"), "routes", "must be a list"),
    "a number for a route": (policy("routes: [^5]"), "routes[0]", "must be a mapping"),
    "a word for a list": (policy().replace("[auto]", "^auto"), "models", "must be a list such as [a, b]"),
    "no models": (policy().replace("[auto]", "^[]"), "models", "at least one model name"),
    "a model twice": (policy().replace("[auto]", "[a, ^a]"), "models[1]", "in the list already"),
    "a group's name": (policy().replace("[auto]", "[^small]"), "models[0]", "a group has this name"),
    "an odd model": (policy().replace("[auto]", '[^"a "]'), "models[0]", "no surrounding space"),
    "an odd name": (policy().replace("name: p", "name: ^a b"), "name", "a name is up to 128 letters"),
    "misspelt in a range": (
        route("{name: a, when: {tool_errors: {^at_lest: 2}}, group: large}"),
        "routes[0].when.tool_errors.at_lest",
        "did you mean 'at_least'?",
    ),
    "a misspelt signal": (
        route("{name: a, when: {^tool_erors: 2}, group: large}"),
        "routes[0].when.tool_erors",
        "did you mean 'tool_errors'?",
    ),
    "a misspelt signal inside any": (
        route("{name: a, when: {any: [{turns: 1}, {^tuns: 2}]}, group: large}"),
        "routes[0].when.any[1].tuns",
        "did you mean 'turns'?",
    ),
    "a word for a number": (
        route("{name: a, when: {turns: ^many}, group: large}"),
        "routes[0].when.turns",
        "must be a number or a mapping of keys to values",
    ),
    "a number for a word": (
        route("{name: a, when: {language: [en, ^3]}, group: large}"),
        "routes[0].when.language[1]",
        "must be text (in quotes if it reads as a number)",
    ),
    "a word for a flag": (
        route("{name: a, when: {has_images: ^maybe}, group: large}"),
        "routes[0].when.has_images",
        "must be true or false",
    ),
    "a flag for a number": (
        route("{name: a, when: {any: [{turns: 1}, {tools: ^true}]}, group: large}"),
        "routes[0].when.any[1].tools",
        "must be a number, not true or false",
    ),
    "infinity": (
        route("{name: a, when: {turns: {at_least: ^.inf}}, group: large}"),
        "routes[0].when.turns.at_least",
        "must be a finite number",
    ),
    "a route without a name": (route("^{group: large}"), "routes[0].name", "the key 'name' is missing"),
    "an unknown scope": (policy("pin: {scope: ^tenant}"), "pin.scope", "must be 'conversation'"),
    "an unknown upgrade": (policy("pin: {upgrade: ^always}"), "pin.upgrade", "must be one of 'user_turn', 'never'"),
    "a word for a ttl": (policy("pin: {ttl: ^soon}"), "pin.ttl", "such as 90s, 1h or 2d"),
    "a ttl of 0": (policy("pin: {ttl: ^0}"), "pin.ttl", "must be more than 0"),
    "a ttl of ages": (policy("pin: {ttl: ^99999999w}"), "pin.ttl", "at most 365d"),
    "a ttl twice": (policy("pin: {ttl: 1h, ^ttl_s: 5}"), "pin.ttl_s", "keep one of the two"),
    "a word for fallbacks": (policy("fallback: {small: ^large}"), "fallback.small", "must be a list"),
    "an example without expect": (policy("examples: [^{given: {turns: 1}}]"), "examples[0]", "expect is missing"),
    "a word in expect": (policy("examples: [{expect: {^rout: a}}]"), "examples[0].expect.rout", "route and group"),
    "a number in expect": (policy("examples: [{expect: {route: ^3}}]"), "examples[0].expect.route", "must be text"),
    "a number for expect": (policy("examples: [{expect: ^3}]"), "examples[0].expect", "must be a route's name"),
    "route beside expect": (
        policy("examples: [{expect: default, ^route: b}]"),
        "examples[0].route",
        "write expect: {route: NAME}",
    ),
    "a misspelt signal in given": (
        policy("examples: [{expect: default, given: {^tuns: 1}}]"),
        "examples[0].given.tuns",
        "did you mean 'turns'?",
    ),
    "a list for a signal in given": (
        policy("examples: [{expect: default, given: {turns: ^[1]}}]"),
        "examples[0].given.turns",
        "must be a whole number",
    ),
}


@pytest.mark.parametrize("case", KEYS_AND_VALUES)
def test_a_wrong_key_or_value_is_told_at_its_place(tmp_path: Path, case: str) -> None:
    content, path, message = KEYS_AND_VALUES[case]
    content, place = marked(content)
    folder = write(tmp_path, default=content)
    assert places(folder) == [f"default.yaml:{place}: {path}"]
    assert message in messages(folder)


def test_all_mistakes_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        groups=GROUPS.replace("[small-a]", "[smal-a]").replace("dialects: [chat, messages]", "dialects: [chatt]"),
        default=route("{name: a, colour: red, group: larg}", "{name: b}") + "rotues: 1\n",
        other="[",
    )
    assert places(folder) == [
        "default.yaml:6:15: routes[0].colour",
        "default.yaml:6:35: routes[0].group",
        "default.yaml:8:1: rotues",
        "groups.yaml:3:25: groups.small.deployments[0]",
        "groups.yaml:8:24: deployments.large-a.dialects[0]",
        "other.yaml:2:1: (file)",
    ]


def test_load_raises_every_mistake_as_one_error(tmp_path: Path) -> None:
    folder = write(tmp_path, default=policy("a: 1", "b: 2"))
    with pytest.raises(ConfigError) as raised:
        load(folder, {})
    assert [one.path for one in raised.value.mistakes] == ["a", "b"]
    assert str(raised.value).startswith(f"{folder}/default.yaml:5:1: a: unknown key 'a'")

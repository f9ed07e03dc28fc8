"""Groups, deployments and scorers that are well formed and yet cannot be meant are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.config_files import marked, messages, places, write

ONE = "version: 1\ngroups: {small: {deployments: [a]}, large: {deployments: [a]}}\ndeployments:\n  a: "
AT_A = ONE.replace("  a:", "  ^a:")
GROUPS_FILES = {
    "an openai deployment without an address": (AT_A + "{upstream: openai, model: m}", "deployments.a.base_url", "/v1"),
    "an address without a scheme": (
        ONE + "{upstream: openai, model: m, base_url: ^localhost}", "deployments.a.base_url", "http://"
    ),
    "an address with a space": (
        ONE + '{upstream: openai, model: m, base_url: ^"http://a b/v1"}', "deployments.a.base_url", "no spaces"
    ),
    "an address with a port beyond all ports": (
        ONE + '{upstream: openai, model: m, base_url: ^"http://h:99999/v1"}', "deployments.a.base_url", "1 to 65535"
    ),
    "an address whose port is a word": (
        ONE + '{upstream: openai, model: m, base_url: ^"http://h:port/v1"}', "deployments.a.base_url", "1 to 65535"
    ),
    "an address with half a bracket": (
        ONE + '{upstream: openai, model: m, base_url: ^"http://[::1/v1"}', "deployments.a.base_url", "in [ ]"
    ),
    "an address without a host": (
        ONE + '{upstream: openai, model: m, base_url: ^"http:///v1"}', "deployments.a.base_url", "has no host"
    ),
    "an address whose variable is written as a shell would": (
        ONE + '{upstream: openai, model: m, base_url: ^"http://$HOST:80/v1"}', "deployments.a.base_url", "${NAME}"
    ),
    "an address with an empty label": (
        ONE + '{upstream: openai, model: m, base_url: ^"http://a..b/v1"}', "deployments.a.base_url", "no name server"
    ),
    "an address with a label of 64 letters": (
        ONE + f'{{upstream: openai, model: m, base_url: ^"http://{"a" * 64}.b"}}', "deployments.a.base_url", "a host"
    ),
    "an address whose port is empty": (
        ONE + '{upstream: openai, model: m, base_url: ^"http://h:/v1"}', "deployments.a.base_url", "after the colon"
    ),
    "an address that is not ASCII": (
        ONE + '{upstream: openai, model: m, base_url: ^"http://h/\u4e2d"}', "deployments.a.base_url", "xn--"
    ),
    "an address with a fragment": (
        ONE + '{upstream: openai, model: m, base_url: ^"http://h/v1#a"}', "deployments.a.base_url", "never sent"
    ),
    "an openai deployment without a model": (
        AT_A + '{upstream: openai, base_url: "http://h/v1"}', "deployments.a.model", "the upstream's model name"
    ),
    "an unknown upstream": (
        ONE + "{upstream: ^vllm}", "deployments.a.upstream", "must be one of 'openai', 'local', 'scripted' or 'litellm'"
    ),
    "no upstream": (AT_A + "{model: m}", "deployments.a.upstream", "the key 'upstream' is missing"),
    "an unknown key": (ONE + "{upstream: local, ^modle: m}", "deployments.a.modle", "did you mean 'model'?"),
    "an unknown timeout": (
        ONE + "{upstream: local, timeouts: {^first_bite_s: 1}}",
        "deployments.a.timeouts.first_bite_s",
        "did you mean 'first_byte_s'?",
    ),
    "a timeout of 0": (
        ONE + "{upstream: local, timeouts: {idle_s: ^0}}", "deployments.a.timeouts.idle_s", "more than 0 seconds"
    ),
    "a negative price": (
        ONE + "{upstream: local, price: {input: ^-1}}", "deployments.a.price.input", "0 or more US dollars"
    ),
    "a number for a key": (ONE + "{upstream: local, api_key: ^1234}", "deployments.a.api_key", "must be text"),
    "an empty key": (ONE + "{upstream: local, api_key: ^''}", "deployments.a.api_key", "write none"),
    "a key that is a shell's variable": (
        ONE + "{upstream: local, api_key: ^$KEY}", "deployments.a.api_key", "${NAME}"
    ),
    "a key that is LiteLLM's variable": (
        ONE + "{upstream: local, api_key: ^os.environ/KEY}", "deployments.a.api_key", "${NAME}"
    ),
    "a key that is Kubernetes' variable": (
        ONE + "{upstream: local, api_key: ^$(KEY)}", "deployments.a.api_key", "${NAME}"
    ),
    "a key that ends in a space": (
        ONE + "{upstream: local, api_key: ^'k '}", "deployments.a.api_key", "ends with a space"
    ),
    "no dialects": (ONE + "{upstream: local, dialects: ^[]}", "deployments.a.dialects", "at least one dialect"),
    "no capacity": (ONE + "{upstream: local, max_in_flight: ^0}", "deployments.a.max_in_flight", "at least 1"),
    "no health page": (ONE + "{upstream: local, ^health_url: /health}", "deployments.a.health_url", "only an openai"),
    "no place in a group": (
        ONE.replace("large: {deployments: [a]}", "large: {deployments: [a], max_in_flight: ^0}") + "{upstream: local}",
        "groups.large.max_in_flight",
        "at least 1",
    ),
    "a line that nothing forms": (
        ONE.replace("large: {deployments: [a]}", "large: {deployments: [a], ^queue: 5}") + "{upstream: local}",
        "groups.large.queue",
        "nothing waits without max_in_flight",
    ),
    "more than all of a group": (
        ONE.replace("large: {deployments: [a]}", "large: {deployments: [a], max_ejected: ^2}") + "{upstream: local}",
        "groups.large.max_ejected",
        "a share from 0 to 1",
    ),
    "half a request": (ONE + "{upstream: local, max_in_flight: ^1.5}", "deployments.a.max_in_flight", "a whole number"),
    "a field of the gateway's own": (
        ONE + "{upstream: local, set: {^model: m}}", "deployments.a.set.model", "the gateway's own"
    ),
    "a name inside": (ONE + "{upstream: local, ^name: b}", "deployments.a.name", "the key above is the name"),
    "a word for a deployment": (ONE + "^local", "deployments.a", "must be a mapping"),
    "a store at a port beyond all ports": (
        "version: 1\nstore: ^redis://h:99999/0\n" + ONE.partition("\n")[2] + "{upstream: local}", "store", "a port"
    ),
    "a store whose database is a word": (
        "version: 1\nstore: ^redis://h:6379/cache\n" + ONE.partition("\n")[2] + "{upstream: local}", "store", "database"
    ),
    "an odd store": (
        "version: 1\nstore: ^memcached://h\n" + ONE.partition("\n")[2] + "{upstream: local}", "store", "redis://"
    ),
    "an unknown section": (
        "version: 1\n^gruops: {}\n" + ONE.partition("\n")[2] + "{upstream: local}", "gruops", "did you mean 'groups'?"
    ),
    "no deployments": ("^version: 1\ngroups: {small: {}, large: {}}", "deployments", "is missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", GROUPS_FILES)
def test_a_groups_file_that_cannot_be_meant_is_refused(tmp_path: Path, case: str) -> None:
    content, path, message = GROUPS_FILES[case]
    content, place = marked(content)
    folder = write(tmp_path, groups=content)
    assert f"groups.yaml:{place}: {path}" in places(folder)
    assert message in messages(folder)


def test_groups_need_deployments_that_exist_each_once(tmp_path: Path) -> None:
    groups = """\
        version: 1
        groups:
          small: {deployments: []}
          large: {deployments: [a, b, a]}
          a: {deployments: [a]}
        deployments: {a: {upstream: local}}
        """
    folder = write(tmp_path, groups=groups)
    assert places(folder) == [
        "groups.yaml:3:24: groups.small.deployments",
        "groups.yaml:4:28: groups.large.deployments[1]",
        "groups.yaml:4:31: groups.large.deployments[2]",
        "groups.yaml:6:15: deployments.a",
    ]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("version: 1\n", "1:1: scorers"),
        ("version: 1\nscorers: {}\n", "2:10: scorers"),
        ("version: 1\nscorers: {difficulty: {kind: magic}}\n", "2:30: scorers.difficulty.kind"),
        ("version: 1\nscorers: {difficulty: {url: x}}\n", "2:11: scorers.difficulty.kind"),
        ("version: 1\nscorers: {difficulty: lexical}\n", "2:23: scorers.difficulty"),
        ('version: 1\nscorers: {d: {kind: remote, url: "http://h:0/v1", model: m}}\n', "2:34: scorers.d.url"),
        ('version: 1\nscorers: {d: {kind: remote, api_key: "a\\nb"}}\n', "2:38: scorers.d.api_key"),
        ("version: 1\nscores: {}\nscorers: {difficulty: {kind: lexical}}\n", "2:1: scores"),
    ],
)
def test_a_scorers_file_that_cannot_be_meant_is_refused(tmp_path: Path, content: str, place: str) -> None:
    assert f"scorers.yaml:{place}" in places(write(tmp_path, scorers=content))


def test_a_scorer_that_the_scorers_file_leaves_out_is_unknown(tmp_path: Path) -> None:
    folder = write(tmp_path, scorers="version: 1\nscorers: {judge: {kind: lexical}}\n")
    assert places(folder) == ["default.yaml:5:40: routes[0].score.scorer"]


def test_nothing_is_said_of_names_whose_file_cannot_be_read(tmp_path: Path) -> None:
    assert places(write(tmp_path, groups="version: [\n", scorers="[\n")) == [
        "groups.yaml:2:1: (file)",
        "scorers.yaml:2:1: (file)",
    ]

"""Options of scorers and upstreams are checked with the files, by the tables that the kinds themselves agree with."""

from __future__ import annotations

from pathlib import Path

import pytest

from router import scorers
from router.config import ScorerSpec
from router.errors import ConfigError
from router.policy_files.options import SCORERS, UPSTREAMS
from router.upstreams.local import Options
from tests.support.config_files import marked, messages, places, write

LOCAL = """\
version: 1
groups: {small: {deployments: [a]}, large: {deployments: [a]}}
deployments: {a: {upstream: local, options: {OPTIONS}}}
"""


@pytest.mark.parametrize(
    ("options", "path", "message"),
    [
        ("^treads: 2", "options.treads", "local has no option 'treads'; did you mean 'threads'?"),
        ("threads: ^0", "options.threads", "must be a whole number, 1 or more"),
        ("threads: ^1.5", "options.threads", "must be a whole number, 1 or more"),
        ("parallel: ^true", "options.parallel", "must be a whole number, 1 or more"),
        ("sha256: ^7", "options.sha256", "must be text"),
    ],
)
def test_an_upstreams_options_are_checked(tmp_path: Path, options: str, path: str, message: str) -> None:
    content, place = marked(LOCAL.replace("OPTIONS", options))
    folder = write(tmp_path, groups=content)
    assert places(folder) == [f"groups.yaml:{place}: deployments.a.{path}"]
    assert message in messages(folder)


@pytest.mark.parametrize(
    ("scorer", "path", "message"),
    [
        ("{kind: lexical, ^artefact: x}", "artefact", "did you mean 'artifact'?"),
        ("{kind: fixed, value: ^2}", "value", "must be a number from 0 to 1"),
        ("{kind: header, header: ^3}", "header", "must be text"),
    ],
)
def test_a_scorers_options_are_checked(tmp_path: Path, scorer: str, path: str, message: str) -> None:
    content, place = marked(f"version: 1\nscorers: {{difficulty: {scorer}}}\n")
    folder = write(tmp_path, scorers=content)
    assert places(folder) == [f"scorers.yaml:{place}: scorers.difficulty.{path}"]
    assert message in messages(folder)


@pytest.mark.parametrize("kind", SCORERS)
def test_the_table_names_the_options_that_the_scorer_accepts(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"known: {', '.join(SCORERS[kind])}$"):
        scorers.build(ScorerSpec(name="s", kind=kind, options={"zzz": 1}))


def test_the_table_names_the_options_that_the_local_upstream_accepts() -> None:
    assert tuple(UPSTREAMS["local"]) == Options.__struct_fields__

"""Configuration directories written by tests, and their mistakes in a form that tests can compare."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from router.policy_files import review

GROUPS = dedent("""\
    version: 1
    groups:
      small: {deployments: [small-a]}
      large: {deployments: [large-a, large-b]}
    deployments:
      small-a: {upstream: openai, base_url: "http://127.0.0.1:9001/v1", model: m-small, api_key: "${SMALL_KEY:-none}"}
      large-a: {upstream: openai, base_url: "http://127.0.0.1:9002/v1", model: m-large, api_key: none,
                dialects: [chat, messages], context_window: 131072, price: {input: 1.0, output: 3.0}}
      large-b: {upstream: openai, base_url: "http://127.0.0.1:9003/v1", model: m-large, api_key: none}
    """)
POLICY = dedent("""\
    version: 1
    name: default
    models: [auto]
    routes:
      - {name: difficulty, score: {scorer: difficulty, bands: [{below: 0.5, group: small}, {group: large}]}}
    default: large
    """)


def write(folder: Path, **files: str | bytes | None) -> Path:
    """The contract's example, with files replaced, added or (None) left out."""
    contents: dict[str, str | bytes | None] = {"groups": GROUPS, "default": POLICY, **files}
    for name, content in contents.items():
        if content is not None:
            path = folder / f"{name}.yaml"
            path.write_bytes(content if isinstance(content, bytes) else dedent(content).encode())
    return folder


def places(folder: Path, environ: dict[str, str] | None = None) -> list[str]:
    """Every mistake as `file:line:column: path`, and that they are in order."""
    found = review(folder, environ or {})
    assert found.config is None
    return [f"{Path(one.file).name}:{one.line}:{one.column}: {one.path}" for one in found.mistakes]


def messages(folder: Path, environ: dict[str, str] | None = None) -> str:
    return "\n".join(one.message for one in review(folder, environ or {}).mistakes)


def policy(*lines: str) -> str:
    return "\n".join(("version: 1", "name: p", "models: [auto]", "default: large", *lines)) + "\n"


def route(*lines: str) -> str:
    return policy("routes:", *(f"  - {line}" for line in lines))


def marked(content: str) -> tuple[str, str]:
    """The content without its ^, and the line and column where that stood."""
    before = content.partition("^")[0]
    return content.replace("^", ""), f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"

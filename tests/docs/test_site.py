"""The documentation is a site that builds strictly, its links lead somewhere, and the files that it names are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return _FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    titles = re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the checks extra is not installed")
    pytest.importorskip("material", reason="the checks extra is not installed")
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    shown = (tmp_path / "site" / "tutorial" / "index.html").read_text()
    assert "Tutorial" in shown
    assert "fonts.googleapis" not in shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_inside_the_documentation_leads_to_a_page_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(there), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_file_of_the_project_that_is_named_is_there(page: Path) -> None:
    folders = "router|evals|tests|docs|policies|requirements|deploy"
    for path in re.findall(rf"`((?:{folders})/[\w./-]*\w)(?:::\w+)?`", prose(page)):
        if "NAME" in path:  # stands for any
            continue
        assert (ROOT / path).exists() or list(ROOT.glob(f"{path}.*")), f"{path} is not there"

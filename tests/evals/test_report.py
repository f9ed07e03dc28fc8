"""The report is one page that needs nothing else, shows what was measured, and never runs what a prompt says."""

from __future__ import annotations

import json
import random
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from evals import cases, plots
from router.cli import main

PRICES = ["--price", "small=0.1:0.2:100", "--price", "large=1:2:100"]


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["eval", *args])


class Page(HTMLParser):
    """Tags that are open, every tag seen, and the texts; a tag that closes another than the last is a mistake."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, tag: str) -> int:
        return sum(t == tag for t, _ in self.seen)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two scorers on one file, and of three groups; one prompt and one subject are hostile."""
    out = tmp_path_factory.mktemp("report")
    draw = random.Random(7)
    columns: dict[str, list[Any]] = {k: [] for k in ("prompt", "small", "medium", "large", "subject")}
    for i in range(300):
        hard = i % 2 == 0
        text = "Prove that primes never end" if hard else "What is the capital of France?"
        columns["prompt"].append(f"{text} <script>alert({i})</script>")
        columns["small"].append(int(draw.random() < (0.2 if hard else 0.9)))
        columns["medium"].append(int(draw.random() < (0.6 if hard else 0.9)))
        columns["large"].append(int(draw.random() < 0.9))
        columns["subject"].append("<b>law" if i % 15 == 0 else f"s{i % 15}")
    cases.write(out / "d.csv", columns)
    base = ("run", "--data", str(out / "d.csv"), "--draws", "200")
    pair = (*base, "--weak", "small", "--strong", "large", *PRICES)
    runs = {
        "one": pair,
        "three": (*base, "--groups", "small,medium,large", *PRICES, "--price", "medium=0.4:0.5:100"),
    }
    for name, args in runs.items():
        done = call(*args, "--json", str(out / f"{name}.json"))
        assert done.exit_code == 0, done.output
    one = json.loads((out / "one.json").read_text())
    trained = {"name": "lexical", "folds": 2, "holdout": "subject", "cascade": False}
    (out / "two.json").write_text(json.dumps({**one, "scorer": trained}))
    return out


def page(folder: Path, *names: str) -> Page:
    results = [v for n in names for v in ("--result", str(folder / f"{n}.json"))]
    done = call("report", *results, "--out", str(folder / "new" / "r.html"))
    assert done.exit_code == 0, done.output
    return Page((folder / "new" / "r.html").read_text())


def test_the_page_is_well_formed_and_loads_nothing(folder: Path) -> None:
    read = page(folder, "one", "two", "three")
    assert read.open == []
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in read.seen}
    assert not any(
        name in ("src", "href", "style") and "url(" in (v or "") for _, a in read.seen for name, v in a.items()
    )
    assert not any(name in ("src", "href") or name.startswith("on") for _, a in read.seen for name in a)


def test_what_prompts_and_columns_say_is_text(folder: Path) -> None:
    read = page(folder, "one")
    assert "<script>alert(" in read.text
    assert "<b>law" in read.text


def test_scorers_on_the_same_rows_share_a_section_with_every_curve(folder: Path) -> None:
    read = page(folder, "one", "two")
    assert read.count("section") == 1
    first = next(i for i, (tag, _) in enumerate(read.seen) if tag == "figure")
    drawn = [tag for tag, _ in read.seen[first:]]
    curves = drawn[: drawn.index("figcaption")].count("polyline")
    assert curves == 6  # chance, oracle, length, domain and two scorers
    for words in ("lexical", "trained for the pair, 2 folds, subject held out", "prompt length", "oracle"):
        assert words in read.text
    for title in ("Calibration", "Scores by group", "By domain", "Prompts that cost most", "Quality by dollars"):
        assert title in read.text


def test_more_than_two_groups_are_a_frontier_with_each_group_on_it(folder: Path) -> None:
    read = page(folder, "three")
    assert "Quality by cost" in read.text
    assert all(f"{name}: $" in read.text for name in ("small", "medium", "large"))
    assert "policy minus this group" in read.text


def test_many_domains_are_folded_away(folder: Path) -> None:
    read = page(folder, "one")
    assert "3 more" in read.text
    assert read.count("details") == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "not JSON"), ("[1]", "not a result"), ('{"n": 3}', "not a result"), ('"x"', "not a result")],
)
def test_a_file_that_is_no_result_is_named(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "x.json").write_text(content)
    done = call("report", "--result", str(tmp_path / "x.json"), "--out", str(tmp_path / "r.html"))
    assert (done.exit_code, "x.json" in done.output, says in done.output) == (1, True, True)
    absent = call("report", "--result", str(tmp_path / "y.json"), "--out", str(tmp_path / "r.html"))
    assert (absent.exit_code, "y.json: No such file" in absent.output) == (1, True)


def test_a_result_without_a_gap_is_drawn(folder: Path) -> None:
    result = json.loads((folder / "one.json").read_text())
    none = dict.fromkeys(("apgr", "cpt50", "cpt80", "oracle", "auroc", "length", "ece"))
    spans = {key: [None, None] for key in ("apgr_ci", "length_ci", "against_length")}
    (folder / "flat.json").write_text(json.dumps({**result, **none, **spans, "strong": result["weak"]}))
    assert "nothing to recover" in page(folder, "flat").text


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [(0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0.0, 5879.0, [0.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0]),
     (0.68, 0.86, [0.7, 0.75, 0.8, 0.85])],
)  # fmt: skip
def test_ticks_are_round(low: float, high: float, marks: list[float]) -> None:
    assert plots.ticks(low, high) == marks

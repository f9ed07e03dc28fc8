"""docs/design.md is true of the tree: its modules, layers, types and tables, and the tests of its invariants."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from router import config, seams, types

ROOT = Path(__file__).parent.parent
DESIGN = (ROOT / "docs" / "design.md").read_text()


def section(number: int) -> str:
    """The text of one numbered section."""
    found = re.search(rf"^## {number}\. .*?(?=^## |\Z)", DESIGN, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0]


def modules(package: str) -> set[str]:
    """Modules and packages that stand directly in a package."""
    inside = (ROOT / package).iterdir()
    found = {
        p.stem if p.suffix == ".py" else p.name for p in inside if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    return {f"{package}.{name}" for name in found if not name.startswith("__")}


def cited(text: str) -> list[str]:
    return re.findall(r"`(tests/[\w/]+\.py::test_\w+)`", text)


def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


INVARIANTS = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", section(7), re.MULTILINE | re.DOTALL)


def test_the_table_of_modules_is_the_tree():
    listed = re.findall(r"^\| `((?:router|evals)\.\w+)` \|", section(3), re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == modules("router") | modules("evals")


def test_the_modules_called_core_are_those_that_the_import_contract_keeps_from_io():
    core = set(re.findall(r"^\| `(router\.\w+)` \| CORE: ", section(3), re.MULTILINE))
    assert core == set(contract("the core does no I/O and knows no clock, chance or log")["source_modules"])


def test_the_layers_drawn_are_those_that_are_checked():
    drawn = re.search(r"```layers\n(.*?)```", section(3), re.DOTALL)
    assert drawn is not None
    assert drawn[1].split("\n")[:-1] == [layer.replace("router.", "") for layer in contract("layers")["layers"]]


def test_every_module_has_a_layer():
    layered = {name for layer in contract("layers")["layers"] for name in layer.split(" | ")}
    assert layered == modules("router")


@pytest.mark.parametrize("module", sorted(modules("router") | modules("evals")))
def test_a_module_opens_with_what_belongs_there(module: str):
    path = ROOT / module.replace(".", "/")
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    assert [str(file) for file in files if not ast.get_docstring(ast.parse(file.read_text()))] == []


def test_the_values_named_are_those_that_there_are():
    named = set(re.findall(r"`([A-Z]\w+[a-z]\w*)`", section(4)))
    there = {
        name
        for module in (types, config, seams)
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    assert named == there


def test_each_table_of_variants_stands_where_it_is_said_to():
    tables = re.findall(r"`([A-Z]+)`\s+in\s+`(router[\w.]*)`", section(4))
    assert len(tables) >= 6
    for table, module in tables:
        assert getattr(import_module(module), table)


def test_there_are_ten_invariants():
    assert [int(number) for number, _ in INVARIANTS] == list(range(1, 11))


@pytest.mark.parametrize(("number", "text"), INVARIANTS)
def test_an_invariant_names_tests_that_there_are(number: str, text: str):
    named = cited(text)
    assert named, f"invariant {number} names no test"
    for one in named:
        file, _, name = one.partition("::")
        assert name in functions_of(file), one


def test_each_decision_that_is_referred_to_is_written_and_each_that_is_written_is_referred_to():
    written = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")}
    assert set(re.findall(r"decision\s+(\d{4})", DESIGN)) == written


def contract(name: str) -> dict[str, list[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return next(c for c in settings["tool"]["importlinter"]["contracts"] if c["name"] == name)

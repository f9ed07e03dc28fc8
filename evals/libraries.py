"""The heavy libraries of training, imported when first needed; the only module that names them.

They have no type stubs, so what comes from here is Any and is given a type where it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class NotInstalled(ValueError):
    """A library of the `evals` extra is missing."""


def library(name: str) -> Any:
    """A module of scipy, scikit-learn, pyarrow or threadpoolctl. Raises `NotInstalled` where it is not installed."""
    try:
        return import_module(name)
    except ImportError as e:
        raise NotInstalled(f"this needs {name.split('.', 1)[0]}: pip install 'pointsman[evals]'") from e

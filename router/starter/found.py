"""What was found: a model, and the place that serves it. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class Model(Struct, frozen=True, kw_only=True):
    """One model that a place serves. `size_b`: billions of parameters, where the place says it."""

    name: str
    size_b: float | None = None
    created: float = 0.0  # Unix seconds, as the place has it
    more: Mapping[str, Any] = {}  # keys of a deployment that the place made known, such as context_window


class Place(Struct, frozen=True, kw_only=True):
    """Somewhere that was asked. `models` is empty where it serves none that can chat, and `wrong` says why it is not
    used at all."""

    kind: str  # a key of ENGINES or PROVIDERS, or "server"
    title: str
    base_url: str
    variable: str = ""  # the environment variable that holds its key
    dialects: tuple[str, ...] = ()  # () = chat alone
    hosted: bool = False  # somebody else's machine, at somebody else's price
    models: tuple[Model, ...] = ()
    wrong: str = ""
    more: Mapping[str, Any] = {}  # keys that all its deployments get, such as metrics_url

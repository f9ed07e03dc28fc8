"""`${NAME}` and `${NAME:-default}` in one text. No YAML here, and no value ever enters a message.

A default serves where the variable is unset or empty, as in a shell. The value is taken as it is, once: quotes,
`#`, `$` and line breaks in it mean nothing. `$${` writes a literal `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_REFERENCE = re.compile(r"\$(?P<escape>\$\{)|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


class BadVariable(Exception):
    """A reference that cannot be expanded; the text says which and what to do."""


@dataclass(frozen=True, slots=True)
class Variables:
    """The environment as the files may see it; its values stay out of the repr."""

    environ: Mapping[str, str] = field(repr=False)

    def expand(self, text: str) -> str:
        """The text with every reference replaced. Raises BadVariable."""
        return _REFERENCE.sub(self._one, text)

    def _one(self, match: re.Match[str]) -> str:
        if match["escape"]:
            return "${"
        inside = _INSIDE.fullmatch(match["inside"])
        if not match["end"]:
            raise BadVariable("a ${ is not closed by }; write ${NAME}, or $${ for a literal ${")
        if inside is None:
            raise BadVariable("between ${ and } stands no variable name; write ${NAME} or ${NAME:-default}")
        name, default = inside["name"], inside["default"]
        value = self.environ.get(name)
        if default is not None and "${" in default:
            raise BadVariable(f"the default of {name} holds another variable, which is not read; write it out")
        if default is not None and not value:
            return default
        if value is None:
            raise BadVariable(f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise BadVariable(f"the variable {name} holds bytes that are not UTF-8 text")
        return value

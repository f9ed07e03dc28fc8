"""How much of a text looks like code, from a bounded sample of its lines."""

from __future__ import annotations

import re
from functools import lru_cache

_HEAD, _TAIL = 1000, 400  # characters looked at
_MARKS = ("{", "(", ";", "=", "<", "`", "[", "#", "//", "SELECT ", "import ")  # most prose has none of these
_STARTS = (
    *("def ", "class ", "import ", "from ", "#include", "func ", "fn ", "pub ", "impl ", "package ", "using "),
    *("const ", "let ", "var ", "public ", "private ", "protected ", "static ", "async def ", "export ", "return "),
    *("elif ", "else:", "else {", "} else", "try:", "try {", "except ", "catch ", "#!", "//", "/*", "*/", "$ ", ">>> "),
    *("SELECT ", "INSERT INTO ", "UPDATE ", "CREATE TABLE ", "ALTER TABLE ", "print(", "console.", "self.", "</", "<!"),
    *("}", "])", ")]", "@"),
)
_ENDS = (";", "{", "}", "});", "],", "},", "/>", "=>", "->", "):")
# Words that also begin a sentence count as code only where the line goes on like code.
_PROSE_STARTS = (
    "from ",
    "import ",
    "let ",
    "class ",
    "return ",
    "static ",
    "public ",
    "private ",
    "using ",
    "package ",
)
_LINE = re.compile(
    r"""(?:if|for|while|switch|def|with|elif)\b.*[:{]$  # a block opens
      | [\w.\[\]'"*]+(?::\ ?[\w\[\], |]+)?\ ?[-+*/|&]?=\ ?[^=\s]  # an assignment
      | [A-Za-z_][\w.]*\([^)]*\)[;,.]?$  # a call
      | <[A-Za-z][\w-]*[^<>]*>  # a tag
      | File\ ".+",\ line\ \d+
      | (?:from\ [\w.]+\ import|import\ [\w.{*]+(?:\ (?:as|from)\b.*)?$|class\ \w+\ ?[:({]|let\ (?:mut\ )?\w+\ ?[=:;])
      | (?:public|private|static)\ \w+\ \w+|return\ (?:\S+$|.*[-+*/=\[\]{}()])|(?:using|package)\ [\w.]+;?$
    """,
    re.VERBOSE,
)


def code_share(text: str) -> float:
    """Share, 0..1, of the characters of `text` that stand in code: fenced blocks, or lines that read like it.

    Of a long text only the first 1,000 and the last 400 characters are looked at.
    """
    return _share(text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]}\n{text[-_TAIL:]}")


@lru_cache(1024)  # an agent sends the same words again with every step
def _share(sample: str) -> float:
    if not any(map(sample.__contains__, _MARKS)):
        return 0.0
    code = total = 0
    fenced = False
    for raw in sample.split("\n"):
        line = raw.strip()
        if line.startswith("```"):
            fenced = not fenced
            continue
        total += len(line)
        if line and (fenced or _is_code(line)):
            code += len(line)
    return code / total if total else 0.0


def _is_code(line: str) -> bool:
    if line.endswith(_ENDS) or (line.startswith(_STARTS) and not line.startswith(_PROSE_STARTS)):
        return True
    return _LINE.match(line) is not None

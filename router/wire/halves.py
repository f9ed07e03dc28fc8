"""Characters that a server has cut in two: JSON escapes one beyond U+FFFF as a pair, and a server that cuts its text in
UTF-16 may put the halves into two events. Each alone is no character, and no JSON decoder here takes it.

Looked for only where an event cannot be decoded.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_UNKNOWN = b"\\ufffd"


class Halves:
    """Joins halves over the events of one stream. Holds the first half of a character until its second comes."""

    def __init__(self) -> None:
        self._first = b""

    def joined(self, data: bytes) -> bytes:
        """An event's data without lone halves: a second half is given its first, which waits for it from one event to
        a later one; what has no other half becomes U+FFFD."""
        out: list[bytes] = []
        at = 0
        escapes = list(_ESCAPE.finditer(data))
        waiting, self._first = self._first, b""
        number = 0
        while number < len(escapes):
            escape = escapes[number]
            number += 1
            code = int(escape[1], 16) if escape[1] else 0
            if not 0xD800 <= code < 0xE000:
                continue
            out.append(data[at : escape.start()])
            at = escape.end()
            if code >= 0xDC00:
                out.append(waiting + escape[0] if waiting else _UNKNOWN)
                waiting = b""
            elif number < len(escapes) and _second(escapes[number], at):
                out.append(data[escape.start() : escapes[number].end()])
                at = escapes[number].end()
                number += 1
            elif self._first:
                out.append(_UNKNOWN)
            else:
                self._first = escape[0]
        return b"".join([*out, data[at:]])


def _second(escape: re.Match[bytes], at: int) -> bool:
    return escape.start() == at and bool(escape[1]) and 0xDC00 <= int(escape[1], 16) < 0xE000

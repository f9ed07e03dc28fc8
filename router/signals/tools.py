"""What can be read off tool calls and their results without understanding them: failures and repetition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from router.types import ToolCall, ToolResult

# Chat and Responses have no error flag on a tool result, so its words must do. Head: the clients' own forms
# (Claude Code's tag, Codex's exit line, JSON of shells) and the usual first word. Tail: a Python traceback, or a
# shell's exit line behind its output. A result that merely mentions errors is not one.
_FAILED_HEAD = re.compile(
    r"""\s*(?:
        <tool_use_error>
      | (?:fatal\ |uncaught\ |internal\ )?(?:error|exception)\b(?!s)\s*[:(\[-]
      | [A-Za-z_.]*(?:Error|Exception):\s
      | traceback\ \(most\ recent\ call\ last\)
      | (?:command\ |tool\ |execution\ )?failed\b
      | (?:process\ exited\ with\ code|exit\ code:?|exit\ status)\s*-?[1-9]
      | [^\n]{0,80}:\ (?:command\ not\ found|no\ such\ file\ or\ directory|permission\ denied)
      | \{\s*"(?:error|exception)"\s*:(?!\s*(?:null|false|""|\{\}|\[\]))
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_FAILED_ANYWHERE = re.compile(
    r'"(?:exit_code|exitCode|returncode)"\s*:\s*-?[1-9]|"(?:is_error|isError)"\s*:\s*true'
    r"|process exited with code -?[1-9]|exit code:? -?[1-9]|Traceback \(most recent call last\)",
    re.IGNORECASE,
)
_HEAD, _TAIL = 300, 200  # characters


def failed(result: ToolResult) -> bool:
    """Whether a tool's answer reports a failure: the caller's flag where there is one, else its words."""
    if result.error is not None:
        return result.error
    text = result.text
    head = text[:_HEAD]
    return bool(_FAILED_HEAD.match(head) or _FAILED_ANYWHERE.search(head) or _FAILED_ANYWHERE.search(text[-_TAIL:]))


def longest_run(calls: Sequence[ToolCall]) -> int:
    """The longest run of the same call with the same arguments, 1 where no call follows its like."""
    longest = run = 1 if calls else 0
    for before, call in pairwise(calls):
        run = run + 1 if call.name == before.name and call.arguments == before.arguments else 1
        longest = max(longest, run)
    return longest

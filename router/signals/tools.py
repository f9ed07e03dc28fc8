"""What can be read off tool calls and their results without understanding them: failures, repetition, and whether
an agent looks around or changes things.
"""

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


_CYCLE = 3  # calls; agents that are stuck read, edit and test the same thing over and over
_NEWEST = 32  # calls looked at: what went round before them has been got out of


def spinning(calls: Sequence[ToolCall]) -> int:
    """How many of the newest calls only go round: each is the same as the one a cycle of up to three calls before."""
    made = [(call.name, call.arguments) for call in calls[-_NEWEST:]]
    longest = 0
    for cycle in range(1, _CYCLE + 1):
        run = 0
        while run + cycle < len(made) and made[-1 - run] == made[-1 - run - cycle]:
            run += 1
        longest = max(longest, run)
    return longest


_RECENT = 5  # calls that tell the phase: one look at a file between edits is no new exploration
_READ = 200  # characters of a command
# Verbs in the names of tools, agents' own and MCP servers': Read, Grep, list_dir, get_commit, apply_patch. The first
# that stands in a name says what it does. A list of things to do is neither.
_VERBS = re.compile(
    r"""(?P<neither>todo|plan)
      | (?P<produce>write|edit|patch|create|insert|replace|delete|remove|move|rename|update|apply|commit|push|send|save
          |upload|deploy|submit)
      | (?P<explore>read|grep|glob|search|find|list|(?<![a-z])ls(?![a-z])|view|open|get|fetch|show|look|query|browse
          |describe|status|diff|tree|inspect)""",
    re.IGNORECASE | re.VERBOSE,
)
_SHELLS = re.compile(r"bash|shell|exec|terminal|command|(?<![a-z])run(?![a-z])", re.IGNORECASE)
# A shell command's first word, behind the JSON that wraps it and a change of folder.
_LOOKS = re.compile(
    r"""[\[{"\s]*(?:(?:command|cmd|script|bash|-lc)["\s:,\[]*)*(?:cd\s+\S+\s*(?:&&|;)\s*)?
        (?:ls|cat|head|tail|less|grep|rg|ag|find|fd|tree|wc|file|stat|pwd|which|du|df|env|echo|jq|nl|sed\s+-n
          |git\s+(?:log|status|diff|show|blame|grep|branch|ls-files))\b""",
    re.IGNORECASE | re.VERBOSE,
)
_CHANGES = re.compile(r"[^0-9&>]>{1,2}(?!&|>|\s*/dev/null)|\btee\b|-delete\b|\bxargs\b")


def phase(calls: Sequence[ToolCall]) -> str:
    """What the newest calls do: "produce" where one changes things, "explore" where they only look, "" = unknown."""
    looks = False
    for call in calls[-_RECENT:]:
        does = _does(call)
        if does == "produce":
            return does
        looks = looks or does == "explore"
    return "explore" if looks else ""


def _does(call: ToolCall) -> str:
    name = call.name.rpartition("__")[2]  # an MCP server's name stands before its tool's
    if _SHELLS.search(name):
        command = call.arguments[:_READ]
        return "explore" if _LOOKS.match(command) and not _CHANGES.search(command) else "produce"
    verb = _VERBS.search(name)
    return verb.lastgroup or "" if verb else ""

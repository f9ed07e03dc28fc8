"""Recognising side requests: titles, tags, summaries and the like that a client asks for beside the conversation.

They carry the conversation's session id, so that without this they would move its pin. Known clients are told by
a sentence of their own prompts; unknown ones by an instruction to make such a thing of a conversation.
"""

from __future__ import annotations

import re
from functools import lru_cache

from router.types import Request, Turn

# One of these is in every side request's instruction; most requests end here.
_HINTS = (
    "title",
    "summar",
    "topic",
    " tags",
    "questions",
    "autocompletion",
    "search queries",
    "compaction",
    "suggestion mode",
    "emoji",
    "bash commands",
    "file paths",
    "continuing our",
    "concise description",
    "主题",
    "会话",
)
# Sentences of known clients, lower case. Claude Code, opencode, Open WebUI, Codex, LibreChat, NextChat, LobeChat,
# Zed, Continue, Goose.
KNOWN = (
    "analyze if this message indicates a new conversation topic",
    "generate a concise, sentence-case title",
    "summarize this coding conversation in under",
    "your task is to create a detailed summary of the conversation so far",
    "your task is to create a detailed summary of this conversation",
    "helpful ai assistant tasked with summarizing conversations",
    "[suggestion mode:",
    "process bash commands that an ai coding agent wants to run",
    "extract any file paths that this command reads or modifies",
    "you are a title generator",
    "generate a title for this conversation",
    "provide a detailed prompt for continuing our conversation above",
    "summarize what was done in this conversation",
    "3-5 word title with an emoji summarizing the chat history",
    "generate 1-3 broad tags categorizing the main themes of the chat history",
    "follow-up questions or prompts that the user might naturally ask",
    "determine the necessity of generating search queries",
    "### task:\nyou are an autocompletion system",
    "your task is to reflect the speaker's likely facial expression through a fitting emoji",
    "context checkpoint compaction",
    "5-word-or-less title for the conversation",
    "generate a four to five word title summarizing our conversation",
    "使用四到五个字直接返回这句话的简要主题",
    "你是一名擅长会话的助理",
    "generate a concise 3-7 word title for this conversation",
    "reply with a title for the chat that is",
    "provide a concise description of this session in 4 words or less",
)
_KIND = re.compile(
    r"\b(?:generate|create|write|provide|give|suggest|produce|come up with|(?:reply|respond) with|return|output|make)\b"
    r"[^.\n]{0,60}?\b(?:title|headline|tags|summary|topic name|follow-?up questions)\b"
    r"[^.\n]{0,60}?\b(?:conversation|chat|thread|session|discussion|dialogue|messages?)\b"
    r"|\bsummari[sz]e (?:this|the|our) (?:\w+ ){0,2}(?:conversation|chat|thread|session|discussion|dialogue)\b"
)
_HEAD, _TAIL = 600, 300  # characters of a text in which an instruction is looked for
_SYSTEM_BLOCKS = 3  # at the front: agents put an identity line and a billing line before the instruction


def is_side_request(request: Request, turn: Turn | None, text: str) -> bool:
    """Whether this is a title, summary or similar request. `turn` is the newest user turn, `text` its words.

    An unknown client's instruction counts only where no tools are offered: an agent's main requests offer them.
    """
    if request.dialect == "embeddings":
        return False
    return _asks(_instructions(request, turn, text), offers_tools=request.tools > 0)


@lru_cache(1024)  # an agent sends the same words again with every step
def _asks(instructions: str, *, offers_tools: bool) -> bool:
    seen = instructions.lower()
    if not any(map(seen.__contains__, _HINTS)):
        return False
    return any(map(seen.__contains__, KNOWN)) or (not offers_tools and bool(_KIND.search(seen)))


def _instructions(request: Request, turn: Turn | None, text: str) -> str:
    """Where an instruction may stand: heads of the first system blocks, both ends of the user's text."""
    if len(request.turns) == 1 and turn is not None and len(turn.texts) == 1 and len(text) <= _HEAD + _TAIL:
        return text
    parts: list[str] = []
    for one in request.turns:
        if one.role not in ("system", "developer") or len(parts) >= _SYSTEM_BLOCKS:
            break
        parts += (block[:_HEAD] for block in one.texts[:_SYSTEM_BLOCKS])
    if turn is not None and len(turn.texts) > 1:
        parts += (block[:_HEAD] for block in turn.texts[-2:])
    parts.append(text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]}\n{text[-_TAIL:]}")
    return "\n\n".join(parts)

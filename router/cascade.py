"""What is made of a cascade's first answer: what it comes to, whether scouts say the same, whether it refuses, and
from what was found the verdict. Reading answers off the wire belongs to `wire.said`, asking for them to the shell.

What cannot be told is never guessed: a check passes, fails, or is unsure, and then the policy's `unsure` decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from router.config import Cascade
from router.types import Check, Checked, Decision, ToolCall

_SHORT = 60  # characters of a line that is an answer as it stands: a name, a number, a label, a short phrase
_READ = 20_000  # characters of an answer that are looked at, from its end


class Said(Struct, frozen=True, kw_only=True):
    """One whole answer, without its dialect. `refused`: by the API's own field or finish reason."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    refused: bool = False


# --- the verdict -----------------------------------------------------------------------------------------


def verdict(found: Checked, cascade: Cascade) -> Check | None:
    """The check that sends the request on to the second group, or None: the first answer will do.

    A check that fails goes before one that is unsure, and otherwise the cheaper one is named.
    """
    unsure: Check | None = None
    for check, passed in _checks(found, cascade):
        if passed is False:
            return check
        if passed is None:
            unsure = unsure or check
    return unsure if cascade.unsure == "escalate" else None


def _checks(found: Checked, cascade: Cascade) -> list[tuple[Check, bool | None]]:
    """Each check that is to be made, and whether the answer passed; None = it cannot be told."""
    want = cascade.verify
    made: list[tuple[Check, bool | None]] = []
    if want.not_empty:
        made.append(("not_empty", not found.empty))
    if want.no_refusal:
        made.append(("no_refusal", not found.refused))
    if want.valid_json:
        made.append(("valid_json", found.valid))
    if want.logprob_at_least is not None:
        made.append(("logprob_at_least", None if found.logprob is None else found.logprob >= want.logprob_at_least))
    if want.agreement_at_least is not None:
        made.append(("agreement_at_least", agrees(found, want.agreement_at_least)))
    if want.scorer is not None and want.score_below is not None:
        made.append(("score_below", None if found.score is None else found.score < want.score_below))
    return made


def agrees(found: Checked, share: float) -> bool | None:
    """Whether at least this share of the scouts agrees, whatever those would say that were not heard; else None."""
    if not found.scouts:
        return None
    if found.agreed >= share * found.scouts:
        return True
    return False if found.agreed + found.scouts - found.heard < share * found.scouts else None


def hopeless(found: Checked, cascade: Cascade) -> bool:
    """Whether the answer has failed already, so that no scout needs to be waited for."""
    return any(passed is False for _, passed in _checks(found, cascade))


def settled(found: Checked, cascade: Cascade) -> bool:
    """Whether the scouts that are still silent could not change the verdict."""
    if hopeless(found, cascade):
        return True
    share = cascade.verify.agreement_at_least
    return cascade.verify.scorer is None and (share is None or agrees(found, share) is not None)


def concluded(made: Decision, cascade: Cascade, found: Checked) -> Decision:
    """The decision of a cascade (`why` is "cascade") after its first answer."""
    check = verdict(found, cascade)
    if check is None:
        return replace(made, why="verified")
    return replace(made, why="escalated", group=cascade.then, deployment=None, then=None, check=check)


# --- what an answer comes to -----------------------------------------------------------------------------

_LETTER = re.compile(r"\(?([a-z])(?:[).:]|\)[.:])(?:\s|$)")  # "(C)", "c.", "C) Paris": the option's letter
_BOXED = re.compile(r"\\boxed\s*\{([^{}]*)\}")
# How an answer that was reasoned towards is stated, at the end: "The answer is (C).", GSM8K's "#### 42".
_STATED = re.compile(
    r"(?:\banswer\b(?:\s+is)?|\bantwort\b(?:\s+ist)?|\brespuesta\b(?:\s+es)?|\bréponse\b(?:\s+est)?|ответ|答案(?:是|为)?|####)"
    r"[ \t]*[:：]?[*_ \t]*(\S[^\n]{0,80})",
    re.IGNORECASE,
)
_AROUND = " \t\r\n*_`\"'“”«»$.,;:!。，"


def conclusion(said: Said) -> str:
    """What an answer comes to, in a form in which equal answers are equal text; "" where it is open prose.

    Tool calls and JSON are compared as values; a short answer as it stands; a longer one by the answer it states.
    """
    if said.calls:
        return " ".join(f"{call.name} {_value(call.arguments) or call.arguments.strip()}" for call in said.calls)
    text = said.text.strip()[-_READ:]
    if text[:1] in ("{", "[") and (value := _value(text)):
        return value
    if boxed := _BOXED.findall(text):
        return _bare(boxed[-1])
    if len(text) <= _SHORT and "\n" not in text:
        stated = _STATED.search(text)
        return _bare(stated[1] if stated else text)
    stated = _STATED.findall(text)
    return _bare(stated[-1]) if stated and len(stated[-1]) <= _SHORT else ""


def _bare(text: str) -> str:
    plain = " ".join(text.casefold().split()).strip(_AROUND)
    letter = _LETTER.match(plain + " ") or _LETTER.match(plain + ")")
    if letter and (len(plain) <= 3 or plain[1:2] in ").:" or plain[:1] == "("):
        return letter[1]
    number = plain.replace(",", "")
    return number if number.replace(".", "", 1).lstrip("-").isdigit() else plain


def _value(text: str) -> str:
    """JSON in one spelling, or "" where it is none."""
    try:
        return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def compared(found: Checked, first: Said, scouts: Sequence[Said | None]) -> Checked:
    """`found` with the scouts counted; None in `scouts` is one that gave no answer."""
    mine = conclusion(first)
    theirs = [conclusion(said) if said is not None else "" for said in scouts]
    heard = sum(1 for said in theirs if said) if mine else 0
    agreed = sum(1 for said in theirs if said == mine) if mine else 0
    return replace(found, scouts=len(scouts), heard=heard, agreed=agreed)


# --- refusals --------------------------------------------------------------------------------------------

_HEAD = 240  # characters: a refusal says so at once, and an answer may speak of refusing further down
_REFUSAL = re.compile(
    r"""\s*(?:
        (?:i['’]?m|i\ am|we['’]?re)\ (?:(?:very|so|really|truly|terribly)\ )?(?:sorry|afraid)\b[^.\n]{0,80}
            \b(?:can['’]?t|cannot|can\ not|won['’]?t|unable|not\ able|not\ allowed)\b
      | (?:sorry|apologies|i\ apologi[sz]e|unfortunately)\b[^.\n]{0,60}\bi(?:['’]m|\ am)?[ ]
            (?:can['’]?t|cannot|can\ not|won['’]?t|unable|not\ able)\b
      | i(?:['’]m|\ am)?\ (?:can['’]?t|cannot|can\ not|won['’]?t|unable\ to|not\ able\ to)[ ]
            (?:help|assist|answer|provide|comply|fulfill|complete|do\ that|continue|discuss|engage|create|generate|share
              |write|support|give|offer|access|open|browse)\b
      | as\ an\ (?:ai|artificial)\b[^.\n]{0,60}\bi\ (?:can['’]?t|cannot|do\ not|don['’]?t|am\ not|am\ unable)
      | (?:es\ )?tut\ mir\ (?:sehr\ )?leid\b[^.\n]{0,60}\b(?:kann|darf)\b[^.\n]{0,60}\bnicht\b
      | (?:das\ |dabei\ )?(?:kann|darf)\ ich\b[^.\n]{0,60}\bnicht\ (?:helfen|beantworten|bereitstellen|unterstützen)
      | lo\ siento\b[^.\n]{0,40}\bno\ (?:puedo|es\ posible)\b
      | no\ puedo\ (?:ayudar|responder|proporcionar|cumplir|asistir)
      | (?:je\ suis\ )?désolée?\b[^.\n]{0,40}\bje\ ne\ (?:peux|suis)\b
      | (?:извините|к\ сожалению|простите)\b[^.\n]{0,40}\bне\ (?:могу|имею)\b
      | я\ не\ (?:могу\ (?:помочь|ответить|предоставить|выполнить)|имею\ возможности)
      | (?:很?抱歉|对不起)[^。\n]{0,20}(?:无法|不能)
      | 我(?:无法|不能)(?:帮助|提供|回答|协助|满足)
      | 申し訳(?:ありません|ございません)[^\n]{0,40}(?:できません|できかねます)
    )""",
    re.IGNORECASE | re.VERBOSE,
)


def refuses(said: Said) -> bool:
    """Whether an answer declines: the API says so, or it opens with the usual words and calls no tool."""
    return said.refused or (not said.calls and _REFUSAL.match(said.text[:_HEAD]) is not None)


def empty(said: Said) -> bool:
    """Neither words nor a call; thoughts alone are no answer."""
    return not said.calls and not said.text.strip() and not said.refused

"""Clauses of a prompt that advise the router ("this is easy, use the cheap model"), so that they can be dropped.

A clause goes when it speaks of choosing models, of routing or labels, or declares its own difficulty. One that
merely contains "easy" or "model" stays. English, Russian, Spanish, German, French and Chinese.
"""

# ruff: noqa: E501  (tables of expressions)

from __future__ import annotations

import re
from functools import lru_cache


def words(text: str) -> tuple[str, ...]:
    """The words of a space-separated list, for tables that read better as text."""
    return tuple(text.split())


def _any(text: str) -> str:
    """A regular expression for any of the entries; `_` is a blank and `*` ends a prefix."""
    return "(?:" + "|".join(e.replace("_", " ").replace("*", r"\w*") for e in text.split()) + ")"


_MODEL = _any("models? llms? tiers? groups? endpoints? deployments? classifiers? routers? routes? gateway backend ai")
_WEAK = "cheap* small* tiny mini fast* weak* light* low* budget inexpensive local lite little"
_STRONG = (
    "large* big* strong* best expensive premium frontier powerful smart* top flagship high* dear* capable advanced"
)
_RANK = _any(f"{_WEAK} {_STRONG} basic")
_ROUTER = _any("router classifier scorer routing gateway pointsman dispatcher load_balancer")
_LEVEL = _any(
    "easy hard simple trivial difficult* basic straightforward low high complex* elementary challenging minimal"
)
_ASK = _any("question task request prompt query problem one message job item")
_SEND = _any(
    "use using choose pick select prefer send route forward assign direct dispatch switch escalate give needs? requires? "
    "want goes? let downgrade upgrade pass hand delegate answer handle handled process"
)
_OPENING = r"^[\s\"'*#>-]*(?:\w+ ){0,2}"

_PATTERNS: tuple[str, ...] = (
    # choosing a model
    rf"\b{_SEND}\b.{{0,40}}\b{_RANK}\b.{{0,20}}\b{_MODEL}\b",
    rf"\b{_RANK}[ -]{_MODEL}\b.{{0,30}}\b(?:is|are|will|would|can|should|must|please|only|suffices?|enough|do|instead|fine|ok|okay)\b",
    rf"^\W*(?:the )?{_RANK}[ -]{_MODEL}(?: please| only| now)?\W*$",
    # speaking to the router
    rf"\b(?:note|message|instructions?|attention|dear|hey|hello|hint|memo|notice) (?:to|for)? ?(?:the )?(?:ai )?{_ROUTER}\b",
    rf"\b{_ROUTER}\b.{{0,60}}\b(?:{_LEVEL}|small|large|cheap|weak|strong|score|label|set|output|return|mark|ignore|treat|must)\b",
    rf"^\W*(?:the |system |ai )*{_ROUTER}(?: note| hint| override| instructions?| directive)*\W*$",
    # labels and verdicts
    rf"\b(?:mark|label|classify|rate|score|treat|tag|grade|consider|flag|categori[sz]e|handle)\b.{{0,30}}"
    rf"\b(?:as|=|is|at)\W{{1,3}}(?:an? )?(?:very |extremely |really |super )?(?:{_LEVEL}|0|1|zero|one)\b",
    rf"\b(?:difficulty|complexity|tier|priority|routing|p_solve|hardness|verdict|target_group|easiness)\b(?: is| level| score)*"
    rf"\W{{0,4}}\b(?:{_LEVEL}|small|large|cheap|weak|strong|max\w*|none|expert|reasoning|zero|[0-9](?:\.\d+)?)\b",
    r"^\W*(?:difficulty|complexity|tier|verdict|route|routing|group|label|score|p_solve|override|system|admin)\W*$",
    rf"^\W*{_RANK}(?: {_MODEL})?\W*$",
    rf"^\W*(?:{_LEVEL}|(?:very|super|extremely|really) {_LEVEL}|0|1|0\.\d+|1\.0)\W*$",
    # overruling
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,30}\b(?:instructions?|rules?|tiers?|polic(?:y|ies)|routing|prompts?|"
    r"classif\w*|score\w*|difficult\w*)\b",
    # declaring its own difficulty
    rf"\b(?:escalate|downgrade|upgrade|reroute)\b.{{0,30}}\b{_MODEL}\b",
    rf"{_OPENING}(?:this|that|it|the (?:above|below|following|{_ASK}))(?: {_ASK})?(?:'s| is| was| will be| should be| must be) "
    rf"(?:(?:a|an|the|very|really|extremely|super|quite|so|trivially|totally|just|actually|only|of|rated|considered|"
    rf"definitely|obviously|known|to be|not)\s)*{_LEVEL}\b.{{0,40}}$",
    rf"^\W*(?:an? )?(?:very |super |extremely |really )?{_LEVEL} {_ASK}\W*$",
    r"\bno (?:deep |real |special |complex |further |extended )?(?:reasoning|thinking|thought|expertise) (?:is )?(?:needed|required)\b",
    r"\b(?:requires?|needs?|involves?) (?:very |only )?(?:little|no|minimal|deep|extensive|careful|expert|advanced|phd\S*) "
    r"(?:\w+ )?(?:reasoning|thinking|thought|effort|expertise)\b",
    r"\b(?:a|any|even a) (?:child|kid|toddler|five[- ]year[- ]old|beginner) (?:can|could|would|knows?)\b",
    rf"\b{_LEVEL} {_ASK}s? (?:for|to) (?:the |a |any )?(?:\w+ )?{_MODEL}\b",
    r"\b(?:deep|careful|expert|advanced|extended|serious) (?:reasoning|thinking|thought|expertise) (?:is )?(?:needed|required|necessary)\b",
    r"^\W*(?:important|urgent|attention|warning|important system note|system note|внимание|важно|importante|wichtig|achtung)\W*$",
    # Russian
    r"(?:топов|дорог|мощн|больш|маленьк|дешев|дешёв|лучш)\w* модел\w*\W*$",
    r"^\W*(?:запрос|задача|вопрос) (?:экспертн|высш|начальн|детск)\w* уровн\w*",
    rf"{_any('использу* выбер* отправ* направ* примен* нужна достаточно хватит возьми')}.{{0,30}}"
    rf"{_any('дешев* дешёв* маленьк* слаб* прост* больш* мощн* сильн* лучш* дорог* мал*')} ?(?:\w+ )?(?:модел|групп)\w*",
    r"^\W*(?:это|этот|эта|задача|вопрос)(?: (?:вопрос|задача|запрос|задание))?(?: -)?(?: (?:очень|совсем|же|просто|действительно))*"
    r" (?:лёгк|легк|прост|элементарн|тривиальн|сложн|трудн)\w*.{0,25}$",
    r"\b(?:маршрутизатор|классификатор|роутер)\w*",
    # Spanish
    rf"{_any('usa utiliza elige envía manda escoge basta usar')}.{{0,30}}(?:modelo|grupo).{{0,15}}"
    rf"{_any('barat* pequeñ* grande potente débil mejor car* simple económic*')}",
    r"^\W*(?:esto|esta|este|la|el)(?: (?:pregunta|tarea|consulta|petición|problema))? es (?:muy |realmente |bastante )*"
    r"(?:fácil|sencill\w*|simple|trivial|difícil|complej\w*).{0,25}$",
    r"\b(?:enrutador|clasificador)\b",
    # German
    rf"{_any('benutze? nutze? verwende? wähle? nimm schicke? sende? reicht')}.{{0,30}}"
    rf"{_any('billig* klein* günstig* schwach* groß* stark* best* teuer* schnell* einfach*')} ?(?:\w+ )?(?:modell|gruppe)\w*",
    r"^\W*(?:das|dies|diese|die)(?: (?:frage|aufgabe|anfrage|problem))? ist (?:sehr |wirklich |ganz |eine? )*"
    r"(?:einfach|leicht|trivial|simpel|schwer|schwierig|komplex)\w*.{0,25}$",
    # French
    rf"{_any('utilise choisis envoie prends')}.{{0,30}}(?:modèle|groupe)\b",
    r"^\W*(?:c'est|cette question est|cette tâche est) (?:très |vraiment )*(?:facile|simple|difficile|trivial\w*).{0,25}$",
    # Chinese
    r"(?:用|选择|选|发给|交给|路由到)[^。]{0,12}(?:便宜|小|大|强|弱|最好|贵|廉价|轻量)的? ?(?:模型|组)",
    r"(?:这|此)(?:是|个|道)?(?:一个|一道)?(?:问题|任务|题|请求)?(?:很|非常|十分|特别|极其|是)?"
    r"(?:简单|容易|困难|难|复杂)(?:的(?:问题|任务|题|请求))?$",
    r"路由器|分类器",
)
_ADVICE = re.compile("|".join(_PATTERNS))

# A clause without any of these cannot match; looking for them is much cheaper than the expression.
_SUSPECTS = words(
    "model rout tier classif easy hard simple trivial difficult complex basic straightforward score label priorit ignore "
    "disregard forget override bypass reasoning thinking thought elementary challenging child toddler beginner gateway "
    "pointsman p_solve verdict llm effort expertise endpoint cheap escalat premium system admin year-old backend frontier extreme important urgent attention warning внимание важно запрос wichtig achtung "
    " модел групп лёгк легк прост сложн трудн элементарн тривиальн маршрутиз "
    "классифик роутер modelo grupo fácil sencill difícil complej enrutador clasificador modell gruppe einfach leicht simpel "
    "schwer komplex modèle groupe facile difficile 模型 组 简单 容易 难 复杂 路由 分类器"
)
_CLAUSE = re.compile(r"(?<=[;:!?,。！？；：，()\[\]{}<>|\n\"])|(?=\")|(?<=[.])(?=\s|$)|(?= --? )")
_KEY = r"[\"']?(?:difficulty|complexity|tier|priority|route|routing|p_solve|hardness|verdict|label|score|group|model|class)[\"']?"
_VERDICT = re.compile(rf"[\[{{]\s*(?:{_KEY}\s*[:=]\s*[\"']?[\w.-]+[\"']?\s*,?\s*)+[\]}}]")


_PLAIN_SUSPECTS = tuple(s for s in _SUSPECTS if s.isascii())


def _suspect(text: str) -> bool:
    for suspect in _PLAIN_SUSPECTS if text.isascii() else _SUSPECTS:  # noqa: SIM110  half the time of any()
        if suspect in text:
            return True
    return False


_LONG_START = 24  # characters before the advice that make the beginning of a clause worth keeping


@lru_cache(maxsize=4096)
def advice_at(clause: str) -> int | None:
    """Where in a clause of a canonical text its advice begins; None where it holds none."""
    if not _suspect(clause):
        return None
    bare = clause.strip(" .;:!?,。！？；：，()[]{}<>|-\"'\n")
    found = _ADVICE.search(bare)
    return None if found is None else clause.index(bare) + found.start()


def drop(text: str) -> str:
    """A canonical text, lines kept apart, without its advice; as it is where there is none or nothing else is left.

    A clause that only ends in advice loses its end, so that an ending put behind a question without a full stop
    goes and the question stays.
    """
    if not _suspect(text):
        return text
    plain = _VERDICT.sub(" ", text) if ":" in text or "=" in text else text
    kept: list[str] = []
    for clause in _CLAUSE.split(plain):
        at = advice_at(clause)
        if at is None:
            kept.append(clause)
        elif at > _LONG_START:
            kept.append(clause[:at] + " ")
    left = "".join(kept)
    return left if sum(c.isalnum() for c in left) >= 2 else text

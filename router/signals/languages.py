"""A cheap guess of the language of a text: its script, and for Latin script its commonest short words.

Good enough to send, say, Japanese to a group that reads it; "" where the sample does not say.
"""

from __future__ import annotations

import re

_HEAD = 240  # characters looked at
_MOST_WORDS = 32
_VOTE = 12  # what a word says for one language; a shared word's vote is divided
_FOREIGN = re.compile(r"[^\x00-\u024f\u2000-\u206f\u20a0-\u21ff]")  # beyond Latin, punctuation, currency and arrows
_HAN = re.compile(r"[\u3400-\u9fff]")
_FENCE = re.compile(r"```.*?(?:```|$)", re.DOTALL)

# Scripts that name a language, tested in this order; a sample needs only some of the first (Japanese is mostly Han).
_SCRIPTS = (
    (re.compile(r"[\u3040-\u30ff]"), "ja"),
    (re.compile(r"[\uac00-\ud7af\u1100-\u11ff]"), "ko"),
    (_HAN, "zh"),
    (re.compile(r"[іїєґІЇЄҐ]"), "uk"),
    (re.compile(r"[\u0400-\u04ff]"), "ru"),
    (re.compile(r"[پچژگ]"), "fa"),
    (re.compile(r"[\u0600-\u06ff]"), "ar"),
    (re.compile(r"[\u0590-\u05ff]"), "he"),
    (re.compile(r"[\u0370-\u03ff]"), "el"),
    (re.compile(r"[\u0900-\u097f]"), "hi"),
    (re.compile(r"[\u0980-\u09ff]"), "bn"),
    (re.compile(r"[\u0b80-\u0bff]"), "ta"),
    (re.compile(r"[\u0e00-\u0e7f]"), "th"),
)

# Words that are common in one language and rare in the others, and those that two share (counted for both).
_COMMON = {
    "en": """the and is are was were of to for with that this what how why when where who which it you your my i me we
        please can could would should do does did have has not an be from by at about write make explain give tell""",
    "de": """der die das und ist sind nicht ein eine einen einem einer mit für auf wie was warum ich du sie wir es den
        dem des zu von bitte kann mir mein auch oder aber wenn bei nach über schreibe erkläre""",
    "es": """el la los las y es son un una unos de del que qué en con por para como cómo cuál se su mi me no lo al más
        pero o si está escribe explica quiero puedes""",
    "fr": """le la les et est sont un une des du de que qui dans en avec pour par comment pourquoi quel quelle je tu
        nous vous ce cette ne pas plus sur au aux mon ma écris explique peux""",
    "pt": """o a os as e é são um uma de do da dos das que em no na com por para como qual se seu sua meu minha não mais
        mas ou você eu está escreva explique pode""",
    "it": """il lo la gli le e è sono un una di del della dei che in con per come perché quale si suo mio non più ma o
        questo questa nel alla scrivi spiega puoi""",
    "nl": """de het een en is zijn niet van met voor op hoe wat waarom ik je jij wij u dat die dit te in aan er ook maar
        om bij kan mijn schrijf leg""",
    "pl": """i w na z do nie jest są to się że jak co dlaczego czy ja ty mój dla od po przez ale lub który która
        napisz proszę""",
    "tr": """ve bir bu için ile ne nasıl neden mi mı da de çok var yok ben sen olan olarak daha gibi kadar yaz açıkla
        lütfen""",
    "sv": """och att det är en ett som på av för med inte jag du vi hur vad varför kan den de till från om skriv""",
    "id": """yang dan di ke dari untuk dengan ini itu apa bagaimana mengapa saya kamu anda tidak adalah pada atau bisa
        tolong buat jelaskan""",
    "vi": """và là của có không cho các những một được trong với tôi bạn gì như thế nào hãy viết""",
    "cs": """a je se na v že to jak co proč jsem jsou pro ale nebo který která s z do by ne není napiš prosím""",
}


def _votes() -> dict[str, tuple[tuple[str, int], ...]]:
    """Word -> languages it speaks for, and how much of a vote each gets."""
    names: dict[str, list[str]] = {}
    for name, words in _COMMON.items():
        for word in words.split():
            names.setdefault(word, []).append(name)
    return {word: tuple((name, _VOTE // len(of)) for name in of) for word, of in names.items()}


_VOTES = _votes()


def language(text: str) -> str:
    """ISO 639-1 code of the language `text` begins in, "" where unsure. Fenced code is passed over."""
    sample = text[:_HEAD]
    if "```" in sample:
        sample = _FENCE.sub(" ", text[: 2 * _HEAD])[:_HEAD]
    if not sample.isascii():
        # A fifth: a sentence about a foreign word is not in that language; a Han sign says as much as three letters.
        foreign = "".join(_FOREIGN.findall(sample))
        if foreign and 5 * (len(foreign) + 2 * len(_HAN.findall(foreign))) > len(sample):
            return _by_script(foreign)
    return _by_words(sample.lower().replace("'", " ").split())


def _by_script(signs: str) -> str:
    for script, name in _SCRIPTS:
        if script.search(signs):
            return name
    return ""


def _by_words(words: list[str]) -> str:
    counts: dict[str, int] = {}
    for word in words[:_MOST_WORDS]:
        for name, weight in _VOTES.get(word, ()):
            counts[name] = counts.get(name, 0) + weight
    first = second = 0
    best = ""
    for name, count in counts.items():
        if count > first:
            first, second, best = count, first, name
        elif count > second:
            second = count
    # Half a vote ahead of the next at least; one whole vote in a few words, two in more.
    needed = _VOTE if len(words) < 8 else 2 * _VOTE
    return best if first >= needed and first >= second + _VOTE // 2 else ""

"""A cheap guess of the language of a text: its script, and for Latin script its commonest short words.

Good enough to send, say, Japanese to a group that reads it; "" where the sample does not say.
"""

from __future__ import annotations

import re
from functools import lru_cache

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
    "en": """the and is are was were been of to for with that this these those it its they them there he she i you your
        my me we our us what how why when where who which if then than or but so as at by from into about
        between on in a an not no any some all every only just more most need want please can could would
        should does do did have has had will be write make explain give tell show find list create add fix
        help thanks good next out up after before""",
    "de": """der die das und ist sind war nicht kein keine ein eine einen einem einer mit für auf aus wie was warum
        wann wo wer ich du er sie wir ihr es den dem des zu zum zur von vom im in am an bitte kann können
        mir mich mein meine unser auch oder aber wenn dass ob bei nach über unter noch nur man soll hat
        haben wird gibt danke schreib schreibe erkläre beweise mach""",
    "es": """el la los las lo y es son fue un una unos unas de del al que qué en con por para como cómo cuál cuándo
        dónde se su sus mi mis me te tu no más pero o si sí está hay ser sin sobre entre cuando este esta
        esto le les nos ya muy puede puedo quiero puedes escribe explica dame hazme gracias demuestra hola""",
    "fr": """le la les l d et est sont un une des du de que qu qui quoi dans en avec pour par comment pourquoi quel
        quelle je j tu il elle nous vous on ce c cette ces ça ne n pas plus sur sans sous au aux mon ma
        mes son sa ses peut se si ou où y a être fait bonjour merci écris explique peux fais""",
    "pt": """o a os as e é são foi um uma uns de do da dos das que em no na nos nas com por pra para como qual quando
        onde se sua seu meu minha não mais mas ou você vocês eu está tem ser sem sobre entre esse essa
        isso este esta ao à pode quero escreva explique me faz obrigado oi tudo bem""",
    "it": """il lo la gli i le e è sono era un una uno di del dell della dei delle che in nel nella con per come perché
        qual quale quando dove si suo mio mia non più ma o se questo questa al alla all da dal mi ti ci ho
        ha scrivi spiega puoi ciao grazie""",
    "nl": """de het een en is zijn was niet geen van met voor op in hoe wat waarom wanneer ik je jij wij u dat die dit
        te aan er ook maar om bij kan kun mijn naar uit over als of wordt heeft schrijf leg maak""",
    "pl": """i w na z ze do nie jest są to się że jak co dlaczego kiedy gdzie czy ja ty mój dla od po przez ale lub
        oraz który która mi tego napisz wyjaśnij proszę cześć""",
    "tr": """ve bir bu şu için ile ne nasıl neden nerede mi mı mu da de çok var yok ben sen biz olan olarak daha gibi
        kadar en ama yaz açıkla lütfen merhaba""",
    "sv": """och att det är en ett som på av för med inte jag du vi hur vad varför när var kan den de till från om har
        ska eller men skriv förklara hej tack""",
    "id": """yang dan di ke dari untuk dengan ini itu apa bagaimana mengapa kapan saya kamu anda tidak adalah pada atau
        bisa akan tolong buat buatkan jelaskan""",
    "vi": """và là của có không cho các những một được trong với tôi bạn gì như thế nào hãy viết giải thích""",
    "cs": """a je se na v ve že to jak co proč kdy kde jsem jsou pro ale nebo který která do by ne není mi napiš
        vysvětli prosím ahoj""",
}
# Letters that speak for a language; each kind counts once.
_LETTERS = (
    ("¿¡ñ", "es"),
    ("ß", "de"),
    ("äöü", "de"),
    ("ãõ", "pt"),
    ("œêèùûç", "fr"),
    ("łąęśżź", "pl"),
    ("ğşı", "tr"),
    ("å", "sv"),
    ("ěřů", "cs"),
    ("ơưạảấầậếềệọốồộớờợụứừự", "vi"),
)
# Every language that can be told.
LANGUAGES = tuple(sorted({*(name for _, name in _SCRIPTS), *_COMMON, *(name for _, name in _LETTERS)}))


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
    return _language(text[: 2 * _HEAD])


@lru_cache(1024)  # an agent sends the same words again with every step
def _language(head: str) -> str:
    sample = head[:_HEAD]
    if "```" in sample:
        sample = _FENCE.sub(" ", head)[:_HEAD]
    if not sample.isascii():
        # A fifth: a sentence about a foreign word is not in that language; a Han sign says as much as three letters.
        foreign = "".join(_FOREIGN.findall(sample))
        if foreign and 5 * (len(foreign) + 2 * len(_HAN.findall(foreign))) > len(sample):
            return _by_script(foreign)
    plain = (
        sample.lower()
        .replace("'s", " ")
        .replace("'", " ")
        .replace("?", " ")
        .replace(".", " ")
        .replace(",", " ")
        .replace("¿", " ")
    )
    return _by_words(plain.split(), _by_letters(sample))


def _by_letters(sample: str) -> dict[str, int]:
    if sample.isascii():
        return {}
    return {name: _VOTE // 2 for letters, name in _LETTERS if any(map(sample.__contains__, letters))}


def _by_script(signs: str) -> str:
    for script, name in _SCRIPTS:
        if script.search(signs):
            return name
    return ""


def _by_words(words: list[str], counts: dict[str, int]) -> str:
    """The language with most votes; `counts` are those already cast."""
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

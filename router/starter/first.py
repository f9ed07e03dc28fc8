"""The draft of a first configuration, from what was found. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from router.starter.choice import Choice, Pick
from router.starter.draft import Bands, Draft, Line, PolicyDraft, examples_of, slug
from router.starter.found import Model, Place

_EDIT: Final = (
    "Which model is small and which large is a guess from names and sizes. To change it, put another deployment's name",
    "into a group, then run `pointsman check` on this folder; a running gateway takes the file within 2 seconds.",
)
_SPARE: Final = 24  # so many lines of other models are help; more are noise
BANDS: Final = Bands(groups=("small", "large"), edges=(0.5,))
FALLBACK: Final = {"small": ("large",), "large": ("small",)}


def draft(choice: Choice | None) -> Draft:
    """The files for this choice; for none, those of the embedded model."""
    if choice is None:
        return _embedded()
    names: dict[tuple[str, str], str] = {}
    lines = [*_lines(choice.small, names, "small"), *_lines(choice.large, names, "large")]
    members = {
        group: tuple(names[_key(*one)] for one in pick.places)
        for group, pick in (("small", choice.small), ("large", choice.large))
    }
    lines += [
        Line(name=_name(place, model, names), keys=_keys(place, model), spare=True)
        for place, model in choice.others[:_SPARE]
    ]
    about = ["Groups and the deployments that serve them, as `pointsman init` found them.", *_EDIT, *_about(choice)]
    variables = {place.variable for pick in (choice.small, choice.large) for place, _ in pick.places if place.variable}
    return Draft(
        about=tuple(about),
        deployments=tuple(lines),
        groups=members,
        policies=(_policy(choice),),
        variables=tuple(sorted(variables)),
    )


def _embedded() -> Draft:
    about = (
        "No server and no key was found, so both groups run the shipped 270M model on this machine's processor: the",
        "routing is real, the answers are those of a toy. Start a server and run `pointsman init --force` again, or",
        "put a line such as this one in place of a deployment below:",
        '  large-local: {upstream: openai, base_url: "http://my-server:8000/v1", model: its-name, api_key: "${KEY}"}',
    )
    return Draft(
        about=about,
        deployments=tuple(Line(name=f"{group}-local", keys={"upstream": "local"}) for group in ("small", "large")),
        groups={"small": ("small-local",), "large": ("large-local",)},
        policies=(policy("easy prompts to the small group, hard ones to the large group."),),
    )


def policy(about: str, bands: Bands = BANDS, default: str = "large") -> PolicyDraft:
    """The policy behind the model name `auto`."""
    return PolicyDraft(
        name="default",
        models=("auto",),
        default=default,
        about=f"The policy behind the model name `auto`: {about}\n"
        "A lower edge than 0.5 sends more to the large group, a higher one less.",
        bands=bands,
        fallback={group: tuple(one for one in bands.groups if one != group) for group in bands.groups},
        examples=examples_of(bands, default),
    )


def _policy(choice: Choice) -> PolicyDraft:
    if choice.same:
        return policy("both groups are the same model until you add another one.")
    return policy(f"easy prompts to {choice.small.places[0][1].name}, hard ones to {choice.large.places[0][1].name}.")


def _about(choice: Choice) -> Iterator[str]:
    if choice.same:
        yield ""
        yield "Only one model was found, and it serves both groups. Routing saves something once they are two."
    if choice.large.hosted and not choice.small.hosted:
        yield ""
        yield f"What goes to `large` leaves your machines: it is sent to {choice.large.places[0][0].base_url}, which"
        yield "charges for it. To keep everything here, put a deployment of your own into `large`."


def _lines(pick: Pick, names: dict[tuple[str, str], str], group: str) -> Iterator[Line]:
    for place, model in pick.places:
        if _key(place, model) in names:
            continue  # one model serves both groups
        about = f"{group}: {pick.why}"
        if place.kind == "ollama":
            about += "; Ollama cuts prompts at its own context length, OLLAMA_CONTEXT_LENGTH sets it"
        yield Line(name=_name(place, model, names), keys=_keys(place, model), about=about)


def _key(place: Place, model: Model) -> tuple[str, str]:
    return place.base_url, model.name


def _name(place: Place, model: Model, names: dict[tuple[str, str], str]) -> str:
    """A deployment's name, new and remembered."""
    stem = model.name.rsplit("/", 1)[-1].removesuffix(".gguf")
    wanted = f"{place.kind}-{slug(stem).lower()}"
    return names.setdefault(_key(place, model), unused(wanted, list(names.values())))


def unused(wanted: str, taken: Sequence[str]) -> str:
    """The name, or with the first number behind it that makes it new."""
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name


def _keys(place: Place, model: Model) -> dict[str, Any]:
    keys: dict[str, Any] = {"upstream": "openai", "base_url": place.base_url, "model": model.name}
    if place.variable:
        keys["api_key"] = f"${{{place.variable}}}"
    if place.dialects:
        keys["dialects"] = list(place.dialects)
    return {**keys, **place.more, **model.more}

"""Which of the models that were found is the small group and which the large one. No I/O.

Local models cost nothing a request, so they are the small group where there are any; the large group is the largest
model of all. Whoever wants it otherwise edits the file, which says how.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from router.starter import sizes
from router.starter.found import Model, Place
from router.starter.places import PROVIDERS

SMALL_FROM_B: Final = 3.0  # a smaller one seldom answers well, and is taken only where nothing else is there
LARGE_FROM_B: Final = 100.0  # a local model of this size is preferred to a provider's for the large group
_VENDORS: Final = ("anthropic/", "openai/", "google/")  # of a marketplace's hundreds of models only theirs are weighed


class Pick(Struct, frozen=True, kw_only=True):
    """A model for a group, with every place that serves it, and why it was taken."""

    places: tuple[tuple[Place, Model], ...]
    why: str

    @property
    def hosted(self) -> bool:
        return self.places[0][0].hosted


class Choice(Struct, frozen=True, kw_only=True):
    """The two groups, and what else could serve. `same`: one model serves both."""

    small: Pick
    large: Pick
    others: tuple[tuple[Place, Model], ...] = ()

    @property
    def same(self) -> bool:
        return self.small.places == self.large.places


def choose(places: Sequence[Place]) -> Choice | None:
    """None where nothing can serve."""
    local = _merged([(place, model) for place in places if not place.hosted for model in place.models])
    local.sort(key=lambda one: (_size(one[0][1]), one[0][1].name))
    hosted = [pair for place in _preferred(places) if (pair := _pair(place)) is not None]
    if not local and not hosted:
        return None
    small, large = _small(local, hosted), _large(local, hosted)
    taken = {(place.base_url, model.name) for pick in (small, large) for place, model in pick.places}
    rest = [one for same in local for one in same] + [one for pair in hosted for one in pair]
    others = {(place.base_url, model.name): (place, model) for place, model in rest}
    return Choice(small=small, large=large, others=tuple(one for key, one in others.items() if key not in taken))


Same = list[tuple[Place, Model]]


def _small(local: Sequence[Same], hosted: Sequence[tuple[tuple[Place, Model], tuple[Place, Model]]]) -> Pick:
    if not local:
        return Pick(places=(hosted[0][0],), why=f"the newest small one of {hosted[0][0][0].title}")
    if len(local) == 1:
        return Pick(places=tuple(local[0]), why="the only one on your machines")
    lesser = local if hosted else local[:-1]
    enough = [same for same in lesser if _size(same[0][1]) >= SMALL_FROM_B]
    if enough:
        return Pick(places=tuple(enough[0]), why=f"the smallest on your machines from {SMALL_FROM_B:g}B up")
    return Pick(places=tuple(lesser[-1]), why="the next smaller one on your machines")


def _large(local: Sequence[Same], hosted: Sequence[tuple[tuple[Place, Model], tuple[Place, Model]]]) -> Pick:
    if hosted and (not local or _size(local[-1][0][1]) < LARGE_FROM_B):
        place, model = hosted[0][1]
        return Pick(places=((place, model),), why=f"the newest large one of {place.title}")
    why = "the largest that was found" if len(local) > 1 or hosted else "the only one that was found"
    return Pick(places=tuple(local[-1]), why=why)


def _size(model: Model) -> float:
    """Billions of parameters; where nothing tells, as large as its name sounds."""
    return model.size_b if model.size_b is not None else sizes.guess(model.name)


def _merged(served: Iterable[tuple[Place, Model]]) -> list[Same]:
    """The same model at several places is one group's several deployments."""
    by_name: dict[str, Same] = {}
    for place, model in served:
        by_name.setdefault(model.name, []).append((place, model))
    return list(by_name.values())


def _preferred(places: Sequence[Place]) -> list[Place]:
    order = list(PROVIDERS)
    return sorted((place for place in places if place.hosted and place.models), key=lambda one: order.index(one.kind))


def _pair(place: Place) -> tuple[tuple[Place, Model], tuple[Place, Model]] | None:
    """A provider's small model and its large one: of each size the newest."""
    models = list(place.models)
    for vendor in _VENDORS if place.kind == "openrouter" else ():
        if mine := [model for model in models if model.name.startswith(vendor)]:
            models = mine
            break
    if not models:
        return None
    if 2 * sum(model.size_b is not None for model in models) >= len(models):
        by_size = sorted(models, key=_size)
        small = next((model for model in by_size if _size(model) >= SMALL_FROM_B), by_size[0])
        return (place, small), (place, by_size[-1])
    ranked = [(sizes.rank(model.name), model) for model in models]
    least, most = min(number for number, _ in ranked), max(number for number, _ in ranked)
    return (place, _newest(ranked, least)), (place, _newest(ranked, most))


def _newest(ranked: Iterable[tuple[int, Model]], wanted: int) -> Model:
    fit = [model for number, model in ranked if number == wanted]
    return max(fit, key=lambda model: (sizes.newness(model.name), model.created, -len(model.name)))

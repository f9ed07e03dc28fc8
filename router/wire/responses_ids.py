"""One id for each output item of a response, whatever its server calls it from event to event (R01)."""

from __future__ import annotations

from typing import Any

from router.wire.loose import count, mapping, objects, text


class Ids:
    """The ids of one stream's items: the first that each was given stays. `wrong`: another came, so that every event
    has to be looked at."""

    __slots__ = ("_ids", "wrong")

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}  # by output index
        self.wrong = False

    def mend(self, event: dict[str, Any]) -> bool:
        """Gives the items that an event tells of their ids, in place; whether one had another."""
        at = count(event.get("output_index"))
        mended = False
        if at is not None:
            item = mapping(event.get("item"))
            mended = self._one(at, item, "id") or self._one(at, event, "item_id")
            self.wrong = self.wrong or mended
        elif len(items := objects(mapping(event.get("response")).get("output"))) == len(self._ids):
            for at, item in enumerate(items):
                mended = self._one(at, item, "id") or mended
        return mended

    def _one(self, at: int, holder: dict[str, Any], field: str) -> bool:
        given = text(holder.get(field))
        if not given or (known := self._ids.setdefault(at, given)) == given:
            return False
        holder[field] = known
        return True

"""One YAML file's bytes become plain data and the place of every key in it.

Only the YAML 1.2 core schema is read: mappings with text keys, lists, text, numbers, booleans and null. So
`no` is a word and not false, `1:30` is text and not ninety, and no tag can build an object. What a file may
not hold is refused here, with its place: repeated keys, foreign tags, aliases by the dozen, a second
document, more than `MAX_BYTES`. What the keys mean is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from router.errors import Mistake
from router.policy_files.variables import BadVariable, Variables

Path = tuple[str | int, ...]

MAX_BYTES = 1_000_000
MAX_DEPTH = 40  # a policy nests about eight deep
MAX_ALIASES = 64  # an alias bomb of ten levels by nine needs 90; sharing timeouts among deployments needs a few
MAX_NODES = 100_000  # after aliases are written out; a file of MAX_BYTES with sensible keys stays below

_CORE_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")}
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# 18 digits stay within 64 bits; longer runs of digits are identifiers, so they stay text.
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,40}|[0-9]{1,40}(\.[0-9]{0,40})?)([eE][-+]?[0-9]{1,3})?|[-+]?\.(inf|Inf|INF)")
_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # YAML 1.2, 5.1
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PARSE: Callable[..., Iterator[yaml.Event]] = cast("Any", yaml).parse  # its stub is untyped


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One file as data, with the place of every key (or list item) and of every value."""

    file: str
    data: dict[str, Any]
    keys: Mapping[Path, Place]
    values: Mapping[Path, Place]
    raw: Mapping[Path, str] = field(default_factory=dict[Path, str])  # the text of scalars that held a ${NAME}

    def mistake(self, path: Path, message: str, *, at_key: bool = False) -> Mistake:
        """A mistake at a key or its value; a path that the file does not hold is placed at its nearest parent."""
        known = path
        while known and known not in self.values:
            known = known[:-1]
        places = self.keys if at_key or known != path else self.values
        place = places.get(known) or self.values.get(known) or Place(1, 1)
        return Mistake(file=self.file, line=place.line, column=place.column, path=dotted(path), message=message)

    def shown(self, path: Path, value: object) -> str:
        """The value as it stands in the file: an expanded ${NAME} is never shown."""
        return self.raw.get(path, str(value))


def dotted(path: Path) -> str:
    """`routes[2].score.bands[0].below`; the whole file is `(file)`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".") or "(file)"


def resolve(text: str) -> Any:
    """What an unquoted scalar means in YAML 1.2's core schema."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf"))
    return text


def read(
    file: str, content: bytes, variables: Variables, free_form: Callable[[Path], bool]
) -> tuple[Document | None, list[Mistake]]:
    """The document in a file, or None when it cannot be read at all; and what is wrong with it.

    An expanded `${NAME}` is text, except unquoted at a `free_form` path, where it is resolved like any scalar.
    """
    if len(content) > MAX_BYTES:
        return None, [_whole(file, f"the file is larger than {MAX_BYTES:,} bytes")]
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _place_of(content[: error.start].decode("utf-8", "replace"))
        return None, [_at(file, place, (), "the file is not UTF-8 text here; save it as UTF-8")]
    if control := _CONTROL.search(text):
        place = _place_of(text[: control.start()])
        return None, [_at(file, place, (), f"the control character U+{ord(control[0]):04X} cannot stand in YAML")]
    try:
        events = _events(text)
    except yaml.MarkedYAMLError as error:
        return None, [_at(file, *_unreadable(text, error))]
    except _Refused as refused:
        return None, [_at(file, refused.place, (), refused.message)]
    return _Composer(file, events, variables, free_form).document()


class _Refused(Exception):
    """The file cannot be read further."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place
        self.message = message


# What libyaml says, in an operator's words; `{line}` is where that began which the parser could not end.
_PLAINLY = {
    "found character that cannot start any token": "no value begins so; put the value in quotes",
    "did not find expected '-' indicator": "this line is not indented like the list that begins on line {line}",
    "did not find expected key": "this line is not indented like the keys that begin on line {line}",
    "mapping values are not allowed in this context": "a second ': ' on one line, or an indentation too deep",
    "could not find expected ':'": "this line is no key with a value; after a key stand ':' and a space",
    "did not find expected ',' or '}'": "the { of line {line} is not closed, or a comma or quotes are missing in it",
    "did not find expected ',' or ']'": "the [ of line {line} is not closed, or a comma is missing in it",
    "found unexpected end of stream": "the quotes of line {line} are not closed",
}

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what the parser counts as the end of a line


def _unreadable(text: str, error: yaml.MarkedYAMLError) -> tuple[Place, Path, str]:
    """Where the parser gave up and why, for `_at`."""
    mark = error.problem_mark or error.context_mark
    began = error.context_mark.line + 1 if error.context_mark else 0
    if mark is None:
        return Place(1, 1), (), f"this is not valid YAML: {error.problem}"
    place, problem = Place(mark.line + 1, mark.column + 1), str(error.problem)
    here = [*_BREAK.split(text), ""][mark.line]
    if problem == "could not find expected ':'" and error.context_mark:
        place = Place(began, error.context_mark.column + 1)
    if here[: mark.column + 1].strip(" -") == "\t":
        said = "a tab stands here; YAML is indented with spaces"
    elif "${" in here[: mark.column + 2] and problem.endswith("or '}'"):
        said = 'inside { } a variable stands in quotes: "${NAME}"'
    else:
        said = _PLAINLY.get(problem, problem).replace("{line}", str(began))
    return place, (), f"this is not valid YAML: {said}"


def _events(text: str) -> list[yaml.Event]:
    """The parser's events of the only document; an early stop for what is too large or too clever."""
    events: list[yaml.Event] = []
    documents = aliases = depth = 0
    for event in _PARSE(text, Loader=_LOADER):
        documents += isinstance(event, yaml.DocumentStartEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if documents > 1:
            raise _Refused(_start(event), "a second document starts here; a file holds one, so remove the ---")
        if aliases > MAX_ALIASES:
            raise _Refused(_start(event), f"more than {MAX_ALIASES} aliases; write the values out")
        if depth > MAX_DEPTH:
            raise _Refused(_start(event), f"nested more than {MAX_DEPTH} deep")
        if len(events) > MAX_NODES:
            raise _Refused(_start(event), f"more than {MAX_NODES:,} values in one file")
        if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            events.append(event)
    return events


class _Composer:
    """Turns events into data. An alias replays the events of its anchor, so its cost is counted."""

    def __init__(
        self, file: str, events: list[yaml.Event], variables: Variables, free_form: Callable[[Path], bool]
    ) -> None:
        self.free_form = free_form
        self.file = file
        self.events = events
        self.variables = variables
        self.keys: dict[Path, Place] = {}
        self.values: dict[Path, Place] = {}
        self.raw: dict[Path, str] = {}
        self.mistakes: list[Mistake] = []
        self.anchors: dict[str, int] = {}
        self.open: set[str] = set()  # anchors whose node is being composed
        self.nodes = 0

    def document(self) -> tuple[Document | None, list[Mistake]]:
        if not self.events or _is_empty(self.events[0]):
            return None, [_whole(self.file, "the file is empty")]
        if not isinstance(self.events[0], yaml.MappingStartEvent):
            return None, [_at(self.file, _start(self.events[0]), (), "the file must be a mapping of keys to values")]
        try:
            data, _ = self.compose(0, ())
        except _Refused as refused:
            return None, [*self.mistakes, _at(self.file, refused.place, (), refused.message)]
        document = Document(file=self.file, data=data, keys=self.keys, values=self.values, raw=self.raw)
        return document, self.mistakes

    def compose(self, index: int, path: Path) -> tuple[Any, int]:
        """The value that starts at an event, and the index behind it."""
        event = self.events[index]
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _Refused(_start(event), f"aliases make more than {MAX_NODES:,} values of this file; write them out")
        self.values.setdefault(path, _start(event))
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, path), index + 1
        assert isinstance(event, yaml.NodeEvent)  # noqa: S101 - `_events` keeps nothing else that can start a value
        self.check_tag(event, path)
        anchor: str | None = event.anchor
        if anchor is not None:
            self.anchors[anchor] = index
            self.open.add(anchor)
        if isinstance(event, yaml.MappingStartEvent):
            result = self.mapping(index, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            result = self.sequence(index, path)
        else:
            assert isinstance(event, yaml.ScalarEvent)  # noqa: S101
            result = self.scalar(event, path), index + 1
        self.open.discard(anchor or "")
        return result

    def alias(self, event: yaml.AliasEvent, path: Path) -> Any:
        name: str = event.anchor or ""
        if name in self.open:
            raise _Refused(_start(event), f"the alias *{name} stands inside what it names")
        if name not in self.anchors:
            raise _Refused(_start(event), f"the alias *{name} names nothing above it")
        return self.compose(self.anchors[name], path)[0]

    def mapping(self, index: int, path: Path) -> tuple[dict[str, Any], int]:
        data: dict[str, Any] = {}
        index += 1
        while not isinstance(self.events[index], yaml.MappingEndEvent):
            event = self.events[index]
            if not isinstance(event, yaml.ScalarEvent) or not event.value:
                self.add(event, path, "a key must be a plain word")
                _, index = self.compose(index, (*path, "?"))
                _, index = self.compose(index, (*path, "?"))
                continue
            key = str(event.value)
            here = (*path, key)
            if key in data:
                first = self.keys[here].line
                self.add(event, here, f"the key '{key}' stands here again; it is already on line {first}, remove one")
                here = (*path, f"{key} (again)")
            elif key == "<<":
                self.add(event, here, "merge keys (<<) are not read; write the values out")
            self.keys.setdefault(here, _start(event))
            value, index = self.compose(index + 1, here)
            if key != "<<":
                data.setdefault(key, value)
        return data, index + 1

    def sequence(self, index: int, path: Path) -> tuple[list[Any], int]:
        items: list[Any] = []
        index += 1
        while not isinstance(self.events[index], yaml.SequenceEndEvent):
            here = (*path, len(items))
            self.keys.setdefault(here, _start(self.events[index]))
            item, index = self.compose(index, here)
            items.append(item)
        return items, index + 1

    def scalar(self, event: yaml.ScalarEvent, path: Path) -> Any:
        text = str(event.value)
        plain = event.implicit[0] and event.tag is None
        if "$" in text:
            try:
                expanded = self.variables.expand(text)
            except BadVariable as bad:
                self.add(event, path, str(bad))
                return text
            if expanded != text:
                self.raw[path] = text
                return resolve(expanded) if plain and self.free_form(path) else expanded
        if plain:
            return resolve(text)
        if event.tag is not None and event.tag in _CORE_TAGS and not event.tag.endswith(":str"):
            return resolve(text)
        return text

    def check_tag(self, event: yaml.NodeEvent, path: Path) -> None:
        tag: str | None = getattr(event, "tag", None)
        if tag not in (None, "!") and tag not in _CORE_TAGS:
            self.add(event, path, f"the tag {tag.replace('tag:yaml.org,2002:', '!!')} is not allowed; remove it")

    def add(self, event: yaml.Event, path: Path, message: str) -> None:
        self.mistakes.append(_at(self.file, _start(event), path, message))


def _is_empty(event: yaml.Event) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.implicit[0] and event.value in _NULL


def _start(event: yaml.Event) -> Place:
    mark = event.start_mark
    return Place(mark.line + 1, mark.column + 1)


def _place_of(before: str) -> Place:
    return Place(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _whole(file: str, message: str) -> Mistake:
    return _at(file, Place(1, 1), (), message)


def _at(file: str, place: Place, path: Path, message: str) -> Mistake:
    return Mistake(file=file, line=place.line, column=place.column, path=dotted(path), message=message)

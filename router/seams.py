"""The protocols behind which I/O lives: codec, scorer, upstream, store, limiter, recorder.

Each has as few methods as it can. The variants of each kind stand in one written-out table (`CODECS`,
`SCORERS`, `UPSTREAMS`); `docs/extending.md` says how to add one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from router.config import Deployment
from router.errors import PointsmanError
from router.types import Abstain, Dialect, Prompt, Record, Request, Score, Session, Usage


class Meter(Protocol):
    """Listens to one streamed answer in its own dialect and says what may be sent on.

    `feed` takes the upstream's bytes in any chunking and returns whole events, byte-equal and in order; the
    tail of an unfinished event is held back. `close` is called at the end of the upstream's bytes and
    returns what completes the stream, or raises `Truncated` when the answer did not finish.
    """

    content: bool  # a non-empty delta (text, reasoning or tool call) has been seen
    done: bool  # the terminal event has been seen; nothing may follow
    deltas: int  # events that carried content
    usage: Usage | None  # as the upstream reported it
    failed: PointsmanError | None  # the upstream reported an error after content; `done` is True, end with error_event

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...

    def fail(self, error: PointsmanError, request_id: str) -> bytes:
        """The one event that ends the stream after a failure; it continues the ids and numbers already sent."""
        ...


class Codec(Protocol):
    """One dialect's reading and writing; pure."""

    dialect: Dialect

    def decode(self, body: bytes) -> Request: ...

    def meter(self, request: Request, *, asked_usage: bool = False) -> Meter:
        """`asked_usage`: the gateway asked for usage in the stream on its own account, so the client that did not
        ask is not shown it. Otherwise what the upstream sends is passed on."""
        ...

    def usage(self, answer: bytes) -> Usage | None: ...

    def mended(self, answer: bytes) -> bytes:
        """A buffered answer as it goes to the client: as it came, but that an answer with tool calls which merely
        "stopped" says that the tools shall be run. The meter does the same in a stream. Raises `UpstreamStatus`
        where an error came with status 200."""
        ...

    def error(self, error: PointsmanError, request_id: str) -> bytes: ...

    def error_event(self, error: PointsmanError, request_id: str) -> bytes: ...


class Scorer(Protocol):
    """Estimates difficulty. Returns at once where it takes well under a millisecond, else an awaitable."""

    name: str

    def score(self, prompt: Prompt) -> Score | Abstain | Awaitable[Score | Abstain]: ...

    async def aclose(self) -> None: ...


class Call(Struct, frozen=True, gc=False):
    """One HTTP call to an upstream, ready to send. With `pieces` these are the body, and no copies of it; only the
    `openai` upstream is given them."""

    path: str  # below base_url: "/chat/completions"
    body: bytes
    headers: Mapping[str, str] = {}  # extra, allow-listed, lower-case
    stream: bool = False
    pieces: Sequence[bytes | memoryview] = ()


class Reply(Protocol):
    """An upstream's answer whose head has arrived."""

    status: int
    headers: Mapping[str, str]  # lower-case names

    @property
    def ended(self) -> bool:
        """All of it was read, so that `read` need not be asked; False where only `read` knows."""
        ...

    def whole(self) -> bytes | None:
        """All of it, where that is here already and none was read; None where `read` has to be asked."""
        ...

    async def read(self) -> bytes:
        """The bytes that have arrived since, at least one; b"" at the end. Raises from `errors`."""
        ...

    def pour(self, take: Callable[[bytes], bool]) -> Coroutine[Any, Any, None] | None:
        """Hands what comes to `take` as it comes, until that returns False, or there is what only `read` tells:
        the end, a failure. None where there is something to read already, or `read` is all there is. What `take`
        raises is raised."""
        ...

    async def aclose(self) -> None:
        """Release the connection: back to the pool when the answer was read to its end. Idempotent."""
        ...


class Upstream(Protocol):
    """Opens calls to one deployment. Cancelling `open` or `Reply.read` closes the connection."""

    deployment: Deployment

    async def start(self) -> None: ...

    async def wait_ready(self, timeout_s: float) -> None:
        """Until calls can be answered, where that takes a while. Raises CannotStart."""
        ...

    def open(self, call: Call) -> Coroutine[Any, Any, Reply]: ...

    async def aclose(self) -> None: ...


class Presence(Struct, frozen=True, kw_only=True):
    """What one gateway process tells the others that share its store, several times a second."""

    replica: str
    digest: str  # of the configuration in force
    generation: int
    in_flight: Mapping[str, int] = {}  # by deployment; counts as long as the replica is heard of
    cooling: Mapping[str, float] = {}  # deployment -> seconds left
    limited: tuple[str, ...] = ()  # those of `cooling` that asked for it


class Others(Struct, frozen=True, kw_only=True):
    """What the others told, together."""

    told: tuple[Presence, ...] = ()
    in_flight: Mapping[str, int] = {}  # sums
    cooling: Mapping[str, float] = {}  # the longest
    limited: frozenset[str] = frozenset()


class Wish(Struct, frozen=True, kw_only=True, gc=False):
    """The places in a group with a limit that a process wants, and those that it has, which may all be in use."""

    group: str
    limit: int
    wants: int
    has: int


class Store(Protocol):
    """What requests of one conversation, and the replicas of a gateway, share."""

    @property
    def errors(self) -> int:
        """Calls that failed since the start."""
        ...

    async def session(self, *ids: str) -> Session | None:
        """The first that is known of several ids for one conversation. Raises ConnectionError."""
        ...

    async def sessions(self, *ids: str) -> Sequence[Session | None]:
        """What is known of each. Raises ConnectionError."""
        ...

    def touch(self, session: Session, ttl_s: float) -> None:
        """Never waits; others may hear of it a little later."""
        ...

    async def meet(self, mine: Presence) -> Others | None:
        """Tell the others, and hear of them; None where nothing is shared. Raises ConnectionError."""
        ...

    async def share(self, replica: str, wishes: Sequence[Wish]) -> Mapping[str, int]:
        """The places in each group that a replica which has met the others may use from now on, until it asks again.
        Raises ConnectionError."""
        ...

    async def aclose(self) -> None: ...


class Claim(Struct, frozen=True, kw_only=True, gc=False):
    """What one request wants of one limit.

    `rate`: `limit` every `period_s`, refilled evenly, all of it at once at most (GCRA). `sum`: `limit` in all under
    this key, which is forgotten `period_s` after its first use. `slots`: `limit` at the same time; one that is not
    given back is free again `period_s` after it was taken.
    """

    key: str
    kind: Literal["rate", "sum", "slots"]
    limit: float
    period_s: float
    amount: float = 1.0  # 0: only ask whether anything is left
    optional: bool = False  # where it is short, the others are taken all the same


class Limiter(Protocol):
    """Counts what callers use. Answers at once where it counts in memory, else with an awaitable.

    What it cannot reach raises `ConnectionError`: the request goes on uncounted. Every key has one kind.
    """

    @property
    def errors(self) -> int:
        """Calls that failed since the start."""
        ...

    def take(self, claims: Sequence[Claim], holder: str) -> Sequence[float | None] | Awaitable[Sequence[float | None]]:
        """Takes all claims, or none of them where one that is not optional is short; one step for every observer.

        For each claim None where it can be had, else the seconds until it may be: of a `sum` its key's remaining
        life, of `slots` 0.0, which stands for unknown. A `rate` claim larger than its limit is had when nothing of
        the limit is used, and later ones wait for it. `holder` is the request's id: whose slot it is.
        """
        ...

    def settle(self, claims: Sequence[Claim], holder: str) -> Awaitable[None] | None:
        """Adds `amount` to each, whatever that comes to: a negative one gives back. `slots` frees the holder's."""
        ...

    async def aclose(self) -> None: ...


class Recorder(Protocol):
    """Takes records without blocking; what it cannot keep it counts."""

    def write(self, record: Record, /) -> None: ...

    async def aclose(self) -> None: ...

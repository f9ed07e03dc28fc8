"""What one request produces on its way, and nothing that acts on it: Request, Signals, Score, Decision, Plan, Record.

msgspec structs, because they are built on the hot path; frozen: change one with `msgspec.structs.replace`. Name the
fields. Only where every request passes are they given by place, in the structs that allow it, as a name costs a search.
What every record holds is stored without the members that have their default (`record.whole` adds them): a default of
these structs never changes.
What the operator writes stands in `router.config`. Durations end in `_s`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

Dialect = Literal["chat", "messages", "responses", "completions", "embeddings"]


# --- the request -----------------------------------------------------------------------------------------


class ToolCall(Struct, frozen=True, kw_only=True, gc=False):
    """A call the model made. `arguments` is the JSON text as it stood in the conversation."""

    name: str
    arguments: str = ""


class ToolResult(Struct, frozen=True, kw_only=True, gc=False):
    """What a tool answered. `error` is the caller's own flag, or None where the dialect has none."""

    text: str = ""
    error: bool | None = None


class Turn(Struct, frozen=True, kw_only=True, gc=False):
    """One message of the conversation, as far as signals need it; never used to rebuild a body."""

    role: str  # system | developer | user | assistant | tool
    texts: tuple[str, ...] = ()  # text blocks in order
    images: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()


class Facts(Struct, gc=False):
    """What signals need of one turn, whatever follows it."""

    size: int  # bytes of its texts, calls and results
    spoken: bool  # it is a user turn
    failed: int = -1  # its tool results that failed; -1 = not looked at


class Noted(Struct, gc=False):
    """What was found out about the beginning of a conversation, which stays so in the next request of it.

    The only value here that changes: who finds something out adds it. All of it can be found again from the request.
    """

    facts: list[Facts] = []  # of the first turns
    prefixes: dict[int, str] = {}  # `signals.prefix`, by how many turns are in it
    tokens: list[tuple[int, str]] | None = (
        None  # `origins.tokens`, and where each ends in the body; None = not looked for
    )
    unread: tuple[int, int] = (0, 0)  # bytes of the body that were not searched for them

    def up_to(self, turns: int, at: int, end: tuple[int, int]) -> Noted:
        """What holds of a body that is the same up to `at`, which makes so many turns, and from `end` on: where that
        begins in the old body, and in the new one."""
        old, new = end
        tokens = self.tokens if self.unread[0] >= self.unread[1] else None
        if tokens is not None:
            moved = [(to + new - old, token) for to, token in tokens if to > old]
            tokens = [found for found in tokens if found[0] <= at] + moved
        prefixes = {count: digest for count, digest in self.prefixes.items() if count <= turns}
        return Noted(facts=self.facts[:turns], prefixes=prefixes, tokens=tokens, unread=(at, new))


class Request(Struct, frozen=True, gc=False):
    """What a codec reads out of one body. `body` stays the truth; the rest is a view of it."""

    dialect: Dialect
    body: bytes
    model: str  # the name the client asked for
    model_span: tuple[int, int]  # byte offsets in `body` of the JSON value of "model"
    stream: bool = False
    include_usage: bool = False  # the client asked for usage in the stream
    stream_options_span: tuple[int, int] | None = None  # byte offsets of the value of "stream_options"
    turns: tuple[Turn, ...] = ()
    tools: int = 0  # number of tools offered
    wants_json: bool = False
    max_output_tokens: int | None = None
    user: str | None = None  # the dialect's own user / session id in the body, for affinity only
    previous: str | None = None  # responses: id of the answer or conversation that this continues (R05)
    foreign_thoughts: bool = False  # messages: holds thinking that Anthropic's API did not sign and would refuse
    noted: Noted | None = None  # of a body that is kept for the next one of its conversation


class Caller(Struct, frozen=True, gc=False):
    """Who asks and from where: what the HTTP layer knows beside the body."""

    id: str  # the request id
    tenant: str = ""
    key: str = ""  # the name of the key, never the key
    session: str | None = None  # conversation id from a header, or None
    headers: Mapping[str, str] = {}  # lower-case names


class Session(Struct, frozen=True, gc=False):
    """What the store remembers of a conversation."""

    id: str
    group: str | None = None  # pinned group
    deployment: str | None = None  # deployment that holds its KV cache
    route: str | None = None  # route that pinned it
    # State in the request that this deployment made: signed thoughts, encrypted reasoning, or an answer that it keeps.
    holds: Literal["", "thoughts", "reasoning", "answer"] = ""
    mixed: bool = False  # state of other deployments stands beside it in the conversation


class Signals(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Facts computed from a request and its conversation without calling a model.

    Every field is a key that `when:` accepts in a policy.
    """

    input_tokens: int = 0  # estimate of the whole prompt
    prompt_chars: int = 0  # length of the last real user text
    turns: int = 0  # user turns so far, this one included; tool results are not turns
    tools: int = 0  # tools offered
    # The next six look at the newest stretch of tool use: since the last user turn in a tool loop, and since
    # the user turn before this one at a user turn, so that "it kept failing" is still known when the user answers.
    tool_calls: int = 0  # calls made
    tool_errors: int = 0  # failed tool results
    repeated_calls: int = 0  # longest run of the same call with the same arguments
    spinning: int = 0  # newest calls that only go round: repetitions of one, two or three calls before them
    phase: str = ""  # explore (the newest calls read and search), produce (they change things), "" = no tool use
    context_growth: int = 0  # tokens (estimated) that answers and tool results added to the prompt
    tool_loop: bool = False  # the newest message is a tool result
    side_request: bool = False  # title, summary or the like, beside the conversation
    has_images: bool = False
    wants_json: bool = False
    stream: bool = False
    max_output_tokens: int = 0  # 0 = not given
    code_share: float = 0.0  # share of the last user text that looks like code
    language: str = ""  # ISO 639-1 guess for the last user text, "" = unknown
    model: str = ""
    dialect: str = "chat"
    tenant: str = ""
    key: str = ""
    hour: int = 0  # local hour of day, 0..23
    weekday: int = 0  # Monday is 0
    headers: Mapping[str, str] = {}  # only the headers that some policy names


class Prompt(Struct, frozen=True, gc=False):
    """What a scorer sees: the last real user text and the signals; in a cascade what was answered, too."""

    text: str
    signals: Signals
    answer: str = ""  # what the first answer comes to, as bare text; "" = nothing that can be compared
    scouts: tuple[str, ...] | None = None  # the same of each scout; None = there is no answer yet


# --- the decision ----------------------------------------------------------------------------------------


class Score(Struct, frozen=True, kw_only=True, gc=False):
    """Calibrated probability in [0, 1] that the cheap group's answer would not do."""

    scorer: str
    value: float


class Abstain(Struct, frozen=True, kw_only=True, gc=False):
    """A scorer could not say. `reason` is from a closed set: it becomes a metric label."""

    scorer: str
    reason: Literal["timeout", "error", "unsure", "breaker", "overload", "missing", "empty"]


class NeedScore(Struct, frozen=True, kw_only=True, gc=False):
    """`decide` cannot go on without this scorer's answer."""

    scorer: str


class Checked(Struct, frozen=True, kw_only=True, gc=False):
    """What was found of a cascade's first answer. None: it could not be told, or was not looked at."""

    empty: bool = False
    refused: bool = False
    valid: bool | None = True  # the JSON asked for, or the arguments of its tool calls; True where there is neither
    logprob: float | None = None  # mean log-probability of its tokens
    scouts: int = 0  # asked
    heard: int = 0  # those whose answer can be compared with it
    agreed: int = 0  # those that said the same
    score: float | None = None  # chance that it will not do


Check = Literal["not_empty", "no_refusal", "valid_json", "logprob_at_least", "agreement_at_least", "score_below"]

# A cascade is decided twice: "cascade" before its first answer, "verified" or "escalated" by what was found of it.
Why = Literal["signal", "score", "explore", "default", "abstain", "pin", "asked", "cascade", "verified", "escalated"]


class Cut(Struct, frozen=True, kw_only=True, gc=False):
    """The threshold in force on one route, where it is not the one that the operator wrote."""

    base: float  # the `below` in the file that it stands for; a cut made for another one is void
    at: float  # where the target has moved it


class Decision(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where a request goes, and why. `set` are request fields that the route or band overrides."""

    policy: str
    route: str  # a route's name, or "default", "pin", "asked"
    group: str
    why: Why
    scorer: str | None = None
    score: float | None = None
    threshold: float | None = None  # upper edge of the band taken, or lower edge of the last band
    cut: Cut | None = None  # why `threshold` is not the one in the file
    set: Mapping[str, Any] = {}
    deployment: str | None = None  # preferred deployment (a pin, or the client asked for it)
    only: bool = False  # no other deployment may serve: the client named it
    within: tuple[str, ...] = ()  # no other group may serve: the route's `stay`; empty = any that the policy allows
    propensity: float = 1.0  # the chance that this group had, where the policy explores
    other: str | None = None  # the group that had the rest of the chance
    then: str | None = None  # a cascade's second group
    check: Check | None = None  # escalated: the check that failed, or could not tell


class Report(Struct, frozen=True, kw_only=True, gc=False):
    """How busy one deployment is beyond what `in_flight` tells; None = it does not say, or nothing is known."""

    running: float | None = None  # requests that it works on, anybody's
    waiting: float | None = None  # requests that wait inside it
    kv: float | None = None  # share of its KV cache in use
    elsewhere: float = 0.0  # of those running and waiting, the ones that came through no gateway of ours
    ttft_s: float | None = None  # moving mean of the streams served lately


class Load(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is known at one moment of deployments, and of thresholds; `now` is monotonic seconds."""

    now: float = 0.0
    in_flight: Mapping[str, int] = {}
    cooling: Mapping[str, float] = {}  # deployment -> monotonic time until which it should not be tried
    limited: frozenset[str] = frozenset()  # those of `cooling` that asked for it (429), not those that failed
    probing: Mapping[str, float] = {}  # failed, and being tried with one request -> when another may be sent
    reports: Mapping[str, Report] = {}  # as of the last second; only deployments of which something is known
    cuts: Mapping[str, Cut] = {}  # by route of the policy that decides; only those that moved
    prefix: str = ""  # digest of what a cache may hold of the conversation; "" = nothing, or it is known who holds it
    spent: Mapping[str, float] = {}  # groups of which the caller's quota is used up -> seconds until there is another


class Target(Struct, frozen=True, kw_only=True, gc=False):
    """One stop of a plan."""

    deployment: str
    group: str


class Plan(Struct, frozen=True, gc=False):
    """Targets in the order to try. `refused` explains the deployments left out: (name, reason)."""

    targets: tuple[Target, ...]
    refused: tuple[tuple[str, str], ...] = ()
    retry_after_s: float | None = None  # set when everything is cooling: seconds until the soonest


class Attempt(Struct, frozen=True, gc=False, omit_defaults=True):
    """One call to one deployment. `error` is None, or a code from `errors`."""

    deployment: str
    group: str
    status: int | None = None
    error: str | None = None
    ttft_s: float | None = None
    # In a cascade, where several calls of one request are paid for:
    scout: bool = False  # asked for comparison alone
    usage: Usage | None = None
    cost: float | None = None  # US dollars


# --- the answer ------------------------------------------------------------------------------------------


class Usage(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Tokens. `input` includes `cached`; `output` includes `reasoning`; `estimated` = counted by us."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False


class Timing(Struct, frozen=True, gc=False, omit_defaults=True):
    """Seconds. `overhead_s` is what the gateway itself added before the first byte."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    total_s: float = 0.0
    overhead_s: float = 0.0


class Shadow(Struct, frozen=True, kw_only=True):
    """What another policy would have decided; nothing came of it."""

    policy: str
    route: str
    group: str


Outcome = Literal["ok", "client_error", "upstream_error", "upstream_truncated", "timeout", "cancelled", "refused"]


class Record(Struct, frozen=True, gc=False, omit_defaults=True):
    """Everything remembered of one request, written once. No credential, and no prompt text unless the policy asks.

    Not keyword-only, for `record.build` alone: a call with more than fifteen keywords goes through a dictionary.
    """

    id: str
    time: float  # Unix seconds
    policy: str
    digest: str  # of the configuration in force
    dialect: str
    model: str  # the name asked for; "other" where no policy knows it
    stream: bool
    signals: Signals | None
    scores: Mapping[str, Score | Abstain] = {}
    decision: Decision | None = None
    attempts: tuple[Attempt, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None  # US dollars; None where no price is known
    cost_large: float | None = None  # the same tokens at the policy's dearest group's price
    timing: Timing = Timing()
    outcome: Outcome = "ok"
    partial: bool = False  # the answer was cut short
    session: str | None = None  # digest of the conversation id
    draw: float = 0.0  # the chance used by the plan
    pinned: Session | None = None  # the session that `decide` saw
    load: Load | None = None  # the load that `plan` saw, for the deployments considered
    checked: Checked | None = None  # what was found of a cascade's first answer
    prompt: str | None = None  # the user's words, where the policy says `record_prompts`
    shadow: Shadow | None = None

"""The values of the router, and nothing that acts on them.

What one request produces on its way (Request, Signals, Score, Decision, Plan, Attempt, Record) are msgspec
structs, because they are built on the hot path; what the operator writes (Policy, Group, Deployment) are
dataclasses, because pydantic parses YAML straight onto them. All are frozen and keyword-only: change one
with `msgspec.structs.replace` or `dataclasses.replace`. Durations end in `_s`; prices are US dollars per
million tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

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


class Request(Struct, frozen=True, kw_only=True, gc=False):
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


class Caller(Struct, frozen=True, kw_only=True, gc=False):
    """Who asks and from where: what the HTTP layer knows beside the body."""

    id: str  # the request id
    tenant: str = ""
    key: str = ""  # the name of the key, never the key
    session: str | None = None  # conversation id from a header, or None
    headers: Mapping[str, str] = {}  # lower-case names


class Session(Struct, frozen=True, kw_only=True, gc=False):
    """What the store remembers of a conversation."""

    id: str
    group: str | None = None  # pinned group
    deployment: str | None = None  # deployment that holds its KV cache
    route: str | None = None  # route that pinned it
    # State in the request that this deployment made: signed thoughts, encrypted reasoning, or an answer that it keeps.
    holds: Literal["", "thoughts", "reasoning", "answer"] = ""
    mixed: bool = False  # state of other deployments stands beside it in the conversation


class Signals(Struct, frozen=True, kw_only=True, gc=False):
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


class Prompt(Struct, frozen=True, kw_only=True, gc=False):
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


class Decision(Struct, frozen=True, kw_only=True, gc=False):
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


class Load(Struct, frozen=True, kw_only=True, gc=False):
    """What is known at one moment of deployments, and of thresholds; `now` is monotonic seconds."""

    now: float = 0.0
    in_flight: Mapping[str, int] = {}
    cooling: Mapping[str, float] = {}  # deployment -> monotonic time until which it should not be tried
    limited: frozenset[str] = frozenset()  # those of `cooling` that asked for it (429), not those that failed
    probing: Mapping[str, float] = {}  # failed, and being tried with one request -> when another may be sent
    reports: Mapping[str, Report] = {}  # as of the last second; only deployments of which something is known
    cuts: Mapping[str, Cut] = {}  # by route of the policy that decides; only those that moved
    spent: Mapping[str, float] = {}  # groups of which the caller's quota is used up -> seconds until there is another


class Target(Struct, frozen=True, kw_only=True, gc=False):
    """One stop of a plan."""

    deployment: str
    group: str


class Plan(Struct, frozen=True, kw_only=True, gc=False):
    """Targets in the order to try. `refused` explains the deployments left out: (name, reason)."""

    targets: tuple[Target, ...]
    refused: tuple[tuple[str, str], ...] = ()
    retry_after_s: float | None = None  # set when everything is cooling: seconds until the soonest


class Attempt(Struct, frozen=True, kw_only=True, gc=False):
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


class Usage(Struct, frozen=True, kw_only=True, gc=False):
    """Tokens. `input` includes `cached`; `output` includes `reasoning`; `estimated` = counted by us."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False


class Timing(Struct, frozen=True, kw_only=True, gc=False):
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


class Record(Struct, frozen=True, kw_only=True, gc=False):
    """Everything remembered of one request, written once. No credential, and no prompt text unless the policy asks."""

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


# --- what the operator writes ----------------------------------------------------------------------------

# pydantic: an unknown key is an error, and so is a number that compares with none or that nothing reaches
_STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A condition on a number; every bound that is given must hold."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None


Number = float | Range | None
Words = str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A condition on signals: every field given must hold. A list of words means any of them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    input_tokens: Number = None
    prompt_chars: Number = None
    turns: Number = None
    tools: Number = None
    tool_calls: Number = None
    tool_errors: Number = None
    repeated_calls: Number = None
    spinning: Number = None
    context_growth: Number = None
    max_output_tokens: Number = None
    code_share: Number = None
    hour: Number = None
    weekday: Number = None
    tool_loop: bool | None = None
    side_request: bool | None = None
    has_images: bool | None = None
    wants_json: bool | None = None
    stream: bool | None = None
    phase: Words = None
    language: Words = None
    model: Words = None
    dialect: Words = None
    tenant: Words = None
    key: Words = None
    headers: Mapping[str, str | tuple[str, ...]] | None = None
    any: tuple[When, ...] | None = None
    all: tuple[When, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A stretch of the score and the group it leads to; the last band has no `below`."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    group: str
    below: float | None = None
    set: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRule:
    """Which scorer to ask and how its score maps to groups, easiest band first."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    scorer: str
    bands: tuple[Band, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """What a cascade's first answer must pass; a check that is false or left out is not made."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    not_empty: bool = True
    no_refusal: bool = True
    valid_json: bool = True  # JSON where the request asks for it, and the arguments of tool calls
    logprob_at_least: float | None = None  # mean log-probability of the answer's tokens
    agreement_at_least: float | None = None  # share of the scouts that say the same
    scorer: str | None = None  # of the kind `cascade`
    score_below: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """Answer with the group `first`, verify, and answer with the group `then` where that fails."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    first: str
    then: str
    verify: Verify = field(default_factory=Verify)
    scouts: tuple[str, ...] = ()  # groups that are asked the same at the same time
    unsure: Literal["escalate", "accept"] = "escalate"  # where a check cannot tell
    wait_s: float = 10.0  # from the end of the first answer; scouts that are later count as silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A named condition and where it leads: a `group`, the `bands` of a score, or a `cascade`."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    name: str
    when: When | None = None
    group: str | None = None
    score: ScoreRule | None = None
    cascade: Cascade | None = None
    set: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stay: bool = False  # its requests never leave the groups that it names, for no pin, abstention or fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """How long a conversation stays with its group, and when it may move up."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    scope: Literal["conversation"] = "conversation"
    ttl_s: float = 3600.0
    upgrade: Literal["user_turn", "never", "free"] = "user_turn"  # free: up or down at a user turn
    move_cost: float = 0.0  # of the score, for every 10,000 tokens that another group would have to read anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Explore:
    """A share of the requests whose score is near an edge goes to the other side of it, so that there is evidence."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    share: float
    within: float = 0.1  # how near: distance of the score from the edge


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The policy's own test: these signals and scores must lead to this route and group."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scores: Mapping[str, float | None] = field(default_factory=dict[str, float | None])  # null = abstains
    route: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A number that is not to be passed."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    at_most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What the thresholds of a policy are moved for: exactly one limit, and how far they may go."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    large_share: Limit | None = None  # of the policy's requests, to the group of its last band
    quality_loss: Limit | None = None  # mean over all requests, against the large group's answers
    cost_per_1k: Limit | None = None  # US dollars per thousand requests
    bounds: tuple[float, ...] | None = None  # lowest and highest; None = 0.2 to either side of the threshold as written


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """When a canary has been tried long enough."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    requests: int = 2000  # that the canary has served


@dataclass(frozen=True, slots=True, kw_only=True)
class Worse:
    """How much worse than the policy it tries to replace a canary may be."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    error_rate: float | None = None  # share of requests
    ttft_p95: float | None = None  # seconds
    quality_difference: float | None = None  # mean score of feedback


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """A policy that is tried on a share of the conversations of this one."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    policy: str
    share: float
    until: Until = field(default_factory=Until)
    rollback_if: Worse = field(default_factory=Worse)
    shadow: bool = False  # only decide with it and record that


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Ordered routes plus a default, chosen by the model name the client asked for."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    name: str
    models: tuple[str, ...]
    default: str
    routes: tuple[Route, ...] = ()
    pin: Pin | None = None
    fallback: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    allow_deployments: bool = False  # may a client name a deployment directly
    priority: Literal["high", "normal", "low"] = "normal"  # where requests wait before a group
    record_prompts: bool = False  # records of this policy hold the user's words
    target: Goal | None = None
    explore: Explore | None = None
    canary: Canary | None = None
    examples: tuple[Example, ...] = ()
    order: tuple[str, ...] = ()  # groups from smallest to largest; empty = as the bands name them


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Four clocks, in seconds. `first_byte_s` runs to the first content, or the whole unstreamed answer;
    any upstream byte, comments included, counts as life for `idle_s`."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    connect_s: float = 5.0
    first_byte_s: float = 120.0
    idle_s: float = 120.0
    total_s: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens; `cached` defaults to `input`."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    input: float = 0.0
    output: float = 0.0
    cached: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The cluster nodes one deployment occupies."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapt:
    """What a chat server takes otherwise than OpenAI's API; "keep" leaves the body as it is."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    developer: Literal["keep", "system"] = "keep"  # the role of developer messages
    max_tokens: Literal["keep", "max_tokens", "max_completion_tokens"] = "keep"  # the limit's name
    reasoning: Literal["keep", "strip", "empty"] = "keep"  # reasoning_content of earlier answers; empty: demanded


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One place that serves one model. `api_key` never shows in a repr."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    name: str
    upstream: Literal["openai", "local", "scripted", "litellm"]
    model: str = ""  # the name the upstream knows; "" = pass the client's on (scripted) or the file's (local)
    base_url: str = ""  # openai: up to and including /v1
    api_key: str = field(default="none", repr=False)  # "none" = send no authorization header
    path: str = ""  # local: a GGUF file; "" = the shipped weights
    dialects: tuple[Dialect, ...] = ("chat",)
    context_window: int | None = None
    images: bool = True  # can read images
    logprobs: bool = False  # gives log-probabilities of tokens when it is asked in the chat dialect
    stream_usage: bool = False  # ask for usage in streams where the client did not, for exact token counts
    price: Price | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    max_in_flight: int | None = None
    metrics_url: str = ""  # Prometheus text with its load; "/metrics" stands at the origin of base_url; "" = not asked
    health_url: str = ""  # answers 200 while it can serve; likewise
    set: Mapping[str, Any] = field(default_factory=dict[str, Any])
    adapt: Adapt = field(default_factory=Adapt)
    partition: Partition | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # the upstream kind's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Named set of interchangeable deployments."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    name: str
    deployments: tuple[str, ...]
    max_in_flight: int | None = None  # requests at a time, over all its deployments
    queue: int = 0  # requests that may wait for their turn beyond that
    queue_wait_s: float = 5.0  # longest wait; who would wait longer is turned away at once
    max_ejected: float = 0.5  # share that may be out for failing often; beyond it that is not believed


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerSpec:
    """A scorer as the operator names it. `options` are the kind's own keys."""

    name: str
    kind: Literal["lexical", "encoder", "generative", "remote", "fixed", "header", "cascade"]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a key, or all keys of a tenant together, may ask for and use; None = no limit."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    models: tuple[str, ...] | None = None  # names that may be asked for
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None  # of prompts and answers
    concurrent: int | None = None  # requests at the same time
    dollars_per_day: float | None = None  # US dollars; days are those of UTC
    quota: Mapping[str, int] = field(default_factory=dict[str, int])  # by group: requests a day that it may serve


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Allowance):
    """A key that callers present, known by its digest alone."""

    name: str
    tenant: str
    sha256: str  # of the key, hex
    expires: float | None = None  # Unix seconds; from then on it is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant(Allowance):
    """What all keys of one tenant may use together."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may use the gateway. Without any, whoever reaches its port may."""

    keys: Mapping[str, Key]
    tenants: Mapping[str, Tenant]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One immutable snapshot of everything the operator wrote; a request sees exactly one."""

    policies: Mapping[str, Policy]  # by policy name
    models: Mapping[str, Policy]  # by the model name clients ask for
    groups: Mapping[str, Group]
    deployments: Mapping[str, Deployment]
    scorers: Mapping[str, ScorerSpec]
    digest: str  # sha256 of the files' bytes, hex; keys.yaml, which routes nothing, is not among them
    access: Access | None = None  # None = no keys.yaml: no key is asked for
    store: str | None = None  # redis://..., or None for memory

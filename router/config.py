"""What the operator writes: policies, groups, deployments, scorers, keys and limits, and the `Config` they make.

Dataclasses, because pydantic parses YAML straight onto them (`router.policy_files`); frozen and keyword-only: change
one with `dataclasses.replace`. What one request produces stands in `router.types`. Durations end in `_s`; prices are
US dollars per million tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from router.types import Dialect

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
    # free: up or down at a user turn; any_turn: up at a user turn, and within a tool loop where a signal alone says so
    upgrade: Literal["user_turn", "never", "free", "any_turn"] = "user_turn"
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
class Hedge:
    """When a second deployment is asked beside one that has given no content."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A share of the answered requests is put to the other group too, and the two answers are compared."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    share: float
    near_share: float | None = None  # the share near an edge of the score; None = the same
    within: float = 0.1  # how near: distance of the score from the edge
    budget_per_day: int = 500  # comparisons; days are those of UTC
    group: str | None = None  # the group of the model that judges
    checker: Literal["same_answer", "well_formed"] | None = None
    calibration: str | None = None  # a file of labelled pairs of answers
    when: When | None = None  # which requests may be judged
    idle: int | None = None  # only while the group to be asked has fewer requests in flight
    precision: float = 0.02  # half the width that the interval is to have


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
    hedge: Hedge | None = None
    judge: Judge | None = None
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


AS_IT_IS = Adapt()


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
    adapt: Adapt = AS_IT_IS
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
    affinity: float = (
        1.25  # how much busier than the mean a deployment may be that has a conversation's prefix; 0 = off
    )
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
    record_prompts: bool | None = None  # whether records hold its users' words; None = as the policy says


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

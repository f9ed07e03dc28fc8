"""What each key of the files means, in one sentence; editors show it beside the key.

Kept apart from the dataclasses because pydantic reads no comments; a test holds the two to the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "GroupsFile": {
        "groups": "Named sets of interchangeable deployments.",
        "deployments": "Places that each serve one model, by name.",
        "store": "Where replicas share sessions and cooldowns: redis://HOST:PORT/DB. Left out: memory.",
    },
    "ScorersFile": {"scorers": "Estimators of difficulty, by the name that policies ask for."},
    "Policy": {
        "name": "The policy's name in records, metrics and headers.",
        "models": "The model names that clients ask for to be served by this policy.",
        "default": "The group that serves when no route holds, or when a scorer abstains.",
        "routes": "Conditions and where they lead, in order; the first that holds wins.",
        "pin": "How long a conversation stays with its group, and when it may move up.",
        "fallback": "For each group, the groups to try when none of its deployments can serve.",
        "allow_deployments": "Whether clients may name a deployment as their model.",
        "record_prompts": "Whether records of this policy hold the user's words, for eval train --from-records.",
        "target": "A limit that the bands are to be held to.",
        "explore": "A share of requests that goes to the other side of the edge by chance, for evidence.",
        "examples": "The policy's own tests, run at every check and reload.",
        "order": "Groups from smallest to largest; left out: as the bands name them.",
    },
    "Route": {
        "name": "The route's name in records, metrics and headers.",
        "when": "The condition; every key in it must hold. Left out: every request.",
        "group": "The group that serves.",
        "score": "Ask a scorer, and let its score choose the group.",
        "set": "Request fields to override, such as max_tokens or reasoning_effort.",
    },
    "ScoreRule": {
        "scorer": "The scorer's name in scorers.yaml.",
        "bands": "Stretches of the score from easiest to hardest; the last has no below.",
    },
    "Band": {
        "below": "Scores under this number belong here, unless an earlier band took them.",
        "group": "The group that serves.",
        "set": "Request fields to override in this band.",
    },
    "Range": {
        "at_least": "This number or more.",
        "at_most": "This number or less.",
        "above": "More than this number.",
        "below": "Less than this number.",
    },
    "When": {
        "input_tokens": "Estimated tokens of the whole prompt.",
        "prompt_chars": "Length in characters of the last real user text.",
        "turns": "User turns so far, this one included.",
        "tools": "Number of tools offered.",
        "tool_calls": "Tool calls made since the last user turn.",
        "tool_errors": "Failed tool results since the last user turn.",
        "repeated_calls": "Longest run of the same call with the same arguments since the last user turn.",
        "max_output_tokens": "The output limit that the client asked for; 0 where it gave none.",
        "code_share": "Share of the last user text that looks like code, 0 to 1.",
        "hour": "Hour of day at the gateway, 0 to 23.",
        "weekday": "Day of the week at the gateway; Monday is 0.",
        "tool_loop": "The newest message is a tool result.",
        "side_request": "A title, summary or the like, beside the conversation.",
        "has_images": "The conversation holds images.",
        "wants_json": "The client asked for JSON output.",
        "stream": "The client asked for a stream.",
        "language": "ISO 639-1 guess for the last user text; empty where unknown.",
        "model": "The model name that the client asked for.",
        "dialect": "The wire format: chat, messages, responses, completions or embeddings.",
        "tenant": "The caller's tenant.",
        "key": "The name of the caller's key.",
        "headers": "Request headers, by name, and the values that hold.",
        "any": "Conditions of which at least one must hold.",
        "all": "Conditions that must all hold.",
    },
    "Pin": {
        "scope": "What is pinned: the conversation.",
        "ttl": "How long after its last request a conversation stays pinned: 90s, 1h, 2d or seconds.",
        "ttl_s": "The same in seconds.",
        "upgrade": "When a pinned conversation may move: up at a user turn, never, or freely at a user turn.",
    },
    "Explore": {
        "share": "The share of the requests near an edge, above 0 and at most 0.5.",
        "within": "How far from the edge a score may be; left out: 0.1.",
    },
    "Example": {
        "given": "Signals of the imagined request; those left out have their defaults.",
        "scores": "What each scorer would say; null means that it abstains.",
        "expect": "The route that must be taken, or {route: ..., group: ...}.",
    },
    "Group": {"deployments": "The deployments that serve this group; any of them may answer."},
    "Deployment": {
        "upstream": "What kind of place this is.",
        "model": "The model name that the upstream knows.",
        "base_url": "The upstream's address, up to and including /v1.",
        "api_key": "The key to send; none sends no authorization header.",
        "path": "A GGUF file to serve; left out: the shipped weights.",
        "dialects": "Wire formats that the upstream speaks itself.",
        "context_window": "Tokens that prompt and answer may fill together.",
        "images": "Whether the model reads images.",
        "stream_usage": "Ask for token counts in streams where the client did not; they are not passed on.",
        "price": "US dollars per million tokens.",
        "timeouts": "Four clocks, in seconds.",
        "max_in_flight": "Requests at a time; more go elsewhere.",
        "set": "Request fields to override at this deployment; null removes one.",
        "adapt": "What this chat server takes otherwise than OpenAI's API does.",
        "partition": "The cluster nodes that this deployment occupies.",
        "options": "Keys of this upstream kind alone.",
    },
    "Adapt": {
        "developer": "system: developer messages go out as system messages.",
        "max_tokens": "The name under which the token limit goes out.",
        "reasoning": "reasoning_content of earlier answers: strip removes it, empty adds an empty one to tool calls.",
    },
    "Timeouts": {
        "connect_s": "Until the connection stands.",
        "first_byte_s": "Until the first content, or the whole unstreamed answer.",
        "idle_s": "Between two pieces of the stream; comments count as life.",
        "total_s": "For the whole attempt.",
    },
    "Price": {
        "input": "Per million prompt tokens.",
        "output": "Per million answer tokens.",
        "cached": "Per million prompt tokens read from a cache; left out: as input.",
    },
    "Partition": {"nodes": "Names of the nodes."},
    "ScorerSpec": {"kind": "How the score is made; the kind's own options stand beside it."},
}

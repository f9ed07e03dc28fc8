"""The turn format for the shipped base weights: a few-shot chat template, its stop string, and request defaults.

Nothing here applies to a GGUF file that the operator names: such a file brings its own template.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

STOP = "\nUser:"

# A base model continues text, so three answered pairs show it what an answer is. Full sentences make it answer in
# full sentences. The answer stands on its own line because the tokenizer glues a leading space to a word: after
# "Assistant:" every answer would begin with a space, and after "Assistant: " the model drifts into numbers.
# Tools and images are not rendered: 270M parameters do not call tools, and a request that offers them still gets text.
TEMPLATE = """\
{%- for message in messages if message.role in ['system', 'developer'] and message.content %}
{{- message.content }}
{{- '\\n\\n' }}
{%- endfor -%}
User: What colour is the sky on a clear day?
Assistant:
The sky on a clear day is blue.
User: Which animal says meow?
Assistant:
The animal that says meow is a cat.
User: Name two fruits.
Assistant:
Two fruits are apples and pears.
{%- for message in messages if message.role not in ['system', 'developer'] and message.content %}
{%- if message.role == 'assistant' %}
{{- '\\nAssistant:\\n' }}
{%- elif message.role in ['tool', 'function'] %}
{{- '\\nUser: The tool answered: ' }}
{%- else %}
{{- '\\nUser: ' }}
{%- endif %}
{{- message.content }}
{%- endfor %}
{{- '\\nAssistant:\\n' if add_generation_prompt else '' }}"""

# Set where the client said nothing. Without a limit a base model that misses its stop runs to the end of its slot
# (measured: 132 s); at the usual temperature of 0.8 a model this small loses the thread.
MAX_TOKENS = 512
TEMPERATURE = 0.0

_LIMITS = ("max_tokens", "max_completion_tokens", "n_predict")


def complete(body: bytes) -> bytes:
    """The chat request `body` with our stop string beside the client's own, and defaults for what it left out.

    llama.cpp replaces its configured stop strings by the request's, so the stop has to be added per request.
    A body that is not a JSON object is returned as it is: the server's own error tells the client.
    """
    try:
        decoded: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body
    if not isinstance(decoded, dict):
        return body
    fields = cast("dict[str, Any]", decoded)
    stop: object = fields.get("stop")
    if stop is None or isinstance(stop, str):
        fields["stop"] = [stop, STOP] if stop else [STOP]
    elif isinstance(stop, list):
        fields["stop"] = [*cast("list[object]", stop), STOP]
    if all(fields.get(name) is None for name in _LIMITS):
        fields["max_tokens"] = MAX_TOKENS
    if fields.get("temperature") is None:
        fields["temperature"] = TEMPERATURE
    return msgspec.json.encode(fields)

"""How servers say that a prompt does not fit their context window: a code, or words of their own. No I/O."""

from __future__ import annotations

import re

# OpenAI, Azure, vLLM, DeepSeek, Groq: code or "maximum context length"; xAI: "maximum prompt length"; Anthropic:
# "prompt is too long", "exceed context limit"; llama.cpp: the next two; SGLang: "longer than the model's context
# length"; vLLM: "longer than the maximum model length"; Gemini: "exceeds the maximum number of tokens"; Bedrock:
# "Input is too long"; TGI: "`inputs` tokens + `max_new_tokens` must be"; Mistral: "too large for model with 32768
# maximum context"; Cohere: "too many tokens: ... cannot exceed"; Ollama: "input length exceeds the context length";
# LM Studio: "greater than the context length".
_OVERFLOW = re.compile(
    r"""context_length_exceeded | exceed_context_size | context_window_exceeded | string_above_max_length
      | (?:maximum|max)\ (?:context|prompt|sequence|model)\ length
      | (?:prompt|input|request)\ (?:is\ |was\ )?too\ (?:long|large\ for\ (?:the\ )?(?:model|context))
      | (?:exceeds?|exceeded|larger\ than|longer\ than|greater\ than|overflows?|beyond|outside)\ (?:the\ )?
        (?:available\ |model's\ |model\ |maximum\ |max\ |configured\ |its\ )*
        (?:context|model\ length|sequence\ length|input\ length|number\ of\ (?:input\ )?tokens)
      | (?:token|prompt|input)[^."]{0,60}exceeds?\ (?:the\ )?(?:max|limit|context)
      | `?inputs`?\ (?:tokens\ \+\ `?max_new_tokens`?\ must\ be|must\ have\ less\ than)
      | too\ many\ (?:input\ )?tokens:? | reduce\ the\ length\ of\ (?:the\ )?(?:messages|prompt|input)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_READ = 8192  # bytes of an error body that are searched


def overflows(text: str | bytes) -> bool:
    """Whether the text of an error says that the prompt did not fit the context window."""
    words = text[:_READ].decode("utf-8", "replace") if isinstance(text, bytes) else text[:_READ]
    return _OVERFLOW.search(words) is not None

"""How servers say that a prompt does not fit their context window: a code, or words of their own. No I/O."""

from __future__ import annotations

import re

# OpenAI, Azure, vLLM, DeepSeek, Groq: code or "maximum context length"; xAI: "maximum prompt length"; Anthropic:
# "prompt is too long", "exceed context limit"; llama.cpp: the next two; SGLang: "longer than the model's context
# length"; vLLM: "longer than the maximum model length"; Gemini: "exceeds the maximum number of tokens"; Bedrock:
# "Input is too long"; TGI: "`inputs` tokens + `max_new_tokens` must be"; Mistral: "too large for model with 32768
# maximum context"; Cohere: "too many tokens: ... cannot exceed"; Ollama: "input length exceeds the context length";
# LM Studio: "greater than the context length", "loaded with context length of only"; Moonshot: "exceeded model token
# limit"; DashScope: "Range of input length should be"; MiniMax: "context window exceeds limit"; SiliconFlow: "must be
# less than max_seq_len"; GitHub: tokens_limit_reached; watsonx: "cannot exceed the total tokens limit"; mistral.rs:
# "sequence length 5000 is greater than"; Perplexity: "length of all messages is too long"; Vertex: "token count is
# 33000 but model only supports"; Cloudflare: "exceeded this model context window"; Baidu: "Prompt tokens too long";
# TensorRT-LLM: "exceed max_num_tokens", "longer than max_input_len"; vLLM, where the prompt leaves no room: "must
# be at least 1, got -300".
_OVERFLOW = re.compile(
    r"""context_length_exceeded | exceed_context_size | context_window_exceeded | string_above_max_length
      | tokens_limit_reached | max_prompt_tokens_exceeded
      | (?:maximum|max)\ (?:context|prompt|sequence|model)\ length
      | (?:prompt|input|request|conversation|messages)\ (?:tokens\ |is\ |are\ |was\ )?too[ ]
        (?:long|large\ for\ (?:the\ )?(?:model|context))
      | request\ body\ too\ large\ for\ [\w.-]+\ model
      | (?:exceeds?|exceeded|larger\ than|longer\ than|greater\ than|less\ than|overflows?|beyond|outside)[ ]
        (?:the\ |this\ )?(?:available\ |model's\ |model\ |maximum\ |max\ |configured\ |its\ |total\ )*
        (?:context|model\ length|sequence\ length|input\ length|number\ of\ (?:input\ )?tokens|tokens?\ limit
          |max_(?:seq|model|sequence|input|prompt|context|num|total)_(?:len|length|tokens)\b)
      | (?:token|prompt|input)[^."]{0,60}exceeds?\ (?:the\ )?(?:max|limit|context)
      | context\ (?:window|length|size)\ (?:exceeds|exceeded|is\ exceeded)
      | (?:prompt|sequence|input)\ (?:sequence\ )?(?:length|tokens)\ \(?\d+\)?\ is\ (?:greater|longer|larger)\ than
      | number\ of\ tokens\ in\ the\ prompt[^."]{0,20}(?:greater|longer|larger)\ than
      | token\ count\ is\ \d+\ but\ (?:the\ )?model\ only\ supports | context\ length\ of\ only\ \d
      | range\ of\ input\ length\ should\ be | must\ be\ at\ least\ 1,\ got\ -\d | input\ is\ too\ large\ to\ process
      | `?inputs`?\ (?:tokens\ \+\ `?max_new_tokens`?\ must\ be|must\ have\ less\ than)
      | too\ many\ (?:input\ )?tokens:? | reduce\ the\ length\ of\ (?:the\ )?(?:messages|prompt|input)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_READ = 8192  # bytes of an error body that are searched
STATUSES = frozenset((400, 413, 422))
_ODD = 500  # engines whose own check of the length is an error that they do not expect


def overflows(text: str | bytes) -> bool:
    """Whether the text of an error says that the prompt did not fit the context window."""
    words = text[:_READ].decode("utf-8", "replace") if isinstance(text, bytes) else text[:_READ]
    return _OVERFLOW.search(words) is not None


def is_overflow(status: int, body: bytes) -> bool:
    """Whether an answer with this status says so. Other statuses mean what they are: 429 has words that are alike."""
    return (status in STATUSES or status == _ODD) and overflows(body)

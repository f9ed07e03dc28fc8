"""Writes a small Llama with random weights and a tokenizer of its own: one token a byte. It is for tests and
measurements of the machinery around a model; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from router.scorers.generative import library

CHAT = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"


def write_tiny_llama(folder: Path, *, chat: bool = True, hidden: int = 32, layers: int = 2) -> Path:
    """Write the model and its tokenizer, and return the folder."""
    torch, transformers, tokenizers = library("torch"), library("transformers"), library("tokenizers")
    marks = ["<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer: Any = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={token: i for i, token in enumerate(marks + alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", additional_special_tokens=marks[2:]
    )
    if chat:
        fast.chat_template = CHAT
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=len(marks) + len(alphabet),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
    folder.mkdir(parents=True, exist_ok=True)
    transformers.LlamaForCausalLM(config).save_pretrained(folder, safe_serialization=True)
    fast.save_pretrained(folder)
    return folder

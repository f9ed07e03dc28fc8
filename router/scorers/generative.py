"""The `generative` scorer: a causal language model run here, one prefill a prompt, nothing generated.

Without training its score is how much likelier it makes the label "hard" than "easy", with both label orders
averaged. With an artifact of `pointsman eval train --scorer generative` it is a linear head on hidden states, and a
LoRA adapter where one was trained. The only module that imports torch, transformers and peft, and lazily.
Weights are safetensors and no code comes with a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.scorers import question
from router.scorers.breaker import Breaker
from router.scorers.calibration import Curve
from router.scorers.off_loop import Answer, Estimate, Limits, OffLoop, threads
from router.scorers.question import ORDERS, Order

NOTE: Final = "generative.json"
WEIGHTS: Final = "head.safetensors"
ADAPTER: Final = "adapter"
MOST_TOKENS = 2048  # a question of 2,000 characters and its frame is about 800; only odd tokenizers make more

Floats = NDArray[np.float32]


class NotInstalled(ValueError):
    """A library of the `generative` extra is missing."""


def library(name: str) -> Any:
    """A module of torch, transformers, peft or safetensors; Any, as they are typed loosely or not at all."""
    try:
        return import_module(name)
    except ImportError as e:
        raise NotInstalled(f"this needs {name.split('.', 1)[0]}: pip install 'pointsman[generative]'") from e


class Source(Struct, frozen=True, kw_only=True):
    """Which model, and how it is run."""

    model: str  # a Hugging Face id or a folder
    revision: str | None = None
    local_files_only: bool = False  # never ask the hub: the model is in the folder or in the cache
    device: str | None = None  # "cuda:1", "cpu"; cuda where there is one when absent
    threads: int | None = None  # of the CPU; all cores but one when absent


class Note(Struct, frozen=True, kw_only=True):
    """What an artifact says of itself beside its weights."""

    version: int = 1
    model: str
    revision: str | None = None
    question: str  # digest of the wording that the head was trained on
    layers: tuple[int, ...]  # hidden states whose last place the head reads, as transformers counts them
    curve: tuple[tuple[float, float], ...]  # expected gain to P(weak fails)
    adapter: bool = False
    notes: dict[str, Any] = {}


class Head(Struct, frozen=True, eq=False):
    """Two linear targets on one vector of hidden states: (the weak model is right, the strong model is right)."""

    weight: Floats  # [2, width]
    bias: Floats  # [2]

    def gain(self, hidden: Floats) -> list[float]:
        """What the strong model is expected to add, one number a row."""
        both = hidden @ self.weight.T + self.bias
        return [float(strong - weak) for weak, strong in both]


class Artifact(Struct, frozen=True, eq=False):
    """A trained head, read from its folder."""

    note: Note
    head: Head
    folder: Path


def wording() -> str:
    """A digest of the question, so that a head is not used with another than it was trained on."""
    asked = msgspec.json.encode([question.labelled("x", order) for order in ORDERS])
    return blake2b(asked, digest_size=8).hexdigest()


def is_artifact(folder: Path) -> bool:
    return (folder / NOTE).is_file()


def read(folder: Path) -> Artifact:
    """An artifact. Raises ValueError where the folder holds none that can be used."""
    try:
        note = msgspec.json.decode((folder / NOTE).read_bytes(), type=Note)
        tensors: dict[str, Floats] = library("safetensors.numpy").load_file(folder / WEIGHTS)
    except FileNotFoundError as error:
        raise ValueError(f"artifact: {folder} is not what `eval train --scorer generative` writes") from error
    except msgspec.MsgspecError as error:
        raise ValueError(f"artifact: {folder / NOTE} cannot be read: {error}") from error
    if note.version != 1 or note.question != wording():
        raise ValueError(f"artifact: {folder} was trained on another question; train it again")
    return Artifact(note, Head(tensors["weight"], tensors["bias"]), folder)


def write(folder: Path, note: Note, head: Head) -> None:
    """An artifact's note and head; the adapter is written by peft."""
    folder.mkdir(parents=True, exist_ok=True)
    # safetensors writes an array's memory as it lies, so a transposed view would come back as another matrix.
    tensors = {"weight": np.ascontiguousarray(head.weight), "bias": np.ascontiguousarray(head.bias)}
    library("safetensors.numpy").save_file(tensors, folder / WEIGHTS)
    (folder / NOTE).write_bytes(msgspec.json.format(msgspec.json.encode(note), indent=2) + b"\n")


# --- the model -------------------------------------------------------------------------------------------


class Causal:
    """A loaded model with its tokenizer: questions in, label margins and hidden states out."""

    def __init__(self, model: Any, tokenizer: Any, device: str) -> None:
        self.torch = library("torch")
        self.model = model
        self.device = device
        self._tokenizer = tokenizer
        self._pad = int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0)
        self._labels = {label: self._ids_of(label) for label in question.LABELS}
        if self._labels["A"] & self._labels["B"]:
            raise ValueError("the tokenizer does not tell the labels A and B apart")

    def _ids_of(self, label: str) -> set[int]:
        """The tokens that stand for a label at the start of an answer, with and without a blank before it."""
        spelt = (self._tokenizer.encode(text, add_special_tokens=False) for text in (label, f" {label}"))
        return {int(ids[-1]) for ids in spelt if ids}

    @property
    def layers(self) -> int:
        return int(self.model.config.num_hidden_layers)

    def tokens(self, data: str, order: Order) -> list[int]:
        """One question, ready for the answer's first token. Where a tokenizer makes too much of it, the data loses
        its middle, never the question."""
        ids = self._question(data, order)
        while len(ids) > MOST_TOKENS and len(data) > 1:
            size = max(1, 3 * len(data) // 4)
            tail = size // 3
            data = data[: size - tail] + data[len(data) - tail :]
            ids = self._question(data, order)
        return ids

    def _question(self, data: str, order: Order) -> list[int]:
        messages = question.labelled(data, order)
        if self._tokenizer.chat_template:
            text = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
            return self._tokenizer.encode(text, add_special_tokens=False)
        return self._tokenizer.encode("\n\n".join(m["content"] for m in messages) + "\nAnswer:")

    def forward(self, rows: Sequence[Sequence[int]], *, hidden: bool = False) -> Any:
        """One prefill; logits of the last place only. Padded on the left, so that the last place is everyone's own."""
        torch = self.torch
        width = max(map(len, rows))
        ids = torch.tensor([[self._pad] * (width - len(row)) + list(row) for row in rows], device=self.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=self.device)
        places = (mask.cumsum(1) - 1).clamp(min=0)
        return self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=places,
            use_cache=False,
            logits_to_keep=1,
            output_hidden_states=hidden,
        )

    def margins(self, data: Sequence[str]) -> list[float]:
        """logit(hard) - logit(easy) of each text, the mean of both label orders; both go through in one batch."""
        torch = self.torch
        rows = [self.tokens(text, order) for order in ORDERS for text in data]
        with torch.inference_mode():
            logits = self.forward(rows).logits[:, -1].float()
            mass = {label: torch.logsumexp(logits[:, sorted(ids)], dim=1) for label, ids in self._labels.items()}
            parts = [
                mass[hard][i * len(data) : (i + 1) * len(data)] - mass[easy][i * len(data) : (i + 1) * len(data)]
                for i, (easy, hard) in enumerate(map(question.labels, ORDERS))
            ]
            return [float(value) for value in torch.stack(parts).mean(0).cpu()]

    def hidden(self, data: Sequence[str], layers: Sequence[int]) -> Floats:
        """The last place's hidden states of these layers, side by side, one row a text."""
        with self.torch.inference_mode():
            return self.states(data, layers).cpu().numpy()

    def states(self, data: Sequence[str], layers: Sequence[int]) -> Any:
        """As `hidden`, as a tensor that gradients flow through."""
        states = self.forward([self.tokens(text, ORDERS[0]) for text in data], hidden=True).hidden_states
        return self.torch.cat([states[layer][:, -1].float() for layer in layers], dim=1)


def load(source: Source, adapter: Path | None = None) -> Causal:
    """The model in memory: bf16 on CUDA, float32 on the CPU, where bf16 is slower. Raises what transformers raises."""
    torch, transformers = library("torch"), library("transformers")
    device = source.device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_cpu = device == "cpu"
    if on_cpu:
        torch.set_num_threads(source.threads or threads())
    where: dict[str, Any] = {
        "revision": source.revision,
        "local_files_only": source.local_files_only,
        "trust_remote_code": False,
    }
    place = str(Path(source.model).expanduser())  # an id of the hub stays as it is
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, **where)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        place, dtype=torch.float32 if on_cpu else torch.bfloat16, use_safetensors=True, **where
    )
    if adapter is not None:
        model = library("peft").PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    return Causal(model.to(device).eval(), tokenizer, device)


# --- the scorer ------------------------------------------------------------------------------------------


def estimate(source: Source, artifact: Artifact | None, curve: Curve) -> Estimate:
    """Loads the model and gives what turns texts into difficulties."""
    adapter = artifact.folder / ADAPTER if artifact is not None and artifact.note.adapter else None
    causal = load(source, adapter)

    def values(data: Sequence[str]) -> list[float]:
        if artifact is None:
            return [question.chance(margin) for margin in causal.margins(data)]
        gains = artifact.head.gain(causal.hidden(data, artifact.note.layers))
        points = artifact.note.curve
        known = Curve(tuple(x for x, _ in points), tuple(y for _, y in points))
        return [known(gain) for gain in gains]

    def answers(texts: Sequence[str]) -> Sequence[Answer]:
        data = [question.readable(text) for text in texts]
        asked = [text for text in data if text]
        found = iter(values(asked) if asked else ())
        return [curve(next(found)) if text else "empty" for text in data]

    return answers


def build(
    name: str,
    source: Source,
    artifact: Artifact | None = None,
    *,
    curve: Curve | None = None,
    limits: Limits | None = None,
    breaker: Breaker | None = None,
) -> OffLoop:
    """The scorer; its model loads in the scorer's own thread. Raises ValueError where it cannot be there at all."""
    for needed in ("torch", "transformers") + (("peft",) if artifact is not None and artifact.note.adapter else ()):
        if find_spec(needed) is None:
            raise NotInstalled(f"this needs {needed}: pip install 'pointsman[generative]'")
    check(source.model)
    make: Callable[[], Estimate] = lambda: estimate(source, artifact, curve or Curve())  # noqa: E731
    return OffLoop(name, make, limits, breaker)


def check(model: str) -> None:
    """A folder that should hold a model does, in safetensors. An id of the hub is checked when it loads."""
    if not model.startswith(("/", ".", "~")):
        return
    folder = Path(model).expanduser()
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise ValueError(f"model: {model} is not a folder with config.json and *.safetensors")


def offline(folder: Path) -> OffLoop:
    """The scorer of an artifact for evals: everything is waited for, in larger batches."""
    artifact = read(folder)
    source = Source(model=artifact.note.model, revision=artifact.note.revision)
    return build(folder.name, source, artifact, limits=Limits(deadline_s=None, queue=1 << 20, batch=32))

"""Training the `generative` scorer for a pair of models: a linear head on hidden states, and a LoRA adapter before it.

Runs in one process, or in several under `torchrun`, on one machine or many, with the same artifact either way: batches
are the same whoever computes them, and sums are made in the batches' order. The heads' arithmetic is one process's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from evals import cases, train
from evals.cases import BadData, Pair
from evals.fit import Floats, curve, row_folds
from evals.libraries import library as plain_library
from router.scorers import generative, question
from router.scorers.generative import ADAPTER, Causal, Head, Note, Source, library

Progress = Callable[[str], None]

RIDGES = (1e1, 1e2, 1e3, 1e4)  # on standardised hidden states; chosen by held-out gain
FOLDS = 5
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj")  # what LoRA adapts; named so in every Llama-like model


class Settings(Struct, frozen=True, kw_only=True):
    """How to train. The result depends on these and the data, not on how many processes there are."""

    layers: tuple[int, ...] = ()  # hidden states to read; half-way and three quarters up when empty
    batch: int = 8  # prompts a prefill
    epochs: int = 0  # of LoRA; 0 = the linear head alone
    rank: int = 16
    rate: float = 1e-4
    step: int = 8  # batches of one optimiser step; processes beyond that many would idle
    ranking: float = 0.5  # weight of the pairwise loss on gain beside the two targets' own
    seed: int = 0


class Team:
    """The processes that train together; one where torchrun started none."""

    def __init__(self) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.local = int(os.environ.get("LOCAL_RANK", "0"))
        self._dist: Any = None

    def __enter__(self) -> Team:
        if self.size > 1:
            self._dist = library("torch.distributed")
            self._dist.init_process_group("gloo")  # also between GPUs: what is exchanged is small
        return self

    def __exit__(self, *error: object) -> None:
        if self._dist is not None:
            self._dist.destroy_process_group()

    @property
    def first(self) -> bool:
        return self.rank == 0

    def mine(self, batches: int) -> range:
        """The batches that this process computes."""
        return range(self.rank, batches, self.size)

    def gathered(self, mine: Sequence[Any], batches: int) -> list[Any]:
        """Every process's results, in the batches' order, on every process."""
        if self._dist is None:
            return list(mine)
        everyone: list[Any] = [None] * self.size
        self._dist.all_gather_object(everyone, list(mine))
        return [everyone[i % self.size][i // self.size] for i in range(batches)]


def train_generative(
    data: Sequence[Path],
    weak: str | None,
    strong: str | None,
    out: Path,
    source: Source,
    settings: Settings | None = None,
    say: Progress = lambda line: None,
) -> Path:
    """Train on the pair's rows in `data` and write the artifact to `out`. Raises BadData."""
    pair, settings = train.pairs(data, weak, strong), settings or Settings()
    with Team() as team:
        note = say if team.first else _silent
        causal = generative.load(_placed(source, team))
        layers = settings.layers or _usual(causal.layers)
        if not all(1 <= layer <= causal.layers for layer in layers):
            raise BadData(f"--layers must lie in 1..{causal.layers}")
        texts, rows = _readable(pair)
        if settings.epochs:
            _adapt(causal, texts, pair.take(rows), layers, settings, team, out, note)
        hidden = _hidden(causal, texts, layers, settings.batch, team, note)
        if team.first:
            head, points = _fitted(hidden, pair.take(rows), settings.seed, note)
            generative.write(out, _note(pair, source, settings, layers, points), head)
    return out


def _silent(line: str) -> None:
    """What the other processes say is what the first one says."""


def _placed(source: Source, team: Team) -> Source:
    """Each process on a GPU of its own; on the CPU one thread each, so that arithmetic does not depend on how many."""
    torch = library("torch")
    device = source.device or (f"cuda:{team.local}" if torch.cuda.is_available() else "cpu")
    return Source(
        model=source.model,
        revision=source.revision,
        local_files_only=source.local_files_only,
        device=device,
        threads=source.threads or 1,
    )


def _usual(layers: int) -> tuple[int, ...]:
    """Half-way and three quarters up: what a model knows of a question is plainest before its last layers."""
    return tuple(sorted({max(1, layers // 2), max(1, 3 * layers // 4)}))


def _readable(pair: Pair) -> tuple[list[str], NDArray[np.int64]]:
    """The rows with text in them."""
    texts = [question.readable(prompt) for prompt in pair.prompts]
    rows = np.array([i for i, text in enumerate(texts) if text], dtype=np.int64)
    return [texts[i] for i in rows], rows


def _cut(count: int, batch: int) -> list[range]:
    return [range(i, min(i + batch, count)) for i in range(0, count, batch)]


# --- the linear head -------------------------------------------------------------------------------------


def _hidden(
    causal: Causal, texts: Sequence[str], layers: Sequence[int], batch: int, team: Team, say: Progress
) -> Floats:
    """Every text's hidden states, the batches shared out among the processes."""
    batches = _cut(len(texts), batch)
    started = told = perf_counter()
    mine: list[NDArray[np.float32]] = []
    for i in team.mine(len(batches)):
        mine.append(causal.hidden([texts[row] for row in batches[i]], layers))
        if perf_counter() - told > 10.0:
            told = perf_counter()
            say(f"{(i + 1) * batch} of {len(texts)} prompts read")
    every = np.concatenate(team.gathered(mine, len(batches)))
    took = perf_counter() - started
    say(f"{len(texts)} prompts read in {took:.1f} s by {team.size} processes: {len(texts) / took:.1f} prompts/s")
    return every.astype(np.float64)


def _fitted(x: Floats, pair: Pair, seed: int, say: Progress) -> tuple[Head, tuple[tuple[float, float], ...]]:
    """The head, and the curve from its out-of-fold gain to how often the weak model fails."""
    targets = np.column_stack([pair.weak, pair.strong])
    with plain_library("threadpoolctl").threadpool_limits(1):
        parts = row_folds(len(x), min(FOLDS, len(x)), seed)
        held = {ridge: np.zeros(len(x)) for ridge in RIDGES}
        for part in parts:
            rest = np.setdiff1d(np.arange(len(x)), part)
            for ridge, head in _ridged(x[rest], targets[rest], RIDGES):
                held[ridge][part] = head.gain(x[part].astype(np.float32))
        gain = pair.strong - pair.weak
        worth = {ridge: _agreement(values, gain) for ridge, values in held.items()}
        best = max(RIDGES, key=lambda ridge: (worth[ridge], ridge))
        say(f"ridge {best:g}: held-out correlation with the gain {worth[best]:.3f}")
        if worth[best] <= 0.0:
            say("this model's hidden states tell nothing of the gain on rows held out; do not use this head")
        ((_, head),) = _ridged(x, targets, (best,))
        xs, ys = curve(held[best], 1.0 - pair.weak)
    return head, tuple((float(a), float(b)) for a, b in zip(xs, ys, strict=True))


def _ridged(x: Floats, targets: Floats, ridges: Sequence[float]) -> list[tuple[float, Head]]:
    """Least squares with each ridge on standardised columns, told on the columns as they are."""
    mean, spread = x.mean(0), x.std(0)
    spread[spread < 1e-6] = 1.0
    z, centre = (x - mean) / spread, targets.mean(0)
    wide = z.shape[1] > z.shape[0]
    values, vectors = np.linalg.eigh(z @ z.T if wide else z.T @ z)
    found: list[tuple[float, Head]] = []
    for ridge in ridges:
        inner = vectors / (np.maximum(values, 0.0) + ridge)
        y = targets - centre
        weight = z.T @ (inner @ (vectors.T @ y)) if wide else inner @ (vectors.T @ (z.T @ y))
        weight = (weight / spread[:, None]).T
        bias = centre - weight @ mean
        found.append((ridge, Head(weight.astype(np.float32), bias.astype(np.float32))))
    return found


def _agreement(values: Floats, gain: Floats) -> float:
    if values.std() == 0.0 or gain.std() == 0.0:
        return 0.0
    return float(np.corrcoef(values, gain)[0, 1])


def _note(
    pair: Pair, source: Source, settings: Settings, layers: Sequence[int], points: tuple[tuple[float, float], ...]
) -> Note:
    return Note(
        model=source.model,
        revision=source.revision,
        question=generative.wording(),
        layers=tuple(layers),
        curve=points,
        adapter=settings.epochs > 0,
        notes={"kind": "pair", "rows": len(pair), "data": pair.table.digest, "seed": settings.seed},
    )


# --- LoRA ------------------------------------------------------------------------------------------------


def _adapt(
    causal: Causal,
    texts: Sequence[str],
    pair: Pair,
    layers: Sequence[int],
    settings: Settings,
    team: Team,
    out: Path,
    say: Progress,
) -> None:
    """Train an adapter with a head of two targets on top, write it to `out`, and leave it merged into the model."""
    torch, peft = library("torch"), library("peft")
    torch.manual_seed(settings.seed)
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=2 * settings.rank,
        lora_dropout=0.0,
        target_modules=list(MODULES),
        layers_to_transform=list(range(max(layers))),  # the head reads nothing of those above
        bias="none",
    )
    model = causal.model = peft.get_peft_model(causal.model, config)
    width = len(layers) * int(model.config.hidden_size)
    top = torch.nn.Linear(width, 2).to(causal.device)
    weights = [p for p in model.parameters() if p.requires_grad] + list(top.parameters())
    optimiser = torch.optim.AdamW(weights, lr=settings.rate, weight_decay=0.0)
    labels = torch.tensor(np.column_stack([pair.weak, pair.strong]), dtype=torch.float32, device=causal.device)
    chance = np.random.default_rng(settings.seed)
    for epoch in range(settings.epochs):
        order = chance.permutation(len(texts))
        batches = [[int(order[i]) for i in part] for part in _cut(len(texts), settings.batch)]
        total, started = 0.0, perf_counter()
        for at in range(0, len(batches), settings.step):
            group = batches[at : at + settings.step]
            total += _step(causal, top, weights, optimiser, group, texts, labels, layers, settings.ranking, team)
        took = perf_counter() - started
        say(
            f"epoch {epoch + 1} of {settings.epochs}: loss {total / len(batches):.4f}, "
            f"{len(texts) / took:.1f} prompts/s by {team.size} processes"
        )
    if team.first:
        _saved(model, out / ADAPTER)
    causal.model = model.merge_and_unload().eval()


def _saved(model: Any, folder: Path) -> None:
    """Write the adapter, its note in one order: peft writes the names of the modules in a set's."""
    model.save_pretrained(str(folder), safe_serialization=True)
    (folder / "README.md").unlink(missing_ok=True)  # peft's empty form of a model card
    path = folder / "adapter_config.json"
    note = msgspec.json.decode(path.read_bytes())
    note["target_modules"] = sorted(note["target_modules"])
    path.write_bytes(msgspec.json.format(msgspec.json.encode(note, order="sorted"), indent=2) + b"\n")


def _step(
    causal: Causal,
    top: Any,
    weights: Sequence[Any],
    optimiser: Any,
    group: Sequence[Sequence[int]],
    texts: Sequence[str],
    labels: Any,
    layers: Sequence[int],
    ranking: float,
    team: Team,
) -> float:
    """One step on the mean of the batches' losses; returns their sum.

    Gradients travel batch by batch and are added in the batches' order: float sums depend on the order, and the
    weights shall not depend on who computed which batch. An adapter's gradients are small enough for that.
    """
    torch = causal.torch
    mine: list[tuple[float, Any]] = []
    for i in team.mine(len(group)):
        rows = list(group[i])
        both = top(causal.states([texts[row] for row in rows], layers))
        found = loss(torch, both, labels[rows], ranking)
        grads = torch.autograd.grad(found, weights)
        mine.append((float(found.detach()), torch.cat([g.detach().float().reshape(-1) for g in grads]).cpu()))
    every = team.gathered(mine, len(group))
    flat = every[0][1].clone()
    for _, gradient in every[1:]:
        flat += gradient
    flat /= len(group)
    at = 0
    for weight in weights:
        size = weight.numel()
        weight.grad = flat[at : at + size].reshape(weight.shape).to(weight.device, weight.dtype)
        at += size
    torch.nn.utils.clip_grad_norm_(list(weights), 1.0)
    optimiser.step()
    optimiser.zero_grad()
    return sum(value for value, _ in every)


def loss(torch: Any, both: Any, labels: Any, ranking: float) -> Any:
    """Both targets' cross-entropy, and for each two rows of a batch the one with more to gain should rank higher."""
    functional = torch.nn.functional
    own = functional.binary_cross_entropy_with_logits(both, labels)
    gain = labels[:, 1] - labels[:, 0]
    told = torch.sigmoid(both[:, 1]) - torch.sigmoid(both[:, 0])
    apart = gain[:, None] - gain[None, :]
    more = apart > 0
    if not bool(more.any()):
        return own
    between = functional.softplus(-4.0 * (told[:, None] - told[None, :]))  # 4: a gain lies in -1..1, so scale it up
    return own + ranking * (between * apart)[more].mean()


# --- under torchrun --------------------------------------------------------------------------------------


@click.command()
@click.option("--data", type=click.Path(path_type=Path), multiple=True, required=True, help="Labelled prompts.")
@click.option("--weak", required=True, metavar="COLUMN", help="Quality of the cheap model.")
@click.option("--strong", required=True, metavar="COLUMN", help="Quality of the dear model.")
@click.option("--model", required=True, metavar="ID|DIR", help="A causal model: a Hugging Face id or a folder.")
@click.option("--revision", help="Of the model on the hub.")
@click.option("--local-files-only", is_flag=True, help="Never ask the hub.")
@click.option("--layers", default="", metavar="N,N", help="Hidden states to read; half-way and three quarters up.")
@click.option("--batch", type=click.IntRange(1), default=8, show_default=True)
@click.option("--lora", "epochs", type=click.IntRange(0), default=0, show_default=True, help="Epochs of LoRA; 0: none.")
@click.option("--rank", type=click.IntRange(1), default=16, show_default=True, help="LoRA's.")
@click.option("--rate", type=float, default=1e-4, show_default=True, help="LoRA's learning rate.")
@click.option("--step", type=click.IntRange(1), default=8, show_default=True, help="Batches of one LoRA step.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Artifact directory.")
def command(
    data: tuple[Path, ...],
    weak: str,
    strong: str,
    model: str,
    revision: str | None,
    local_files_only: bool,
    layers: str,
    batch: int,
    epochs: int,
    rank: int,
    rate: float,
    step: int,
    seed: int,
    out: Path,
) -> None:
    """Train a generative scorer: torchrun --nproc-per-node 8 -m evals.generative --data FILE --weak A --strong B ..."""
    source = Source(model=model, revision=revision, local_files_only=local_files_only)
    settings = Settings(layers=numbers(layers), batch=batch, epochs=epochs, rank=rank, rate=rate, step=step, seed=seed)
    try:
        train_generative(data, weak, strong, out, source, settings, say=lambda line: click.echo(line, err=True))
    except (cases.BadData, generative.NotInstalled) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"wrote {out}", err=True)


def numbers(text: str) -> tuple[int, ...]:
    """Layer numbers in a list. Raises BadData."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise BadData(f"--layers must be numbers separated by commas, not {text!r}") from error


if __name__ == "__main__":
    command()

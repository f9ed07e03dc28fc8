"""`pointsman plan fit`: how many nodes of a cluster one model needs, and how fast it would be on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from router.cli.plan import CATALOG, CLUSTER, JSON, digits, plainly, ranged, show, span
from router.cluster import estimate, measure, reader
from router.cluster import fit as fits
from router.cluster.values import Cluster, Measured, Model, Parallel

BATCHES = (1, 4, 8, 16, 32)
PROMPT = 4096  # tokens of the prompt whose time to the first token is told


@click.command()
@CLUSTER
@click.option("--model", "model_name", metavar="NAME|FILE", required=True, help="The model.")
@click.option(
    "--context", type=click.IntRange(1), default=fits.CONTEXT, show_default=True, help="Tokens that must fit."
)
@click.option("--sequences", type=click.IntRange(1), default=fits.SEQUENCES, show_default=True, help="Streams at once.")
@click.option("--nodes", type=click.IntRange(1), help="Groups of so many nodes only.")
@click.option(
    "--measure",
    "measured",
    metavar="FILE[@NODES]",
    multiple=True,
    help="What `vllm bench serve --save-result` or `sglang.bench_serving --output-file` wrote; may be repeated.",
)
@CATALOG
@JSON
@plainly
def command(
    cluster_name: str,
    model_name: str,
    context: int,
    sequences: int,
    nodes: int | None,
    measured: tuple[str, ...],
    catalog: Path,
    as_json: bool,
) -> None:
    """The smallest group of nodes that holds a model, what is left for its cache, and how fast it would be.

    Rates are ranges: measured where the catalogue holds a benchmark, estimated where it does not. With --measure
    a benchmark of your own replaces the catalogue's of that size, and scales what is estimated beside it; NODES is
    the size of the group that was measured, where the file does not say: else the size that is found here.

    Exit code 0, 1 when the model fits nowhere, 2 on a mistake in a file or a name.
    """
    cluster = reader.cluster(cluster_name, catalog)
    model = reader.model(model_name, catalog)
    found = fits.fit(model, cluster, context=context, sequences=sequences, nodes=nodes)
    rows = _measured(measured, found)
    before, model = model, estimate.with_rows(model, rows)
    if as_json:
        refit = {"refit": _refit(rows, before, model, cluster)} if rows else {}
        show(_plain(found, model, cluster) | refit)
    else:
        click.echo("\n".join([*_lines(found, model, cluster), *_refit_lines(rows, before, model, cluster)]))
    raise SystemExit(0 if found.fits else 1)


def _measured(given: tuple[str, ...], found: fits.Fit) -> list[Measured]:
    rows: list[Measured] = []
    for one in given:
        name, _, size = one.rpartition("@")
        if not (name and size.isdecimal() and int(size)):
            name, size = one, str(found.parallel.nodes if found.parallel is not None else 1)
        rows.extend(reader.benchmark(Path(name), int(size)))
    return rows


def _refit(rows: list[Measured], before: Model, after: Model, cluster: Cluster) -> dict[str, Any]:
    """Each row beside what was said of it before and is said of it now, and what two sizes tell of others."""
    return {
        "rows": [
            {
                "nodes": row.nodes,
                "streams": row.concurrency,
                "measured_tokens_per_s": digits(row.tokens_per_s or 0.0),
                "before": ranged(estimate.decode(before, cluster, Parallel(tensor=row.nodes), row.concurrency)),
                "after": ranged(estimate.decode(after, cluster, Parallel(tensor=row.nodes), row.concurrency)),
                "model": row.note,
                "source": row.source,
            }
            for row in rows
        ],
        "step_ms": [
            {"streams": one.concurrency, "shared": digits(one.shared_ms), "paid": digits(one.paid_ms)}
            for one in measure.halves(rows)
        ],
    }


def _refit_lines(rows: list[Measured], before: Model, after: Model, cluster: Cluster) -> list[str]:
    lines: list[str] = ["measured:"] if rows else []
    for row in rows:
        was = estimate.decode(before, cluster, Parallel(tensor=row.nodes), row.concurrency)
        of = f"{row.nodes} node{'s' if row.nodes > 1 else ''}, {row.concurrency} stream{'s'[: row.concurrency - 1]}"
        lines.append(f"  {of}: {digits(row.tokens_per_s or 0.0):g} tokens/s; without it {span(was, 'tokens/s')}")
        if row.note and after.served.rpartition("/")[2].lower() not in row.note.lower():
            lines.append(f"  this is a benchmark of {row.note}; the plan is for {after.served}")
    for one in measure.halves(rows):
        lines.append(
            f"  a step with {one.concurrency} streams takes {one.shared_ms:.1f} ms / nodes + {one.paid_ms:.1f} ms; the "
            "second part grows with the nodes, so larger groups will be slower than this says"
        )
    return lines


def _plain(found: fits.Fit, model: Model, cluster: Cluster) -> dict[str, Any]:
    refused = [{"layout": str(parallel), "nodes": parallel.nodes, "why": why} for parallel, why in found.refused]
    shown: dict[str, Any] = {"model": model.name, "cluster": cluster.name, "fits": found.fits}
    if found.parallel is None or found.need is None:
        nothing = {"nodes": None, "layout": None, "kv_tokens": None, "per_node_gib": None, "decode_tokens_per_s": None}
        return shown | nothing | {"why": list(found.why), "would": found.would, "refused": refused}
    parallel, need = found.parallel, found.need
    batches = {str(b): ranged(estimate.decode(model, cluster, parallel, b)) for b in BATCHES}
    return shown | {
        "nodes": parallel.nodes,
        "layout": str(parallel),
        "kv_tokens": need.kv_tokens,
        "kv_bytes_per_token": model.kv_bytes_per_token,
        "per_node_gib": round(need.per_node_gib, 1),
        "usable_gib": round(need.usable_gib, 1),
        "decode_tokens_per_s": ranged(estimate.decode(model, cluster, parallel)),
        "decode_tokens_per_s_by_streams": batches,
        "prefill_tokens_per_s": ranged(estimate.prefill(model, cluster, parallel)),
        "ttft_s": ranged(estimate.ttft_s(model, cluster, parallel, PROMPT)) | {"prompt_tokens": PROMPT},  # type: ignore[operator]
        "legal": fits.legal(model, cluster),
        "why": list(found.why),
        "also": [
            {"layout": str(p), "nodes": p.nodes, "kv_tokens": n.kv_tokens, "per_node_gib": round(n.per_node_gib, 1)}
            for p, n in found.also
        ],
        "refused": refused,
        "facts": {
            key: {"value": fact.value, "basis": fact.basis, "source": fact.source} for key, fact in model.facts.items()
        },
    }


def _lines(found: fits.Fit, model: Model, cluster: Cluster) -> list[str]:
    if found.parallel is None:
        reasons = [f"  {parallel}: {why}" for parallel, why in found.refused if parallel.pipeline == 1]
        return [f"{found.why[0]}: {found.would}", *reasons]
    rows = [
        f"  {b:>3} stream{'s' if b > 1 else ' '} {span(estimate.decode(model, cluster, found.parallel, b), 'tokens/s')}"
        for b in BATCHES
    ]
    prefill = span(estimate.prefill(model, cluster, found.parallel), "tokens/s")
    first = span(estimate.ttft_s(model, cluster, found.parallel, PROMPT), "s")
    return [
        *found.why,
        "decode:",
        *rows,
        f"prefill: {prefill}",
        f"first token of a prompt of {PROMPT:,}: {first}",
    ]

"""What a simulation of a cluster came to: as JSON, as lines, and as one HTML page with plots and a table.

The simulation itself is the product's (`router.cluster.scenario`); nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from msgspec.structs import asdict

from evals.plots import Plot, figure, interval, percent, plain
from evals.report_style import STYLE
from router.cluster.frontier import Point
from router.cluster.scenario import ARMS, KEPT, Arm, Outcome, Scenario

COLOURS = {"large_only": "var(--c1)", "small_only": "var(--c2)", "random": "var(--c3)", "routed": "var(--c0)"}
NAMES = {"large_only": "large only", "small_only": "small only", "random": "at random", "routed": "routed"}


def as_json(outcome: Outcome, sweep: Sequence[Outcome], points: Sequence[Point] = ()) -> dict[str, Any]:
    """The whole result; rates per second, durations in seconds."""
    shown: dict[str, Any] = {
        "scenario": outcome.scenario,
        "seed": outcome.seed,
        "requests": outcome.requests,
        "per_s": outcome.per_s,
        "rates": outcome.rates,
        "threshold": round(outcome.threshold, 4),
        "arms": {name: _arm(outcome.arms[name]) for name in ARMS},
        "routed_minus": {
            name: {"quality": round(v, 4), "ci": [round(low, 4), round(high, 4)]}
            for name, (v, low, high) in outcome.differences.items()
        },
    }
    freed = freed_share(outcome)
    if freed is not None:
        shown["freed_share"] = round(freed, 3)
    if sweep:
        shown["loads"] = [{"per_s": one.per_s, "arms": {name: _arm(one.arms[name]) for name in ARMS}} for one in sweep]
    if points:
        shown["shares"] = [
            {key: value if isinstance(value, str) else round(value, 4) for key, value in asdict(one).items()}
            for one in points
        ]
    return shown


def _arm(arm: Arm) -> dict[str, Any]:
    digits = {
        "offered_rps": arm.offered_rps,
        "throughput_tokens_per_s": arm.throughput_tokens_per_s,
        "goodput_rps": arm.goodput_rps,
        "within_objective": arm.within,
        "quality": arm.quality,
        "ttft_p50_s": arm.ttft_p50_s,
        "ttft_p95_s": arm.ttft_p95_s,
        "tpot_p95_s": arm.tpot_p95_s,
        "large_share": arm.large_share,
        "abstained_share": arm.abstained_share,
        "wh_per_request": arm.wh_per_request,
        "capacity_rps": arm.capacity_rps,
    }
    return {
        "layout": arm.layout,
        **{key: None if value is None else round(value, 4) for key, value in digits.items()},
        "quality_ci": [round(v, 4) for v in arm.quality_ci],
        "busy": {name: round(v, 3) for name, v in arm.busy.items()},
    }


def freed_share(outcome: Outcome) -> float | None:
    """The part of the cluster that large-only's greatest load leaves free when it is routed; below 0 it takes more."""
    large, mixed = outcome.arms["large_only"].capacity_rps, outcome.arms["routed"].capacity_rps
    return None if not large or not mixed else 1 - large / mixed


def sentences(of: Scenario, outcome: Outcome) -> list[str]:
    """The finding in words, the loads at which routing buys nothing included."""
    arms = outcome.arms
    mixed, large = arms["routed"], arms["large_only"]
    v, low, high = outcome.differences["large_only"]
    r, r_low, r_high = outcome.differences["random"]
    told = [
        f"Routed, {percent(mixed.large_share)} of the requests go to the large group; quality is {mixed.quality:.3f} "
        f"[{mixed.quality_ci[0]:.3f}, {mixed.quality_ci[1]:.3f}], {v:+.3f} [{low:+.3f}, {high:+.3f}] against "
        f"large only and {r:+.3f} [{r_low:+.3f}, {r_high:+.3f}] against as many requests sent there at random."
    ]
    freed = freed_share(outcome)
    if freed is not None:
        bears = (
            f"Within {of.objective.ttft_s:g} s to the first token and {1000 * of.objective.tpot_s:g} ms a token for "
            f"{percent(KEPT)} of the requests, the cluster bears {mixed.capacity_rps:.2f} requests a second routed and "
            f"{large.capacity_rps:.2f} with the large model only"
        )
        nodes = abs(freed) * len(of.cluster.nodes)
        if freed > 0.01:
            told.append(f"{bears}: as if {nodes:.1f} of {len(of.cluster.nodes)} nodes were free.")
            told.append(
                f"Up to {large.capacity_rps:.2f} requests a second large only keeps the objective too: there routing "
                "frees nodes that are not needed, and costs quality."
            )
        else:
            told.append(f"{bears}: routing frees nothing here, and costs quality.")
    return told


def lines(of: Scenario, outcome: Outcome, sweep: Sequence[Outcome], points: Sequence[Point] = ()) -> list[str]:
    """For people on a terminal, and for docs: a Markdown table."""
    shown = [
        f"{of.name}: {of.about}" if of.about else of.name,
        f"{outcome.requests:,} requests at {outcome.per_s:g} a second, seed {outcome.seed}, rates from the "
        f"{outcome.rates} of their ranges",
        "",
        "| | layout | large share | quality | bears, requests/s | within objective | TTFT p95, s | TPOT p95, ms "
        "| tokens/s | Wh a request |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_row(name, outcome.arms[name]) for name in ARMS),
        "",
        *sentences(of, outcome),
    ]
    if sweep:
        shown += ["", "| requests/s | " + " | ".join(f"{NAMES[name]}, within" for name in ARMS) + " |"]
        shown.append("|---|" + "---|" * len(ARMS))
        shown += [
            f"| {one.per_s:g} | " + " | ".join(percent(one.arms[name].within) for name in ARMS) + " |" for one in sweep
        ]
    if points:
        shown += ["", "| large share | layout | bears routed, requests/s | quality | bears at random | quality |"]
        shown.append("|---|---|---|---|---|---|")
        shown += [
            f"| {percent(one.share)} | `{one.layout}` | {one.capacity_rps:.2f} | {one.quality:.3f} | "
            f"{one.random_capacity_rps:.2f} | {one.random_quality:.3f} |"
            for one in points
        ]
    return shown


def _row(name: str, arm: Arm) -> str:
    bears = "–" if arm.capacity_rps is None else f"{arm.capacity_rps:.2f}"
    energy = "–" if arm.wh_per_request is None else f"{arm.wh_per_request:.2f}"
    return (
        f"| {NAMES[name]} | `{arm.layout}` | {percent(arm.large_share)} | {arm.quality:.3f} [{arm.quality_ci[0]:.3f}, "
        f"{arm.quality_ci[1]:.3f}] | {bears} | {percent(arm.within)} | {arm.ttft_p95_s:.2f} | "
        f"{1000 * arm.tpot_p95_s:.0f} | {arm.throughput_tokens_per_s:,.0f} | {energy} |"
    )


# --- the page --------------------------------------------------------------------------------------------


def page(of: Scenario, outcome: Outcome, sweep: Sequence[Outcome], points: Sequence[Point] = ()) -> str:
    """One self-contained HTML page."""
    title = of.about or of.name
    lead = "".join(f'<p class="lead">{escape(line)}</p>' for line in sentences(of, outcome))
    plots = _quality_by_load(outcome, points) + "".join(_by_load(of, outcome, sweep))
    foot = "; ".join([*of.sources, *_rate_sources(of)])
    how = (
        f"{outcome.requests:,} requests at {outcome.per_s:g} a second, seed {outcome.seed}; rates from the "
        f"{outcome.rates} of their ranges. The same requests go every way, each over the "
        f"{len(of.cluster.nodes)} nodes of {of.cluster.name}. Brackets are 95% intervals over prompts."
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main><h1>{escape(title)}</h1>"
        f'<p class="intro">{escape(how)}</p>{lead}<div class="plots">{plots}</div>'
        f'<div class="scroll">{_table(outcome)}</div><p class="foot">{escape(foot)}</p></main></body></html>\n'
    )


def _rate_sources(of: Scenario) -> list[str]:
    rows = {row.source for model in of.models.values() for row in model.measured}
    return [f"rates: {', '.join(sorted(rows)) or 'estimated'}, and estimates where nothing was measured"]


def _table(outcome: Outcome) -> str:
    heads = ("", "large share", "quality", "95% interval", "", "bears, requests/s", "within objective",
             "TTFT p95, s", "TPOT p95, ms", "tokens/s", "Wh a request", "abstained", "layout")  # fmt: skip
    spans = [arm.quality_ci for arm in outcome.arms.values()]
    scale = (min(low for low, _ in spans), max(high for _, high in spans))
    large = outcome.arms["large_only"].quality
    rows = ""
    for name in ARMS:
        arm = outcome.arms[name]
        mark = interval(arm.quality_ci[0], arm.quality, arm.quality_ci[1], scale, COLOURS[name], large)
        cells = [
            percent(arm.large_share),
            f"{arm.quality:.3f}",
            f"[{arm.quality_ci[0]:.3f}, {arm.quality_ci[1]:.3f}]",
            mark,
            "–" if arm.capacity_rps is None else f"{arm.capacity_rps:.2f}",
            percent(arm.within),
            f"{arm.ttft_p95_s:.2f}",
            f"{1000 * arm.tpot_p95_s:.0f}",
            f"{arm.throughput_tokens_per_s:,.0f}",
            "–" if arm.wh_per_request is None else f"{arm.wh_per_request:.2f}",
            percent(arm.abstained_share),
            f"<code>{escape(arm.layout)}</code>",
        ]
        head = f'<th scope="row"><i style="background:{COLOURS[name]}"></i>{NAMES[name]}</th>'
        rows += f"<tr>{head}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table>"


def _quality_by_load(outcome: Outcome, points: Sequence[Point]) -> str:
    """Each arm as a dot: the load that it bears, and its quality with the interval; and other shares as lines."""
    borne = {name: arm.capacity_rps for name, arm in outcome.arms.items() if arm.capacity_rps is not None}
    if not borne:
        return ""
    spans = [outcome.arms[name].quality_ci for name in borne]
    plot = Plot(
        (0.0, 1.12 * max([*borne.values(), *(one.random_capacity_rps for one in points)])),
        (min(low for low, _ in spans) - 0.02, max(high for _, high in spans) + 0.02),
        ("requests a second within the objective", "quality"),
        "quality by load",
    )
    for name, load in borne.items():
        arm = outcome.arms[name]
        plot.line([[load, arm.quality_ci[0]], [load, arm.quality_ci[1]]], COLOURS[name], "95% interval")
        plot.dot(load, arm.quality, COLOURS[name], f"{NAMES[name]}: {load:.2f} requests/s, quality {arm.quality:.3f}")
        plot.note(load, arm.quality, NAMES[name])
    for name, line in (
        ("routed", [[one.capacity_rps, one.quality] for one in points]),
        ("random", [[one.random_capacity_rps, one.random_quality] for one in points]),
    ):
        for (x, y), one in zip(line, points, strict=True):
            plot.dot(x, y, COLOURS[name], f"{NAMES[name]}, {percent(one.share)} large, {one.layout}", radius=3.0)
    caption = "Right is more traffic on the same nodes, up is better answers."
    if points:
        caption += " Small dots are other shares of the large group, each with the layout that suits it."
    return figure("Quality, and the load that is borne", plot, caption)


def _by_load(of: Scenario, outcome: Outcome, sweep: Sequence[Outcome]) -> list[str]:
    if len(sweep) < 2:
        return []
    limit = of.objective.ttft_s
    entries = [(NAMES[name], COLOURS[name], "") for name in ARMS]
    told: list[tuple[str, str, Callable[[Arm], float], Callable[[float], str], str]] = [
        ("Requests within the objective", "share of requests", lambda arm: arm.within, percent,
         "Where a curve falls, the load is more than that way bears."),
        ("Served well", "requests a second", lambda arm: arm.goodput_rps, plain,
         "Goodput: requests within the objective."),
        ("Time to the first token, 95th percentile", "seconds", lambda arm: min(arm.ttft_p95_s, 4 * limit), plain,
         f"Cut off at {4 * limit:g} s; the objective is {limit:g} s."),
    ]  # fmt: skip
    return [_curve(sweep, title, axis, value, say, caption, entries) for title, axis, value, say, caption in told]


def _curve(
    sweep: Sequence[Outcome],
    title: str,
    axis: str,
    value: Callable[[Arm], float],
    say: Callable[[float], str],
    caption: str,
    entries: Sequence[tuple[str, str, str]],
) -> str:
    curves: Mapping[str, list[list[float]]] = {
        name: [[one.per_s, value(one.arms[name])] for one in sweep] for name in ARMS
    }
    top = max(point[1] for points in curves.values() for point in points)
    across = (0.0, max(one.per_s for one in sweep))
    plot = Plot(across, (0.0, 1.05 * top), ("requests a second", axis), title, (plain, say))
    for name, points in curves.items():
        plot.line(points, COLOURS[name], NAMES[name], width=2.8 if name == "routed" else 2.0)
    return figure(title, plot, caption, entries)

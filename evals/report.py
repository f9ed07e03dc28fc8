"""`pointsman eval report`: results of `eval run` drawn as one HTML page with inline SVG and no other file.

Takes the JSON that `run` wrote: results on the same rows stand in one section, side by side. No measuring here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, cast

from evals.cases import BadData
from evals.plots import Plot, between, dollars, figure, interval, percent, plain
from evals.report_style import STYLE

Result = Mapping[str, Any]

SCORERS = ("var(--c0)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)", "var(--c7)")
BASELINES = {
    "length": ("prompt length", "var(--c1)", "6 3"),
    "domain_prior": ("knowing the domain", "var(--c2)", "6 3"),
}
SHOWN = 12  # rows of a table before the rest is folded away

_PAIR = ("apgr", "apgr_ci", "curve", "weak", "strong", "length", "at_policy", "data")
_NWAY = ("groups", "frontier", "at_policy", "data")


def check(result: Any, name: str) -> Result:
    """A result of `eval run`. Raises `BadData`."""
    if isinstance(result, dict):
        found = cast("dict[str, Any]", result)
        if any(all(key in found for key in keys) for keys in (_PAIR, _NWAY)):
            return found
    raise BadData(f"{name}: not a result of `pointsman eval run --json`")


def _number(v: Any, digits: int = 3) -> str:
    return "–" if v is None else f"{v:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _percent(v: Any) -> str:
    return "–" if v is None else f"{100 * v:.1f}%"


def _span(ci: Sequence[float | None]) -> str:
    return f"[{_number(ci[0])}, {_number(ci[1])}]"


def _name(result: Result) -> str:
    scorer = result.get("scorer", {})
    folds = scorer.get("folds")
    what = "cascade" if scorer.get("cascade") else str(scorer.get("name", "scorer"))
    how = f"trained for the pair, {folds} folds" if folds else ""
    held = f", {scorer['holdout']} held out" if folds and scorer.get("holdout") else ""
    return f"{what} ({how}{held})" if how else what


def _models(result: Result) -> tuple[str, str]:
    models = result.get("models", {})
    return str(models.get("weak", "the weak model")), str(models.get("strong", "the strong model"))


# --- one pair --------------------------------------------------------------------------------------------


def _curves(results: Sequence[Result]) -> str:
    first = results[0]
    extra: Mapping[str, Any] = first.get("curves", {})
    lines = [*(r["curve"] for r in results), *extra.values()]
    values = [q for points in lines for _, q in points]
    low, high = min(values), max(values)
    pad = 0.04 * (high - low or 1.0)
    weak, strong = _models(first)
    plot = Plot((0.0, 1.0), (low - pad, high + pad), (f"share sent to {strong}", "quality"), "cost and quality",
                (percent, plain))  # fmt: skip
    entries = [("by chance", "var(--soft)", "2 3")]
    plot.line([[0.0, first["weak"]], [1.0, first["strong"]]], "var(--soft)", "by chance", dash="2 3", width=1.5)
    if "oracle" in extra:
        plot.line(extra["oracle"], "var(--soft)", "oracle", dash="8 3 2 3", width=1.5)
        entries.append(("oracle", "var(--soft)", "8 3 2 3"))
    for key, (name, colour, dash) in BASELINES.items():
        if key in extra:
            plot.line(extra[key], colour, name, dash=dash, width=1.7)
            entries.append((name, colour, dash))
    for result, colour in zip(results, SCORERS, strict=False):
        plot.line(result["curve"], colour, _name(result), width=2.8)
        entries.append((_name(result), colour, ""))
    for result, colour in zip(results, SCORERS, strict=False):
        at = result["at_policy"]
        told = f"policy {at['policy']}: {_percent(at['strong_share'])} strong, quality {_number(at['quality'])}"
        plot.dot(at["strong_share"], at["quality"], colour, told, radius=5.5, ring=True)
    caption = f"Left: every prompt to {weak}. Right: every prompt to {strong}. A ringed dot is where the policy stands."
    return figure("Quality by share of dear calls", plot, caption, entries)


def _dollar_curve(results: Sequence[Result]) -> str:
    priced = [(r, c) for r, c in zip(results, SCORERS, strict=False) if "dollars" in r]
    if not priced:
        return ""
    first = priced[0][0]
    per: Mapping[str, float] = first["dollars"]["per_1k"]
    values = [q for r, _ in priced for _, q in r["dollars"]["curve"]] + [first["weak"], first["strong"]]
    costs = [c for r, _ in priced for c, _ in r["dollars"]["curve"]]
    pad = 0.04 * (max(values) - min(values) or 1.0)
    axes = ("US$ per 1,000 requests", "quality")
    across = (min(0.0, *costs), max(costs) * 1.02)
    plot = Plot(across, (min(values) - pad, max(values) + pad), axes, "quality by dollars",
                (dollars, plain))  # fmt: skip
    ends = [[per["weak"], first["weak"]], [per["strong"], first["strong"]]]
    plot.line(ends, "var(--soft)", "by chance", dash="2 3", width=1.5)
    for r, colour in priced:
        plot.line(r["dollars"]["curve"], colour, _name(r), width=2.8)
        spent = r["dollars"]["per_1k"]["policy"]
        plot.dot(spent, r["at_policy"]["quality"], colour, f"policy: {dollars(spent)}", radius=5.5, ring=True)
    for (x, y), name in zip(ends, _models(first), strict=True):
        plot.dot(x, y, "var(--ink)", f"{name}: {dollars(x)}", radius=3.5)
        plot.note(x, y, name)
    sources = ", ".join(f"{m}: {s}" for m, s in first["dollars"].get("output_tokens_from", {}).items())
    return figure("Quality by dollars", plot, f"Tokens of answers, by column: {sources}." if sources else "")


def _calibration(result: Result, colour: str) -> str:
    points = result.get("calibration", [])
    if not points:
        return ""
    weak, _ = _models(result)
    plot = Plot((0.0, 1.0), (0.0, 1.0), ("score", f"share that {weak} fails"), "calibration")
    plot.line([[0.0, 0.0], [1.0, 1.0]], "var(--soft)", "a score that means what it says", dash="2 3", width=1.5)
    plot.line([p[:2] for p in points], colour, _name(result), width=1.5)
    for x, y, n in points:
        plot.dot(x, y, colour, f"{n} prompts: score {x:.2f}, fails {y:.2f}")
    ece = _number(result.get("ece"))
    caption = f"Each dot is a twelfth of the prompts. On the dotted line a score means what it says; mean error {ece}."
    return figure(f"Calibration: {_name(result)}", plot, caption)


def _histogram(result: Result) -> str:
    bars = result.get("histogram", [])
    if not bars:
        return ""
    top = max(b["weak"] + b["strong"] for b in bars) or 1
    plot = Plot((0.0, 1.0), (0.0, float(top)), ("score", "prompts"), "scores by group")
    weak, strong = _models(result)
    for b in bars:
        span = f"scores {b['from']:.2f} to {b['to']:.2f}"
        plot.bar(b["from"], b["to"], 0, b["weak"], "var(--c2)", f"{b['weak']} to {weak}, {span}")
        both = b["weak"] + b["strong"]
        plot.bar(b["from"], b["to"], b["weak"], both, "var(--c1)", f"{b['strong']} to {strong}, {span}")
    at = result["at_policy"]
    entries = [(f"to {weak}", "var(--c2)", ""), (f"to {strong}", "var(--c1)", "")]
    caption = f"Policy {at['policy']} sends {_percent(at['strong_share'])} to {strong}."
    return figure(f"Scores by group: {_name(result)}", plot, caption, entries)


def _compared(results: Sequence[Result]) -> str:
    """Every scorer and baseline in one table, their intervals drawn to one scale."""
    first = results[0]
    rows: list[tuple[str, str, float | None, Sequence[float | None], Result | None]] = [
        (_name(r), c, r["apgr"], r["apgr_ci"], r) for r, c in zip(results, SCORERS, strict=False)
    ]
    for key, (name, colour, _) in BASELINES.items():
        if first.get(key) is not None:
            rows.append((name, colour, first[key], first[f"{key}_ci"], None))
    known = [v for _, _, a, ci, _ in rows for v in (a, *ci) if v is not None]
    scale = (min([0.45, *known]), max([0.7, *known]))
    body = ""
    for name, colour, value, ci, result in rows:
        low, high = ci
        drawn = ""
        if value is not None and low is not None and high is not None:
            drawn = interval(low, value, high, scale, colour, 0.5)
        more = ["", "", "", ""]
        if result is not None:
            shares = [_percent(result["cpt50"]), _percent(result["cpt80"])]
            more = [_span(result["against_length"]), *shares, _number(result["auroc"])]
        cells = "".join(f"<td>{c}</td>" for c in (_number(value), _span(ci), drawn, *more))
        body += f'<tr><th scope="row"><i style="background:{colour}"></i>{escape(name)}</th>{cells}</tr>'
    oracle = first.get("oracle")
    if oracle is not None:
        body += f'<tr class="quiet"><th scope="row">oracle</th><td>{_number(oracle)}</td>{"<td></td>" * 6}</tr>'
    head = _head("", "APGR", "95% interval", "chance is the hairline", "over length", "CPT 50%", "CPT 80%", "AUROC")
    return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>'


def _head(*names: str) -> str:
    return "<thead><tr>" + "".join(f'<th scope="col">{escape(n)}</th>' for n in names) + "</tr></thead>"


def _domains(result: Result) -> str:
    rows = result.get("by_domain", [])
    if not rows:
        return ""
    values = [r[k] for r in rows for k in ("weak", "strong")]
    scale = (min(values), max(values) if max(values) > min(values) else min(values) + 1.0)
    body: list[str] = []
    for r in rows:
        routed = r.get("quality")
        drawn = "" if routed is None else between(r["weak"], r["strong"], routed, scale)
        clear = abs(r["strong"] - r["weak"]) >= 0.05 and r["n"] >= 50  # else the ratio is noise
        cells = (str(r["n"]), _number(r["weak"]), _number(r["strong"]), _percent(r.get("strong_share")),
                 _number(routed), drawn, _number(r["apgr"]) if clear else "–")  # fmt: skip
        body.append(
            f'<tr><th scope="row">{escape(r["domain"])}</th>' + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"
        )
    weak, strong = _models(result)
    head = _head("", "prompts", weak, strong, "sent up", "routed", "routed between both", "APGR within")
    note = "<p>APGR within a domain is left out under 50 prompts, and where the models differ by less than .05.</p>"
    return f"<h3>By domain: {escape(_name(result))}</h3>{note}{_folded(head, body)}"


def _folded(head: str, rows: Sequence[str]) -> str:
    """A table whose further rows are folded away."""
    out = f'<div class="scroll"><table>{head}<tbody>{"".join(rows[:SHOWN])}</tbody></table></div>'
    if len(rows) > SHOWN:
        rest = f'<div class="scroll"><table>{head}<tbody>{"".join(rows[SHOWN:])}</tbody></table></div>'
        out += f"<details><summary>{len(rows) - SHOWN} more</summary>{rest}</details>"
    return out


def _costly(result: Result) -> str:
    rows = result.get("costly", [])
    if not rows:
        return ""
    body = [
        f'<tr><td class="text">{escape(_brief(r["prompt"]))}</td><td>{_number(r["score"])}</td>'
        f'<td class="why">{escape(r["why"])}</td></tr>'
        for r in rows
    ]
    head = _head("prompt", "score", "what it cost").replace('<th scope="col">what', '<th scope="col" class="why">what')
    return f"<h3>Prompts that cost most: {escape(_name(result))}</h3>{_folded(head, body)}"


def _brief(prompt: str) -> str:
    bare = " ".join(prompt.split())
    return bare if len(prompt) < 200 else bare + "…"  # `run` keeps so many characters


def _card(value: str, name: str) -> str:
    return f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'


def _lead(result: Result) -> str:
    """The result in two sentences."""
    weak, strong = _models(result)
    at, gap = result["at_policy"], result["strong"] - result["weak"]
    part = f", {percent((at['quality'] - result['weak']) / gap)} of the gap between the two" if abs(gap) > 1e-9 else ""
    low, high = result["against_length"]
    if low is None or high is None:
        verdict = "The two models are equally good, so there is nothing to recover"
    elif low > 0:
        verdict = "It ranks prompts better than their length does"
    else:
        verdict = (
            "It ranks prompts worse than their length does" if high < 0 else "It is not told apart from prompt length"
        )
    scorer = result.get("scorer", {})
    held = "" if scorer.get("folds") else " Nothing was fitted in this run."
    if scorer.get("learned_from_this_file"):
        held = " It learned from these very prompts, so this is no test of it."
    return (
        f"With {_name(result)}, sending {_percent(at['strong_share'])} of the prompts to {strong} and the rest to "
        f"{weak} gives a quality of {_number(at['quality'])}{part}. {verdict} (APGR {_number(result['apgr'])}, length "
        f"{_number(result['length'])}).{held}"
    )


def _cards(result: Result) -> str:
    weak, strong = _models(result)
    cards = [
        _card(_number(result["apgr"]), f"APGR {_span(result['apgr_ci'])}"),
        _card(f"{_number(result['weak'])} → {_number(result['strong'])}", f"{weak} → {strong}"),
        _card(_percent(result["cpt50"]), "dear calls for half of the gap"),
        _card(_percent(result["cpt80"]), "dear calls for 80% of it"),
    ]
    spent = result.get("dollars")
    if spent is not None:
        per = spent["per_1k"]
        cards.append(_card(dollars(per["policy"]), f"per 1,000 requests; all to {strong}: {dollars(per['strong'])}"))
        cards.append(_card(_percent(spent["saved_share"]), "saved by the policy"))
    return f'<div class="cards">{"".join(cards)}</div>'


def _live(result: Result) -> str:
    live = result.get("live")
    if live is None:
        return ""
    judge = live["judge"]
    by = f"judged by {judge['model']}, both orders" if judge["kind"] == "llm" else f"judged by {judge['kind']}"
    cut = sum(live["cut_short"].values())
    return f"<p>Asked through the gateway: {live['answers']:,} answers, {by}; {len(live['failed'])} calls failed, {cut} answers cut short.</p>"  # noqa: E501


def _foot(result: Result) -> str:
    config = f"; configuration {result['config']['sha256'][:12]}" if "config" in result else ""
    data, count = result["data"], f"{result['n']:,} prompts, {result['abstained']:,} without a score"
    drawn = f"95% intervals from {result['draws']:,} paired bootstrap draws, seed {result['seed']}"
    return (
        f'<p class="foot">{escape(data["file"])}, sha256 {escape(data["sha256"][:12])}{config}; {count}; {drawn}.</p>'
    )


def _pair(results: Sequence[Result]) -> str:
    best = max(results, key=lambda r: r["apgr"] if r["apgr"] is not None else -1.0)
    weak, strong = _models(best)
    each = zip(results, SCORERS, strict=False)
    plots = "".join(_calibration(r, c) + _histogram(r) for r, c in each)
    return (
        f"<section><h2>{escape(weak)} or {escape(strong)}</h2>"
        f'<p class="lead">{escape(_lead(best))}</p>{_live(best)}{_cards(best)}'
        f'<div class="plots">{_curves(results)}{_dollar_curve(results)}</div>{_compared(results)}'
        f'<div class="plots">{plots}</div>{"".join(_domains(r) + _costly(r) for r in results)}{_foot(best)}</section>'
    )


# --- more than two groups --------------------------------------------------------------------------------


def _nway(result: Result) -> str:
    at, groups, unit = result["at_policy"], result["groups"], result["cost_unit"]
    say = dollars if unit.startswith("US$") else plain
    scale = 1000.0 if unit.startswith("US$") else 1.0
    points = [(p["cost"] * scale, p["quality"]) for p in result["frontier"]]
    singles = [(g["cost"] * scale, g["quality"]) for g in groups]
    every = [*points, *singles, (at["cost"] * scale, at["quality"])]
    low, high = min(q for _, q in every), max(q for _, q in every)
    pad = 0.06 * (high - low or 1.0)
    axis = "US$ per 1,000 requests" if scale > 1 else f"cost, {unit}"
    plot = Plot((0.0, max(c for c, _ in every) * 1.05), (low - pad, high + pad), (axis, "quality"), "frontier",
                (say, plain))  # fmt: skip
    plot.line(singles, "var(--soft)", "single groups mixed by chance", dash="2 3", width=1.5)
    plot.line(points, SCORERS[0], "frontier of the scorer", width=2.8)
    for (x, y), g in zip(singles, groups, strict=True):
        plot.dot(x, y, "var(--ink)", f"{g['name']}: {say(x)}", radius=4)
        plot.note(x, y, g["name"])
    plot.dot(at["cost"] * scale, at["quality"], SCORERS[0], f"policy {at['policy']}", radius=5.5, ring=True)
    rows = [
        f'<tr><th scope="row">{escape(g["name"])}</th><td>{_number(g["quality"])}</td><td>{_span(g["quality_ci"])}</td>'
        f"<td>{say(g['cost'] * scale)}</td><td>{_percent(at['shares'][g['name']])}</td>"
        f"<td>{_span(at['against'][g['name']])}</td></tr>"
        for g in groups
    ]
    rows.append(
        f'<tr><th scope="row"><i style="background:{SCORERS[0]}"></i>policy</th><td>{_number(at["quality"])}</td>'
        f"<td>{_span(at['quality_ci'])}</td><td>{say(at['cost'] * scale)}</td><td></td><td></td></tr>"
    )
    head = _head("", "quality", "95% interval", axis, "policy sends", "policy minus this group")
    names = ", ".join(g["name"] for g in groups)
    above = "above" if at["quality"] > result["mixing_same_cost"] else "not above"
    lead = (
        f"With bands at {', '.join(plain(b) for b in at['bands'])} the policy gives {_number(at['quality'])}, "
        f"over chance at the same shares by {_span(at['against_random'])} and over prompt length by "
        f"{_span(at['against_length'])}; {above} what mixing groups by chance gives for the same money "
        f"({_number(result['mixing_same_cost'])})."
    )
    caption = "The frontier is the best of a sweep over bands, picked on these rows: confirm a point of it on others."
    entries = [("by chance", "var(--soft)", "2 3"), (_name(result), SCORERS[0], "")]
    return (
        f'<section><h2>{escape(names)}</h2><p class="lead">{escape(lead)}</p>'
        f'<div class="plots">{figure("Quality by cost", plot, caption, entries)}'
        f'{_frontier(result, scale)}</div><div class="scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'
        f"{_foot(result)}</section>"
    )


def _frontier(result: Result, scale: float) -> str:
    """The bands of every point of the frontier, with what they give."""
    say = dollars if scale > 1 else plain
    rows = [
        f'<tr><th scope="row">{", ".join(plain(b) for b in p["bands"])}</th>'
        f"<td>{' / '.join(percent(s) for s in p['shares'].values())}</td><td>{_number(p['quality'])}</td>"
        f"<td>{say(p['cost'] * scale)}</td></tr>"
        for p in result["frontier"]
    ]
    head = _head("bands", "shares, cheapest first", "quality", "per 1,000" if scale > 1 else "cost")
    return f"<div><h3>Bands on the frontier</h3>{_folded(head, rows)}</div>"


def page(results: Sequence[Result]) -> str:
    """The whole page; results of the same pair on the same rows share a section."""
    sections: dict[tuple[Any, ...], list[Result]] = {}
    for i, r in enumerate(results):
        key = (i,) if "groups" in r else (r["data"]["sha256"], r["n"], r["weak"], r["strong"])
        sections.setdefault(key, []).append(r)
    body = "".join(_nway(rs[0]) if "groups" in rs[0] else _pair(rs) for rs in sections.values())
    intro = (
        "How much of the gap between a cheap and a dear model a scorer recovers, and for how many dear calls. "
        "APGR is the average over all shares: chance gives 0.5, and a scorer has to beat the prompt's length to be "
        "worth running."
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Routing quality</title><style>{STYLE}</style></head><body><main><h1>Routing quality</h1>"
        f'<p class="intro">{intro}</p>{body}</main></body></html>\n'
    )

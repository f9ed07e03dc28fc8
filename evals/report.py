"""`pointsman eval report`: results of `eval run` drawn as one HTML page with inline SVG and no other file.

Takes the JSON that `run` wrote, one result or several on the same or on different files. No measuring here.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 360, 56, 40
_COLOURS = ("#0b6e4f", "#b5432a", "#30559e", "#8a5a00", "#6b3fa0", "#00798c")

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6570; --line: #d8dde3; --paper: #ffffff; --tint: #f4f6f8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #9aa4af; --line: #39414a; --paper: #14181c; --tint: #1d2329 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 68rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif }
h1 { font-size: 1.7rem; margin: 0 0 .25rem } h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem } figcaption { font-size: .9rem }
p, figcaption { color: var(--soft); margin: .25rem 0 .75rem; max-width: 46rem } figure { margin: 0 }
.cards { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0 }
.card { background: var(--tint); border-radius: .5rem; padding: .6rem .9rem; min-width: 8.5rem }
.card b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums }
.card span { color: var(--soft); font-size: .85rem }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)); gap: 1.25rem }
.scroll { overflow-x: auto } svg { width: 100%; height: auto; display: block }
svg text { fill: var(--soft); font: 14px system-ui, sans-serif } svg .grid { stroke: var(--line) }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top }
th:first-child, td:first-child { text-align: left } th { color: var(--soft); font-weight: 600 }
td.text { text-align: left; overflow-wrap: anywhere; max-width: 34rem }
"""


def _number(v: Any, digits: int = 3) -> str:
    return "–" if v is None else f"{v:.{digits}f}"


def _percent(v: Any) -> str:
    return "–" if v is None else f"{100 * v:.1f}%"


class _Plot:
    """A line or bar chart as SVG; data coordinates map to the inner rectangle."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], labels: tuple[str, str], title: str) -> None:
        self.x, self.y = x, (y[0], y[1] if y[1] > y[0] else y[0] + 1.0)
        self.parts = [
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">',
            *self._axes(labels),
        ]

    def at(self, x: float, y: float) -> tuple[float, float]:
        width, height = _WIDTH - _LEFT - 12, _HEIGHT - _BOTTOM - 12
        px = _LEFT + width * (x - self.x[0]) / (self.x[1] - self.x[0])
        py = 12 + height * (1 - (y - self.y[0]) / (self.y[1] - self.y[0]))
        return round(px, 1), round(py, 1)

    def _axes(self, labels: tuple[str, str]) -> list[str]:
        out: list[str] = []
        digits = ".2f" if self.y[1] - self.y[0] < 5 else ".0f"
        for i in range(6):
            v = self.y[0] + (self.y[1] - self.y[0]) * i / 5
            _, py = self.at(self.x[0], v)
            out.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 12}" y1="{py}" y2="{py}"/>')
            out.append(f'<text x="{_LEFT - 6}" y="{py + 4}" text-anchor="end">{v:{digits}}</text>')
            w = self.x[0] + (self.x[1] - self.x[0]) * i / 5
            px, _ = self.at(w, self.y[0])
            out.append(f'<text x="{px}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{w:.1f}</text>')
        out.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(labels[0])}</text>')
        out.append(
            f'<text transform="rotate(-90)" x="{-_HEIGHT / 2}" y="13" text-anchor="middle">{escape(labels[1])}</text>'
        )
        return out

    def line(self, points: Sequence[Sequence[float]], colour: str, *, dashed: bool = False, width: float = 2.2) -> None:
        path = " ".join(f"{px},{py}" for px, py in (self.at(p[0], p[1]) for p in points))
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>')

    def dot(self, x: float, y: float, colour: str, title: str, radius: float = 4.5) -> None:
        px, py = self.at(x, y)
        self.parts.append(
            f'<circle cx="{px}" cy="{py}" r="{radius}" fill="{colour}"><title>{escape(title)}</title></circle>'
        )

    def bar(self, left: float, right: float, bottom: float, top: float, colour: str, title: str) -> None:
        x0, y0 = self.at(left, bottom)
        x1, y1 = self.at(right, top)
        size = f'x="{x0 + 1}" y="{y1}" width="{max(0.5, x1 - x0 - 2):.1f}" height="{max(0.0, y0 - y1):.1f}"'
        self.parts.append(f'<rect {size} fill="{colour}"><title>{escape(title)}</title></rect>')

    def svg(self) -> str:
        return "".join([*self.parts, "</svg>"])


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    return " &nbsp; ".join(f'<span style="color:{c}">&#9632;</span> {escape(n)}' for n, c in entries)


def _curves(result: dict[str, Any]) -> str:
    lines = {"scorer": result["curve"], **result.get("curves", {})}
    values = [q for points in lines.values() for _, q in points] + [result["weak"], result["strong"]]
    low, high = min(values), max(values)
    pad = 0.05 * (high - low or 1.0)
    plot = _Plot((0.0, 1.0), (low - pad, high + pad), ("share to the strong model", "quality"), "cost-quality curve")
    entries = [("random", "#8b949e")]
    plot.line([[0.0, result["weak"]], [1.0, result["strong"]]], "#8b949e", dashed=True, width=1.6)
    for (name, points), colour in zip(lines.items(), _COLOURS, strict=False):
        plot.line(points, colour, dashed=name == "oracle", width=2.6 if name == "scorer" else 1.6)
        entries.append((name.replace("_", " "), colour))
    chosen = result["at_policy"]
    at = f"policy {chosen['policy']}: {_percent(chosen['strong_share'])} strong, quality {_number(chosen['quality'])}"
    plot.dot(chosen["strong_share"], chosen["quality"], _COLOURS[0], at)
    caption = f"Quality by share of traffic sent to the strong model; the dot is the policy. {_legend(entries)}"
    return f"<figure>{plot.svg()}<figcaption>{caption}</figcaption></figure>"


def _calibration(result: dict[str, Any]) -> str:
    points = result.get("calibration", [])
    if not points:
        return ""
    plot = _Plot((0.0, 1.0), (0.0, 1.0), ("score", "share that the weak model fails"), "calibration")
    plot.line([[0.0, 0.0], [1.0, 1.0]], "#8b949e", dashed=True, width=1.6)
    plot.line([p[:2] for p in points], _COLOURS[0])
    for x, y, n in points:
        plot.dot(x, y, _COLOURS[0], f"{n} prompts: score {x:.2f}, fails {y:.2f}")
    caption = (
        f"Calibration: expected error {_number(result.get('ece'))}. On the dashed line a score means what it says."
    )
    return f"<figure>{plot.svg()}<figcaption>{caption}</figcaption></figure>"


def _histogram(result: dict[str, Any]) -> str:
    bars = result.get("histogram", [])
    if not bars:
        return ""
    top = max(b["weak"] + b["strong"] for b in bars) or 1
    plot = _Plot((0.0, 1.0), (0.0, float(top)), ("score", "prompts"), "scores by group")
    for b in bars:
        plot.bar(b["from"], b["to"], 0, b["weak"], _COLOURS[2], f"{b['weak']} to the weak group")
        plot.bar(
            b["from"], b["to"], b["weak"], b["weak"] + b["strong"], _COLOURS[1], f"{b['strong']} to the strong group"
        )
    caption = f"Scores by the group they lead to. {_legend([('weak', _COLOURS[2]), ('strong', _COLOURS[1])])}"
    return f"<figure>{plot.svg()}<figcaption>{caption}</figcaption></figure>"


def _domains(result: dict[str, Any]) -> str:
    rows = result.get("by_domain", [])
    if not rows:
        return ""
    body = "".join(
        f"<tr><td>{escape(r['domain'])}</td><td>{r['n']}</td><td>{_number(r['weak'])}</td>"
        f"<td>{_number(r['strong'])}</td><td>{_number(r['apgr'])}</td></tr>"
        for r in rows
    )
    head = "<tr><th>domain</th><th>prompts</th><th>weak</th><th>strong</th><th>APGR within</th></tr>"
    return f'<h3>By domain</h3><div class="scroll"><table>{head}{body}</table></div>'


def _costly(result: dict[str, Any]) -> str:
    rows = result.get("costly", [])
    if not rows:
        return ""
    body = "".join(
        f'<tr><td class="text">{escape(r["prompt"])}</td><td>{_number(r["score"])}</td><td>{escape(r["why"])}</td></tr>'
        for r in rows
    )
    head = "<tr><th>prompt</th><th>score</th><th>what it cost</th></tr>"
    return f'<h3>Prompts that cost most</h3><div class="scroll"><table>{head}{body}</table></div>'


def _card(value: str, name: str) -> str:
    return f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'


def _section(result: dict[str, Any]) -> str:
    name = result.get("scorer", {}).get("name", "scorer")
    folds = result.get("scorer", {}).get("folds")
    how = f"trained for the pair, {folds} folds" if folds else "as it is"
    low, high = result["apgr_ci"]
    cards = [
        _card(_number(result["apgr"]), f"APGR [{_number(low)}, {_number(high)}]"),
        _card(_number(result["length"]), "APGR of length"),
        _card(_percent(result["cpt50"]), "strong share for 50%"),
        _card(_percent(result["cpt80"]), "strong share for 80%"),
        _card(_number(result["auroc"]), "AUROC, weak fails"),
        _card(f"{result['weak']:.3f} / {result['strong']:.3f}", "weak / strong quality"),
        _card(str(result["n"]), f"prompts, {result['abstained']} abstained"),
    ]
    data = result["data"]
    return (
        f"<h2>{escape(data['file'])}: {escape(name)}</h2><p>{escape(how)}; 95% intervals from {result['draws']} paired "
        f"draws, seed {result['seed']}; data sha256 {data['sha256'][:12]}.</p>"
        f'<div class="cards">{"".join(cards)}</div>'
        f'<div class="plots">{_curves(result)}{_calibration(result)}{_histogram(result)}</div>'
        f"{_domains(result)}{_costly(result)}"
    )


def page(results: Sequence[dict[str, Any]]) -> str:
    """The whole page."""
    body = "".join(_section(r) for r in results)
    intro = (
        "How much of the gap between a cheap and a dear model each scorer recovers, and for how many dear calls. "
        "Random routing has an APGR of 0.5; a scorer has to beat the prompt's length to be worth running."
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Routing quality</title><style>{_STYLE}</style></head><body><h1>Routing quality</h1><p>{intro}</p>"
        f"{body}</body></html>\n"
    )

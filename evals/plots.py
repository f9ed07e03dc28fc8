"""Charts as inline SVG: axes with round ticks, lines, dots, bars, and the small marks that stand in tables.

Colours are CSS variables of the page (`--c0` to `--c7`, `--ink`, `--soft`), so that a chart follows light and dark.
What is drawn is `report`'s choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

WIDTH, HEIGHT = 480, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 22, 14, 42

Format = Callable[[float], str]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`."""
    step = 10.0 ** math.floor(math.log10((high - low) / about))
    step *= next(m for m in (1.0, 2.0, 2.5, 5.0, 10.0) if (high - low) / (step * m) <= about + 1)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def percent(v: float) -> str:
    return f"{100 * v:.0f}%"


def plain(v: float) -> str:
    """A number with as many digits as it needs: 1,200 and .0015 alike."""
    return f"{v:,.0f}" if abs(v) >= 1000 else f"{v:.4g}"


def dollars(v: float) -> str:
    return f"${v:,.2f}" if abs(v) >= 0.995 else f"${v:.3g}"


class Plot:
    """One chart; data coordinates map to the rectangle inside the axes."""

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        labels: tuple[str, str],
        title: str,
        formats: tuple[Format, Format] = (plain, plain),
    ) -> None:
        self.x = (x[0], x[1] if x[1] > x[0] else x[0] + 1.0)
        self.y = (y[0], y[1] if y[1] > y[0] else y[0] + 1.0)
        self.parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
        self._axes(labels, formats)

    def at(self, x: float, y: float) -> tuple[float, float]:
        px = _LEFT + (WIDTH - _LEFT - _RIGHT) * (x - self.x[0]) / (self.x[1] - self.x[0])
        py = _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - (y - self.y[0]) / (self.y[1] - self.y[0]))
        return round(px, 1), round(py, 1)

    def _axes(self, labels: tuple[str, str], formats: tuple[Format, Format]) -> None:
        floor = HEIGHT - _BOTTOM
        for v in ticks(*self.y):
            _, py = self.at(self.x[0], v)
            self.parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{py}" y2="{py}"/>')
            self.parts.append(f'<text x="{_LEFT - 7}" y="{py + 4}" text-anchor="end">{formats[1](v)}</text>')
        for v in ticks(*self.x):
            px, _ = self.at(v, self.y[0])
            self.parts.append(f'<line class="axis" x1="{px}" x2="{px}" y1="{floor}" y2="{floor + 4}"/>')
            self.parts.append(f'<text x="{px}" y="{floor + 17}" text-anchor="middle">{formats[0](v)}</text>')
        self.parts.append(f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{floor}" y2="{floor}"/>')
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        self.parts.append(f'<text x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">{escape(labels[0])}</text>')
        across = f'transform="rotate(-90)" x="{-(_TOP + floor) / 2}" y="12"'
        self.parts.append(f'<text {across} text-anchor="middle">{escape(labels[1])}</text>')

    def line(
        self, points: Sequence[Sequence[float]], colour: str, title: str, *, dash: str = "", width: float = 2.0
    ) -> None:
        path = " ".join(f"{px},{py}" for px, py in (self.at(p[0], p[1]) for p in points))
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'stroke-linejoin="round"{dashed}><title>{escape(title)}</title></polyline>'
        )

    def dot(self, x: float, y: float, colour: str, title: str, *, radius: float = 4.5, ring: bool = False) -> None:
        px, py = self.at(x, y)
        edge = ' class="ring"' if ring else ""
        place = f'cx="{px}" cy="{py}" r="{radius:.1f}" fill="{colour}"'
        self.parts.append(f"<circle {place}{edge}><title>{escape(title)}</title></circle>")

    def note(self, x: float, y: float, text: str) -> None:
        """Words beside a point, on the side that has room."""
        px, py = self.at(x, y)
        left, low = px > WIDTH * 0.6, py > HEIGHT - _BOTTOM - 24
        across = px - 9 if left else px + 9
        place = f'x="{across}" y="{py - 8 if low else py + 14}" text-anchor="{"end" if left else "start"}"'
        short = text if len(text) <= 24 else text[:23] + "…"
        self.parts.append(f'<text class="note" {place}>{escape(short)}</text>')

    def bar(self, left: float, right: float, bottom: float, top: float, colour: str, title: str) -> None:
        x0, y0 = self.at(left, bottom)
        x1, y1 = self.at(right, top)
        if y0 - y1 <= 0:
            return
        size = f'x="{x0 + 0.7:.1f}" y="{y1}" width="{max(0.5, x1 - x0 - 1.4):.1f}" height="{y0 - y1:.1f}"'
        self.parts.append(f'<rect {size} fill="{colour}"><title>{escape(title)}</title></rect>')

    def svg(self) -> str:
        return "".join([*self.parts, "</svg>"])


def figure(title: str, plot: Plot, caption: str, entries: Sequence[tuple[str, str, str]] = ()) -> str:
    """A chart with its title, a legend of (name, colour, dash) and a caption."""
    keys = "".join(
        f'<span><svg viewBox="0 0 22 8" class="key"><line x1="0" x2="22" y1="4" y2="4" stroke="{colour}" '
        f'stroke-width="3"{f" stroke-dasharray={chr(34)}{dash}{chr(34)}" if dash else ""}/></svg>{escape(name)}</span>'
        for name, colour, dash in entries
    )
    legend = f'<div class="legend">{keys}</div>' if keys else ""
    return f"<figure><h3>{escape(title)}</h3>{legend}{plot.svg()}<figcaption>{escape(caption)}</figcaption></figure>"


def interval(low: float, value: float, high: float, scale: tuple[float, float], colour: str, zero: float) -> str:
    """A value with its interval as a mark in a table; a hairline stands at `zero`."""

    def at(v: float) -> float:
        return round(4 + 132 * min(1.0, max(0.0, (v - scale[0]) / (scale[1] - scale[0]))), 1)

    hairline = f'<line class="mark" x1="{at(zero)}" x2="{at(zero)}" y1="0" y2="16"/>'
    span = f'<line x1="{at(low)}" x2="{at(high)}" y1="8" y2="8" stroke="{colour}" stroke-width="2.5"/>'
    dot = f'<circle cx="{at(value)}" cy="8" r="4" fill="{colour}"/>'
    return f'<svg viewBox="0 0 140 16" class="spark" aria-hidden="true">{hairline}{span}{dot}</svg>'


def between(weak: float, strong: float, routed: float, scale: tuple[float, float]) -> str:
    """Two models' quality, and what routing makes of them, on one line of a table."""

    def at(v: float) -> float:
        return round(6 + 128 * (v - scale[0]) / (scale[1] - scale[0]), 1)

    return (
        f'<svg viewBox="0 0 140 16" class="spark" aria-hidden="true"><line class="axis" x1="{at(weak)}" '
        f'x2="{at(strong)}" y1="8" y2="8"/><circle cx="{at(weak)}" cy="8" r="3.5" fill="var(--c2)"/>'
        f'<circle cx="{at(strong)}" cy="8" r="3.5" fill="var(--c1)"/>'
        f'<path d="M{at(routed)} 1v14" stroke="var(--c0)" stroke-width="3"/></svg>'
    )

"""The style sheet of `eval report`: light and dark, wide, narrow and printed. Nothing else belongs here."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1a1d21; --soft: #66707c; --line: #e3e7ec; --paper: #fbfbfc; --tint: #ffffff;
  --c0: #0a7d5a; --c1: #c2571a; --c2: #3566b8; --c3: #8e44ad; --c4: #b08900; --c5: #008ca8; --c6: #b3305c;
  --c7: #5d7a1f }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e9ebee; --soft: #97a1ad; --line: #2c333b; --paper: #111418; --tint: #191e24;
    --c0: #3ecf9d; --c1: #f0915a; --c2: #7aa7f0; --c3: #c792e6; --c4: #e0bd45; --c5: #4cc3da; --c6: #f07fa5;
    --c7: #a5c45c } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif }
main { margin: 0 auto; max-width: 72rem; padding: 2.5rem 1.25rem 4rem }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; letter-spacing: -.01em }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .5rem; overflow-wrap: anywhere }
h3 { font-size: 1rem; margin: 2rem 0 .35rem; overflow-wrap: anywhere } figure h3, .plots h3 { margin: 0 0 .5rem }
section { margin-top: 2.5rem; padding-top: 2rem; border-top: 1px solid var(--line) }
p { margin: .25rem 0 .75rem; max-width: 48rem } .intro, .foot, figcaption, section > p { color: var(--soft) }
section > p.lead { color: var(--ink); font-size: 1.08rem } .foot { font-size: .85rem; margin-top: 2rem }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); gap: .75rem; margin: 1.25rem 0 }
.card, figure { background: var(--tint); border: 1px solid var(--line); border-radius: .6rem }
.card { padding: .7rem .9rem } figure { margin: 0; padding: 1rem; min-width: 0 }
.card b { display: block; font-size: 1.2rem; line-height: 1.3; white-space: nowrap; letter-spacing: -.01em }
.card span { color: var(--soft); font-size: .85rem; line-height: 1.35; display: block; overflow-wrap: anywhere }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1rem;
  margin: 1rem 0; align-items: start }
figcaption { font-size: .85rem; line-height: 1.4; margin-top: .4rem }
.legend { display: flex; flex-wrap: wrap; gap: .15rem 1rem; font-size: .85rem; margin-bottom: .4rem }
.legend span { display: inline-flex; align-items: center; gap: .4rem }
svg { width: 100%; height: auto; display: block } svg.key { width: 22px; height: 8px; flex: none }
svg.spark { width: 140px; height: 16px; display: inline-block; vertical-align: middle }
svg text { fill: var(--soft); font: 12.5px system-ui, sans-serif; font-variant-numeric: tabular-nums }
svg text.note { fill: var(--ink); font-weight: 600 } svg .grid { stroke: var(--line) } svg .axis { stroke: var(--soft) }
svg .mark { stroke: var(--soft); stroke-dasharray: 2 2 } svg .ring { stroke: var(--tint); stroke-width: 2.5 }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .4rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top;
  white-space: nowrap }
thead th { color: var(--soft); font-weight: 500; font-size: .82rem; vertical-align: bottom; white-space: normal }
th:first-child, td:first-child, td.why, th.why { text-align: left }
tbody th { font-weight: 600; white-space: normal; min-width: 9rem }
tbody th i { display: inline-block; width: .65rem; height: .65rem; border-radius: 50%; margin-right: .45rem }
tr.quiet > * { color: var(--soft); font-weight: 400 } tbody tr:hover > * { background: var(--tint) }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 16rem; max-width: 44rem }
details { margin-top: .5rem } summary { cursor: pointer; color: var(--soft); font-size: .9rem; padding: .3rem 0 }
@media (max-width: 34rem) { main { padding: 1.5rem .9rem 3rem } svg text { font-size: 17px } figure { padding: .75rem }
  .cards { grid-template-columns: repeat(2, minmax(0, 1fr)) } .card b { font-size: 1.1rem } h1 { font-size: 1.6rem } }
@media print { body { background: none } figure, table, .card { break-inside: avoid } }
"""

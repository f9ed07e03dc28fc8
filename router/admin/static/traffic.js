// What the sums of the records show: tiles, traffic, latency, scores with their thresholds.
import {byId, compact, dollars, draw, make, number, rate, seconds, share, table} from "./dom.js";
import {key, lines, named} from "./charts.js";

export function showSummary(data) {
  tiles(data);
  byId("assumption").textContent = data.assumption;
  const {groups} = data.series,
    step = data.step_s,
    past = whole(data),
    times = data.series.times.slice(0, past.length);
  const each = (name, by) =>
    Object.fromEntries(
      Object.entries(groups).map(([group, of]) => [
        group,
        past.map((seconds, at) => (of[name][at] === null ? null : of[name][at] / (by ? seconds : 1))),
      ]),
    );
  lines("traffic-chart", times, each("requests", step), rate, {stacked: true});
  lines("tokens-chart", times, each("output_tokens", step), compact, {stacked: true});
  lines("ttft-chart", times, each("ttft_p95"), seconds);
  lines("tpot-chart", times, each("tpot_p95"), seconds);
  routes(data);
  percentiles(data);
  scores(data);
}

/** The length of each point, in seconds. The last is not over yet, and left out where it is short and not alone. */
function whole(data) {
  const earlier = Object.values(data.series.groups).some((of) => of.requests.slice(0, -1).some((n) => n));
  const made = data.series.times.map(() => data.step_s),
    last = data.series.times[made.length - 1];
  made[made.length - 1] = Math.max(1, Math.min(data.step_s, data.now - last));
  return data.step_s <= 60 && earlier ? made.slice(0, -1) : made;
}

function tile(name, value, under, kind) {
  const made = make("div");
  made.append(make("dt", name), make("dd", value, kind), make("dd", under));
  return made;
}

function tiles(data) {
  const {totals: all, groups, series} = data;
  const columns = Object.values(series.groups).map((of) => of.requests);
  const past = whole(data),
    last = columns.reduce((sum, column) => sum + column[past.length - 1], 0) / past[past.length - 1];
  const failed = all.requests ? all.failed / all.requests : 0;
  const busiest = groups
    .filter((group) => group.group)
    .map((group) => `${group.group} ${share(group.requests, all.requests)}`)
    .slice(0, 3)
    .join(", ");
  const paid = all.saved + all.cost;
  const most = groups.length ? groups.reduce((a, b) => (a.ttft.n >= b.ttft.n ? a : b)) : null;
  byId("tiles").replaceChildren(
    tile("Requests", number(all.requests), `${rate(last)} a second just now`),
    tile(
      "Failed",
      share(all.failed, all.requests),
      `${number(all.failed)} of ${number(all.requests)}`,
      failed > 0.01 ? "bad" : "good",
    ),
    tile("Where they went", groups.length ? named(groups[0].group) : "–", busiest || "no requests in this window"),
    tile("Cost", dollars(all.cost), `${compact(all.input_tokens)} tokens in, ${compact(all.output_tokens)} out`),
    tile(
      "Saved",
      dollars(all.saved),
      paid > 0 ? `${share(all.saved, paid)} of large-only; ${number(all.compared)} requests` : "no known prices",
      all.saved < 0 ? "bad" : "",
    ),
    tile(
      "First token, median",
      seconds(most?.ttft.p50),
      most ? `p95 ${seconds(most.ttft.p95)} in ${named(most.group)}` : "",
    ),
    tile("Gateway's own time", seconds(data.overhead.p50), `p95 ${seconds(data.overhead.p95)} before the first byte`),
  );
}

function routes(data) {
  const rows = data.routes.map((one) => ({
    key: `${one.policy}/${one.route}/${one.group}`,
    cells: [
      `${one.policy || "–"} / ${one.route || "–"}`,
      withKey(one.group),
      number(one.requests),
      share(one.requests, data.totals.requests),
      [share(one.requests - one.failed, one.requests), one.failed ? "warn" : "good"],
      compact(one.output_tokens),
      dollars(one.cost),
      dollars(one.saved),
    ],
  }));
  table(
    byId("routes"),
    [
      ["policy / route", ""],
      ["group", ""],
      ["requests", "n"],
      ["share", "n"],
      ["not failed", "n"],
      ["tokens out", "n"],
      ["cost", "n"],
      ["saved", "n"],
    ],
    rows,
    "no requests in this window",
  );
}

function withKey(group) {
  const made = make("span");
  made.append(key(group), named(group));
  return made;
}

function percentiles(data) {
  const rows = data.groups
    .filter((one) => one.ttft.n || one.total.n)
    .map((one) => ({
      key: one.group,
      cells: [
        withKey(one.group),
        rate(one.requests_per_s),
        rate(one.output_tokens_per_s),
        ...["p50", "p95", "p99"].map((p) => seconds(one.ttft[p])),
        ...["p50", "p95", "p99"].map((p) => seconds(one.tpot[p])),
        seconds(one.total.p95),
      ],
    }));
  table(
    byId("percentiles"),
    [
      ["group", ""],
      ["requests/s", "n"],
      ["tokens/s", "n"],
      ["TTFT p50", "n"],
      ["TTFT p95", "n"],
      ["TTFT p99", "n"],
      ["TPOT p50", "n"],
      ["TPOT p95", "n"],
      ["TPOT p99", "n"],
      ["whole p95", "n"],
    ],
    rows,
    "no requests in this window",
  );
}

// --- scores ---

const WIDE = 520,
  HIGH = 150,
  LOW = 128;

function scores(data) {
  const body = byId("scores-body");
  if (!data.scores.length) {
    body.replaceChildren(make("p", "No score was needed in this window.", "empty"));
    return;
  }
  const open = new Set([...body.querySelectorAll("details[open]")].map((one) => one.dataset.scorer));
  body.replaceChildren(...data.scores.map((one) => histogram(one, data.thresholds, open.has(one.scorer))));
}

function histogram(one, thresholds, open) {
  const marks = thresholds.filter((mark) => mark.scorer === one.scorer),
    all = one.buckets.reduce((a, b) => a + b, 0);
  const cut = marks.length ? Math.min(...marks.map((mark) => mark.at)) : 1.01;
  const past = one.buckets.reduce((sum, count, at) => sum + ((at + 0.5) / one.buckets.length >= cut ? count : 0), 0);
  const figure = make("figure");
  figure.append(
    make(
      "figcaption",
      `${one.scorer}: ${number(all)} scores, about ${share(past, all)} at or above `
        + `${marks.length > 1 ? "the lowest" : "the"} threshold`,
    ),
  );
  const cuts = marks.map((m) => `threshold of ${m.policy}/${m.route} ${m.at.toFixed(3)}`);
  const svg = draw("svg", {
    viewBox: `0 0 ${WIDE} ${HIGH}`,
    class: "drawing",
    role: "img",
    "aria-label": `Histogram of ${one.scorer}; ${cuts.join(", ")}`,
  });
  const step = WIDE / one.buckets.length,
    most = Math.max(1, ...one.buckets);
  one.buckets.forEach((count, at) => {
    const tall = count ? Math.max(2, ((LOW - 20) * count) / most) : 0,
      middle = (at + 0.5) / one.buckets.length;
    svg.append(
      draw("rect", {
        x: at * step + 1.5,
        y: LOW - tall,
        width: step - 3,
        height: tall,
        rx: 2,
        class: middle >= cut ? "fill past" : "fill",
      }),
    );
  });
  svg.append(draw("line", {x1: 0, x2: WIDE, y1: LOW, y2: LOW, class: "axis"}));
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(
      draw(
        "text",
        {
          x: Math.min(WIDE - 2, Math.max(2, tick * WIDE)),
          y: HIGH - 6,
          "text-anchor": tick === 0 ? "start" : tick === 1 ? "end" : "middle",
        },
        String(tick),
      ),
    );
  }
  marks.forEach((mark, at) => {
    const x = mark.at * WIDE;
    svg.append(draw("line", {x1: x, x2: x, y1: 14, y2: LOW, class: "mark"}));
    svg.append(draw("text", {x, y: 11, class: "strong", "text-anchor": "middle"}, letter(marks, at)));
  });
  const legend = make("div", null, "legend");
  legend.append(
    ...marks.map((mark, at) => {
      const item = make("span", `${letter(marks, at)} ${mark.policy} / ${mark.route} `.trimStart());
      item.append(make("b", mark.at.toFixed(3)));
      return item;
    }),
  );
  const details = make("details"),
    behind = make("table");
  details.dataset.scorer = one.scorer;
  details.open = open;
  details.append(make("summary", "As a table"), behind);
  table(
    behind,
    [
      ["score", ""],
      ["requests", "n"],
    ],
    one.buckets.map((count, at) => ({
      key: String(at),
      cells: [
        `${(at / one.buckets.length).toFixed(2)} to ${((at + 1) / one.buckets.length).toFixed(2)}`,
        number(count),
      ],
    })),
    "",
  );
  figure.append(svg, legend, details);
  return figure;
}

/** Of a threshold, where there are several. */
const letter = (marks, at) => (marks.length > 1 ? String.fromCharCode(65 + at) : "");

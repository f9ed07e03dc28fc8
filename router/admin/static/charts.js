// Lines over time, drawn by uPlot on a canvas, each with a legend in text and the same numbers as a table behind it.
import {byId, clock, make, table} from "./dom.js";

const charts = new Map(); // by id: the plot and what it was made for
const groups = []; // in the order they were first seen: a group keeps its colour

function place(group) {
  if (!groups.includes(group)) groups.push(group);
  return groups.indexOf(group);
}

export const colour = (group) => place(group) % 6;

export const key = (group) => make("span", null, `key s${colour(group)}`);

const css = (name) => {
  // light-dark() is not resolved in a custom property: an element that uses it resolves it.
  const probe = make("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
};

export const named = (group) => group || "none";

/** lines: {group: [number or null, ...]}; `stacked` fills them one upon the other; `say` writes a value. */
export function lines(id, times, series, say, {stacked = false} = {}) {
  const box = byId(id),
    some = Object.keys(series).filter((name) => series[name].some((v) => v !== null && v !== 0)),
    names = some.sort((one, other) => place(one) - place(other));
  describe(id, box, times, series, names, say);
  if (!names.length || !window.uPlot) {
    charts.get(id)?.plot.destroy();
    charts.delete(id);
    box.replaceChildren(make("p", "nothing in this window", "empty"));
    return;
  }
  const data = [
    times,
    ...(stacked
      ? stack(
          times,
          names.map((name) => series[name]),
        )
      : names.map((name) => series[name])),
  ];
  const wanted = JSON.stringify([names, stacked, document.documentElement.dataset.look]);
  const old = charts.get(id);
  if (old?.wanted === wanted) {
    old.raw = names.map((name) => series[name]);
    old.plot.setData(data);
    return;
  }
  old?.plot.destroy();
  const entry = {wanted, raw: names.map((name) => series[name])};
  box.replaceChildren();
  const legend = box.appendChild(make("div", null, "legend"));
  entry.plot = new window.uPlot(options(box, legend, names, say, stacked, entry), data, box);
  charts.set(id, entry);
}

function stack(times, columns) {
  const sum = times.map(() => 0);
  return columns.map((column) => column.map((value, at) => (sum[at] += value ?? 0)));
}

function options(box, legend, names, say, stacked, entry) {
  const soft = css("--soft"),
    line = css("--line");
  const axis = {stroke: soft, grid: {stroke: line, width: 1}, ticks: {stroke: line, width: 1}, font: "11px system-ui"};
  const show = (index) =>
    legend.replaceChildren(
      ...names.map((name, at) => {
        const item = make("span"),
          column = entry.raw[at];
        const value = column[index ?? lastOf(column)];
        item.append(key(name), named(name), make("b", value === null || value === undefined ? "–" : say(value)));
        return item;
      }),
    );
  const series = names.map((name, at) => {
    const stroke = css(`--s${colour(name)}`);
    const points = {show: alone, size: 6, fill: stroke};
    const made = {label: named(name), stroke, width: 2, spanGaps: true, points};
    if (stacked) made.fill = stroke.replace("rgb(", "rgba(").replace(")", ", .25)");
    return {...made, scale: "y", value: (_, v) => (v === null ? "–" : say(v)), at};
  });
  return {
    width: Math.max(200, box.clientWidth),
    height: 190,
    legend: {show: false},
    cursor: {y: false, points: {size: 7}},
    scales: {x: {time: true}, y: {range: (_, low, high) => [0, high > 0 ? high * 1.12 : 1]}},
    axes: [axis, {...axis, size: 62, values: (_, ticks) => ticks.map((v) => say(v))}],
    series: [{}, ...series],
    bands: stacked ? names.slice(1).map((_, at) => ({series: [at + 2, at + 1]})) : [],
    hooks: {
      setCursor: [(plot) => show(plot.cursor.idx)],
      setData: [(plot) => show(plot.cursor.idx)],
      ready: [() => show(null)],
    },
  };
}

// One value makes no line: it is drawn as a point.
const alone = (plot, at) => plot.data[at].filter((value) => value !== null && value !== undefined).length === 1;

const lastOf = (column) => column.length - 1;

function describe(id, box, times, series, names, say) {
  const now = names.map((name) => {
    const value = series[name][lastOf(series[name])];
    return `${named(name)} ${value === null || value === undefined ? "nothing" : say(value)}`;
  });
  box.setAttribute("role", "img");
  box.setAttribute(
    "aria-label",
    names.length ? `Chart; just now: ${now.join(", ")}. The table below has all points.` : "Nothing yet",
  );
  const behind = byId(id.replace("-chart", "-table"));
  if (!behind.closest("details").open) {
    behind.dataset.columns = "";
    behind.replaceChildren();
    return;
  }
  const columns = JSON.stringify(names);
  if (behind.dataset.columns !== columns) behind.replaceChildren();
  behind.dataset.columns = columns;
  const rows = times
    .map((at, index) => ({
      key: String(at),
      cells: [
        clock(at),
        ...names.map((name) => {
          const value = series[name][index];
          return value === null || value === undefined ? "–" : say(value);
        }),
      ],
    }))
    .reverse();
  table(behind, [["time", ""], ...names.map((name) => [named(name), "n"])], rows, "nothing in this window");
}

export function redraw() {
  for (const [, entry] of charts) entry.wanted = "";
}

new ResizeObserver(() => {
  for (const [id, {plot}] of charts) {
    const width = Math.max(200, byId(id).clientWidth);
    if (plot.width !== width) plot.setSize({width, height: plot.height});
  }
}).observe(document.documentElement);

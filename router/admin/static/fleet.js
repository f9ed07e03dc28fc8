// Deployments with their switches; the configuration in force, thresholds that move, canaries, and quality.
import {ask, byId, draw, make, number, rate, seconds, share, table} from "./dom.js";
import {key} from "./charts.js";

let speeds = new Map(); // by deployment, from the records: tokens a second and times

export function noteSpeeds(summary) {
  speeds = new Map(summary.deployments.map((one) => [`${one.group}/${one.deployment}`, one]));
}

const buttons = new Map();

function drainButton(d, tell) {
  let button = buttons.get(d.name);
  if (!button) {
    button = make("button");
    button.type = "button";
    button.addEventListener("click", async () => {
      const verb = button.dataset.verb;
      if (button.ariaBusy === "true") return;
      button.ariaBusy = "true"; // not `disabled`, which would take the focus from it
      try {
        await ask(`admin/deployments/${encodeURIComponent(d.name)}/${verb}`, {method: "POST"});
        tell(
          verb === "drain" ? `${d.name} gets nothing new; what it is answering goes on` : `${d.name} is used again`,
          true,
        );
      } catch (error) {
        tell(error.message);
      } finally {
        button.ariaBusy = "false";
      }
      document.dispatchEvent(new Event("refresh"));
    });
    buttons.set(d.name, button);
  }
  button.dataset.verb = d.draining ? "undrain" : "drain";
  button.textContent = d.draining ? "Undrain" : "Drain";
  button.setAttribute("aria-label", `${button.textContent} ${d.name}`);
  return button;
}

function load(d) {
  const made = make("span", d.max_in_flight ? `${d.in_flight} of ${d.max_in_flight}` : String(d.in_flight));
  return d.max_in_flight ? withMeter(made, d.in_flight / d.max_in_flight, `${d.name}: share of places taken`) : made;
}

function withMeter(made, value, label) {
  const meter = make("meter");
  Object.assign(meter, {min: 0, max: 1, high: 0.9, value: Math.min(1, value)});
  meter.setAttribute("aria-label", label);
  made.append(meter);
  return made;
}

function named2(first, under) {
  const made = make("span", first);
  if (under) made.append(make("span", under, "sub"));
  return made;
}

export function showGroups(data, tell) {
  const places = [...data.groups, {name: "", deployments: data.unused}];
  const rows = places.flatMap((group) =>
    group.deployments.map((d) => {
      const [state, kind] = d.draining
        ? ["draining", "warn"]
        : d.up
          ? ["up", "good"]
          : [`cooling ${seconds(d.cooling_s)}`, "bad"];
      const fault = [d.failures ? `${d.failures} failures in a row` : "", d.last_error ? `last: ${d.last_error}` : ""]
        .filter(Boolean)
        .join(", ");
      const where = make("span");
      where.append(key(group.name), group.name || "no group");
      const kv = d.load?.kv,
        speed = speeds.get(`${group.name}/${d.name}`),
        said = make("span", kv == null ? "–" : share(kv, 1));
      const at = [d.model, d.base_url || d.upstream, d.nodes.length ? `on ${d.nodes.join(", ")}` : ""]
        .filter(Boolean)
        .join(" · ");
      const status = make("span");
      status.append(make("span", state, kind), ...(fault ? [make("span", fault, "sub")] : []));
      return {
        key: `${group.name}/${d.name}`,
        cells: [
          named2(d.name, at),
          where,
          status,
          load(d),
          d.load?.waiting == null ? "–" : number(d.load.waiting),
          kv == null ? said : withMeter(said, kv, `${d.name}: KV cache in use`),
          speed ? rate(speed.output_tokens_per_s) : "–",
          speed ? seconds(speed.ttft.p95) : "–",
          speed ? seconds(speed.tpot.p95) : "–",
          drainButton(d, tell),
        ],
      };
    }),
  );
  table(
    byId("deployments-table"),
    [
      ["deployment", ""],
      ["group", ""],
      ["state", ""],
      ["in flight", "n"],
      ["queue", "n"],
      ["KV cache", "n"],
      ["tokens/s", "n"],
      ["TTFT p95", "n"],
      ["TPOT p95", "n"],
      ["switch", "n"],
    ],
    rows,
    "no deployments",
  );
}

// --- configuration ---

function fact(list, name, value, kind) {
  list.append(make("dt", name), make("dd", value, kind));
}

export function showConfig(config) {
  const hours = (Date.now() / 1000 - config.started) / 3600,
    state = byId("state");
  const up = hours < 1 ? `${Math.round(hours * 60)} min` : `${hours.toFixed(1)} h`;
  byId("config").textContent = `${config.digest.slice(0, 12)} · version ${config.version} · up ${up}`;
  const [text, kind] = config.draining
    ? ["draining", "warn"]
    : config.reload_ok
      ? ["serving", "good"]
      : ["last change refused", "bad"];
  state.textContent = text;
  state.className = `chip ${kind}`;
  const facts = byId("configuration");
  facts.replaceChildren();
  fact(facts, "In force", `${config.digest.slice(0, 12)}, generation ${config.generation}`);
  fact(
    facts,
    "Last change of the files",
    config.reload_ok ? "taken" : `refused: ${config.reload_error}`,
    config.reload_ok ? "good" : "bad",
  );
  const others = [...new Set(config.replicas.map((one) => one.digest.slice(0, 12)))];
  fact(
    facts,
    "Processes",
    `${config.workers.length} here, ${config.replicas.length} that share the store` +
      (others.length > 1 ? `, with configurations ${others.join(", ")}` : ""),
  );
  allowed = Object.fromEntries(
    Object.entries(config.policies).map(([name, of]) => [name, of.quality_loss === null ? null : -of.quality_loss]),
  );
  thresholds(config.thresholds);
  canaries(config.canaries);
}

function thresholds(of) {
  byId("thresholds").hidden = !of.length;
  table(
    byId("thresholds-table"),
    [
      ["policy / route", ""],
      ["now", "n"],
      ["as written", "n"],
      ["bounds", "n"],
      ["moves", "n"],
      ["state", ""],
      ["why", ""],
    ],
    of.map((t) => ({
      key: `${t.policy}/${t.route}`,
      cells: [
        `${t.policy} / ${t.route}`,
        t.at.toFixed(3),
        String(t.base),
        t.bounds.join(" – "),
        String(t.moves),
        [t.state, t.state === "frozen" ? "warn" : "good"],
        [t.reason, "soft"],
      ],
    })),
    "",
  );
}

function canaries(of) {
  byId("canaries").hidden = !of.length;
  const kinds = {promoted: "good", rolled_back: "bad"};
  const three = (value) => value.toPrecision(3);
  const worse = (c) =>
    c.worse === null
      ? `${c.measure}: not enough yet`
      : `${c.measure}: ${three(c.worse)} worse (${three(c.low)} to ${three(c.high)}), limit ${c.limit}`;
  table(
    byId("canaries-table"),
    [
      ["policy", ""],
      ["tried", ""],
      ["state", ""],
      ["share", "n"],
      ["requests", "n"],
      ["compared", ""],
      ["why", ""],
    ],
    of.map((c) => ({
      key: `${c.policy}/${c.tried}`,
      cells: [
        c.policy,
        c.tried,
        [c.state.replace("_", " "), kinds[c.state] ?? ""],
        share(c.share, 1),
        `${number(c.requests)} of ${number(c.until)}`,
        [c.comparisons.map(worse).join("; "), "soft"],
        [c.reason, "soft"],
      ],
    })),
    "",
  );
}

// --- quality ---

let allowed = {}; // by policy: the loss that its target allows, negative as a difference is

export function showQuality(data) {
  const rows = data.policies.flatMap((policy) =>
    policy.estimates
      .filter((one) => one.n)
      .map((one) => ({
        policy: policy.policy,
        route: one.route,
        domain: one.domain,
        samples: one.n,
        ...one.to_large,
        target: allowed[policy.policy] ?? null,
      })),
  );
  const body = byId("quality-body");
  if (!rows.length) {
    body.replaceChildren(make("p", data.note ?? "No judged samples yet.", "empty"));
    return;
  }
  body.replaceChildren(...rows.map(interval));
  body.append(
    make(
      "p",
      "Mean over all requests against always asking the large group; the intervals hold at every look.",
      "soft",
    ),
  );
}

function interval(one) {
  const wide = 520,
    low = one.low ?? one.difference,
    high = one.high ?? one.difference,
    target = one.target ?? null;
  const least = Math.min(low, target ?? 0, 0) - 0.03,
    most = Math.max(high, target ?? 0, 0) + 0.03;
  const x = (value) => ((value - least) / (most - least)) * wide;
  const name = [one.policy, one.route, one.domain].filter(Boolean).join(" / "),
    signed = (v) => (v > 0 ? "+" : "") + v.toFixed(3);
  const figure = make("figure");
  const count = number(one.samples ?? 0);
  const needed = one.needed ? `; ${number(one.needed)} more for the precision wanted` : "";
  figure.append(
    make(
      "figcaption",
      `${name}: ${signed(one.difference)} (${signed(low)} to ${signed(high)}), ${count} samples${needed}`,
    ),
  );
  const svg = draw("svg", {
    viewBox: `0 0 ${wide} 52`,
    class: "drawing",
    role: "img",
    "aria-label": `${name}: quality difference ${signed(one.difference)}, interval ${signed(low)} to ${signed(high)}`,
  });
  svg.append(
    draw("line", {x1: x(0), x2: x(0), y1: 4, y2: 34, class: "axis"}),
    draw("text", {x: x(0), y: 47, "text-anchor": "middle"}, "0"),
    draw("line", {x1: x(low), x2: x(high), y1: 20, y2: 20, class: "span"}),
    draw("circle", {cx: x(one.difference), cy: 20, r: 5, class: "dot"}),
  );
  if (target !== null)
    svg.append(
      draw("line", {x1: x(target), x2: x(target), y1: 4, y2: 34, class: "target"}),
      draw("text", {x: x(target), y: 47, "text-anchor": "middle"}, `allowed ${target}`),
    );
  figure.append(svg);
  return figure;
}

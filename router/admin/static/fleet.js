// Deployments with their switches; the configuration in force, thresholds that move, and canaries.
import {ask, byId, make, number, rate, seconds, share, table, withMeter} from "./dom.js";
import {colour, key} from "./charts.js";

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
  config.groups.forEach(colour); // in the order in which they are written, whichever answers first
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
      ["why", "w"],
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

const points = (value) => `${(100 * value).toFixed(1)}%`;
const MEASURES = {
  error_rate: ["errors", points],
  ttft_p95: ["first token, p95", (value) => (value < 0 ? "-" : "") + seconds(Math.abs(value))],
  quality_difference: ["feedback", (value) => value.toFixed(3)],
};

function canaries(of) {
  byId("canaries").hidden = !of.length;
  const kinds = {promoted: "good", rolled_back: "bad"};
  const worse = (c) => {
    const [name, say] = MEASURES[c.measure] ?? [c.measure, (value) => value.toPrecision(3)];
    return c.worse === null
      ? `${name}: not enough yet`
      : `${name}: ${say(c.worse)} worse (${say(c.low)} to ${say(c.high)}), limit ${say(c.limit)}`;
  };
  const compared = (c) => {
    const made = make("span");
    made.append(...c.comparisons.map((one) => make("span", worse(one), "sub")));
    return made;
  };
  table(
    byId("canaries-table"),
    [
      ["policy", ""],
      ["tried", ""],
      ["state", ""],
      ["share", "n"],
      ["requests", "n"],
      ["compared", "w"],
      ["why", "w"],
    ],
    of.map((c) => ({
      key: `${c.policy}/${c.tried}`,
      cells: [
        c.policy,
        c.tried,
        [c.state.replace("_", " "), kinds[c.state] ?? ""],
        share(c.share, 1),
        `${number(c.requests)} of ${number(c.until)}`,
        compared(c),
        [c.reason, "soft"],
      ],
    })),
    "",
  );
}

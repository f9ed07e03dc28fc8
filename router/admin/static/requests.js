// The newest requests, and one of them opened to everything that is remembered of it.
import {ask, byId, clock, dollars, make, number, seconds, table} from "./dom.js";

const OUTCOMES = ["ok", "client_error", "upstream_error", "upstream_truncated", "timeout", "cancelled", "refused"];
const cells = new Map(); // by id: records never change, so neither do their cells

export function fillFilter(config, groups) {
  const form = byId("filter").elements;
  const deployments = [...groups.groups.flatMap((group) => group.deployments), ...groups.unused].map((d) => d.name);
  choose(form.policy, Object.keys(config.policies));
  choose(
    form.group,
    groups.groups.map((group) => group.name),
  );
  choose(form.outcome, OUTCOMES);
  choose(form.deployment, [...new Set(deployments)]);
}

export function choose(select, names, first = select.options[0]) {
  const wanted = JSON.stringify(names);
  if (select.dataset.names === wanted) return;
  select.dataset.names = wanted;
  const chosen = select.value;
  select.replaceChildren(...(first && !first.value ? [first] : []), ...names.map((name) => new Option(name, name)));
  if (names.includes(chosen)) select.value = chosen;
}

export function query() {
  const chosen = [...new FormData(byId("filter"))].filter(([, value]) => value);
  const limit = matchMedia("(max-width: 760px)").matches ? "10" : "25"; // as many as are read at a glance
  return "admin/records?" + new URLSearchParams([["limit", limit], ...chosen]);
}

export function showRecords(data) {
  const rows = data.records.map((record) => {
    if (!cells.has(record.id)) cells.set(record.id, cellsOf(record));
    return {key: record.id, cells: cells.get(record.id)};
  });
  for (const id of [...cells.keys()].slice(0, Math.max(0, cells.size - 500))) cells.delete(id);
  table(
    byId("requests-table"),
    [
      ["time", ""],
      ["request", ""],
      ["policy / route", ""],
      ["why", ""],
      ["score", "n"],
      ["group", ""],
      ["deployment", ""],
      ["outcome", ""],
      ["tokens", "n"],
      ["first token", "n"],
      ["whole", "n"],
      ["cost", "n"],
    ],
    rows,
    "no requests that pass the filter",
  );
}

function served(record) {
  const last = record.attempts[record.attempts.length - 1];
  return last && (record.partial || last.error === null) ? last : null;
}

function scored(record) {
  const score = record.decision?.score ?? Object.values(record.scores).find((value) => value !== null);
  if (score !== undefined && score !== null) return score.toFixed(3);
  return [Object.values(record.abstained)[0] ?? "", "warn"];
}

function cellsOf(record) {
  const decision = record.decision ?? {},
    by = served(record),
    button = make("button", record.id.slice(-12), "link code");
  button.type = "button";
  button.setAttribute("aria-label", `Open request ${record.id}`);
  button.addEventListener("click", () => open(record.id));
  return [
    clock(record.time),
    button,
    `${record.policy || "–"} / ${decision.route ?? "–"}`,
    decision.why ?? "",
    scored(record),
    by?.group ?? decision.group ?? "",
    by?.deployment ?? "",
    [
      record.outcome + (record.attempts.length > 1 ? `, ${record.attempts.length} attempts` : ""),
      record.outcome === "ok" ? (record.attempts.length > 1 ? "warn" : "good") : "bad",
    ],
    `${number(record.usage.input)} + ${number(record.usage.output)}`,
    seconds(record.timing.ttft_s),
    seconds(record.timing.total_s),
    record.cost === null ? "–" : dollars(record.cost),
  ];
}

// --- one of them ---

async function open(id) {
  const dialog = byId("record"),
    body = byId("record-body");
  byId("record-title").textContent = `Request ${id}`;
  body.replaceChildren(make("p", "loading", "soft"));
  dialog.showModal();
  try {
    body.replaceChildren(...whole(await ask(`admin/records/${encodeURIComponent(id)}`)));
  } catch (error) {
    body.replaceChildren(make("p", error.message, "bad"));
  }
}

byId("record-close").addEventListener("click", () => byId("record").close());

function* whole(record) {
  const flags = make("div", null, "flags");
  const flag = (text, kind) => flags.append(make("span", text, `chip ${kind ?? ""}`));
  flag(record.outcome, record.outcome === "ok" ? "good" : "bad");
  flag(record.dialect);
  if (record.stream) flag("stream");
  if (record.partial) flag("cut short", "bad");
  if (record.pinned) flag(`conversation pinned to ${record.pinned.group ?? "nothing"}`);
  for (const one of record.feedback) flag(`feedback ${one.score}${one.label ? ` (${one.label})` : ""}`);
  yield flags;
  if (record.explained) {
    const {in_words: words, same_configuration: same, same_decision: alike} = record.explained;
    yield make(
      "h3",
      same
        ? "Why"
        : "Why, by the configuration in force now" + (alike ? ", which decides the same" : ", which decides otherwise"),
    );
    yield make("pre", words);
  }
  yield make("h3", "Attempts");
  const attempts = make("table");
  table(
    attempts,
    [
      ["deployment", ""],
      ["group", ""],
      ["status", "n"],
      ["error", ""],
      ["first token", "n"],
      ["cost", "n"],
    ],
    record.attempts.map((one, at) => ({
      key: String(at),
      cells: [
        one.deployment + (one.scout ? " (scout)" : ""),
        one.group,
        String(one.status ?? "–"),
        [one.error ?? "none", one.error ? "bad" : "good"],
        seconds(one.ttft_s),
        one.cost == null ? "–" : dollars(one.cost),
      ],
    })),
    "no deployment was called",
  );
  yield attempts;
  yield make("h3", "Numbers");
  const {usage, timing} = record;
  const facts = make("dl", null, "facts"),
    fact = (name, value) => facts.append(make("dt", name), make("dd", value));
  fact("Time", new Date(record.time * 1000).toLocaleString());
  fact(
    "Tokens",
    `${number(usage.input)} in (${number(usage.cached)} cached), ${number(usage.output)} out` +
      (usage.estimated ? ", estimated" : ""),
  );
  fact(
    "Cost",
    record.cost === null
      ? "price not known"
      : `${dollars(record.cost)}` +
          (record.cost_large === null ? "" : `; ${dollars(record.cost_large)} at the dearest group`),
  );
  fact(
    "Times",
    `first token ${seconds(timing.ttft_s)}, a token ${seconds(timing.tpot_s)}, whole ${seconds(timing.total_s)}, ` +
      `gateway's own ${seconds(timing.overhead_s)}`,
  );
  fact("Configuration", record.digest.slice(0, 12));
  if (record.prompt !== null) fact("Prompt", record.prompt);
  yield facts;
  const raw = make("details");
  raw.append(make("summary", "The whole record"), make("pre", JSON.stringify(record, null, 2)));
  yield raw;
}

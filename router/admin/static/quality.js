// What judged answers say of quality, how far the judging has come, and the alarms that are up.
import {byId, clock, dollars, draw, make, number, share, table, withMeter} from "./dom.js";

let allowed = {}; // by policy: the loss that its target allows, negative as a difference is

export function noteTargets(config) {
  allowed = Object.fromEntries(
    Object.entries(config.policies).map(([name, of]) => [name, of.quality_loss === null ? null : -of.quality_loss]),
  );
}

export function showQuality(data) {
  alarms(data.alarms);
  const note = byId("quality-note");
  note.textContent = data.note ?? "";
  note.hidden = !data.note;
  estimates(data.policies);
  judging(data.policies.filter((policy) => policy.sampling.share !== null));
}

// --- alarms ---

const KINDS = {
  score_drift: "Scores are not what they were",
  abstentions: "A scorer gives no score",
  scorer_latency: "A scorer is slow",
  served_model: "Another model answers",
  calibration: "Scores are off",
  quality: "Quality has fallen",
};

function alarms(up) {
  const chip = byId("alarm-chip");
  chip.hidden = !up.length;
  const text = up.length === 1 ? "1 alarm" : `${up.length} alarms`;
  if (chip.textContent !== text) chip.textContent = text;
  byId("alarms-none").hidden = up.length > 0;
  byId("alarms-table").hidden = !up.length;
  table(
    byId("alarms-table"),
    [
      ["alarm", ""],
      ["of", ""],
      ["since", ""],
      ["why", "w"],
    ],
    up.map((one) => ({
      key: `${one.kind}/${one.of}`,
      cells: [[KINDS[one.kind] ?? one.kind, "bad"], one.of, ago(one.since), [one.why, "soft"]],
    })),
    "",
  );
}

function ago(unix) {
  const minutes = Math.max(0, (Date.now() / 1000 - unix) / 60);
  const long = minutes < 60 ? `${Math.round(minutes)} min` : minutes < 2880 ? `${Math.round(minutes / 60)} h` : null;
  return `${clock(unix)}, ${long ?? `${Math.round(minutes / 1440)} days`} ago`;
}

// --- estimates ---

const signed = (value) => (value > 0 ? "+" : "") + value.toFixed(3);
const told = (one) => `${signed(one.difference)} (${signed(one.low)} to ${signed(one.high)})`;

/** All samples of a policy, then its routes and kinds of requests, where there is more than one. */
function* cells(policy) {
  const known = policy.estimates.filter((one) => one.n);
  for (const [kind, of] of [
    ["all", known.filter((one) => one.route === null && one.domain === null)],
    ["route", known.filter((one) => one.route !== null)],
    ["kind", known.filter((one) => one.domain !== null)],
  ])
    if (kind === "all" || of.length > 1) for (const one of of) yield {kind, name: one.route ?? one.domain, one};
}

function estimates(policies) {
  const rows = policies.flatMap((policy) =>
    [...cells(policy)].map((cell) => ({
      ...cell,
      policy: policy.policy,
      precision: policy.precision ?? 0.02,
      target: allowed[policy.policy] ?? null,
    })),
  );
  byId("estimates").hidden = !rows.length;
  if (!rows.length) return;
  const ends = rows.flatMap(({one, target}) => [one.to_large.low, one.to_large.high, target ?? 0, 0]);
  const scale = {least: Math.min(...ends), most: Math.max(...ends)};
  table(
    byId("estimates-table"),
    [
      ["policy", ""],
      ["of", ""],
      ["judged", "n"],
      ["against always asking the large group", "w"],
      ["target", ""],
      ["against always the small one", "n"],
      ["more needed", "n"],
    ],
    rows.map(({kind, name, one, policy, precision, target}) => ({
      key: `${policy}/${kind}/${name}`,
      cells: [
        policy,
        kind === "all" ? "all requests" : kind === "route" ? `route ${name}` : `kind ${name}`,
        number(one.n),
        interval(one.to_large, target, scale),
        verdict(one.to_large, target),
        told(one.to_small),
        needed(one.to_large.needed, precision),
      ],
    })),
    "",
  );
  byId("scale").textContent = `drawn from ${signed(scale.least)} to ${signed(scale.most)}`;
}

function needed(samples, precision) {
  if (samples === null) return [`labelled pairs, for ±${precision}`, "warn"];
  return samples ? `${number(samples)} for ±${precision}` : [`none: within ±${precision}`, "good"];
}

function verdict(one, target) {
  if (target === null) return ["none set", "soft"];
  if (one.low >= target) return [`within ${target}`, "good"];
  return one.high < target ? [`past ${target}`, "bad"] : [`${target}: not known yet`, "warn"];
}

const WIDE = 220,
  HIGH = 22;

function interval(one, target, {least, most}) {
  const x = (value) => 6 + ((value - least) / (most - least || 1)) * (WIDE - 12),
    middle = HIGH / 2;
  const made = make("span", null, "interval");
  const svg = draw("svg", {viewBox: `0 0 ${WIDE} ${HIGH}`, "aria-hidden": "true"});
  svg.append(draw("line", {x1: x(0), x2: x(0), y1: 0, y2: HIGH, class: "axis"}));
  if (target !== null) svg.append(draw("line", {x1: x(target), x2: x(target), y1: 0, y2: HIGH, class: "target"}));
  svg.append(
    draw("line", {x1: x(one.low), x2: x(one.high), y1: middle, y2: middle, class: "span"}),
    draw("circle", {cx: x(one.difference), cy: middle, r: 4.5, class: "dot"}),
  );
  made.append(make("span", told(one)), svg);
  return made;
}

// --- how far the judging has come ---

function judging(policies) {
  byId("judging").hidden = !policies.length;
  table(
    byId("judging-table"),
    [
      ["policy", ""],
      ["judged by", "w"],
      ["today, of the budget", "n"],
      ["share of requests", "n"],
      ["judged since the start", "n"],
      ["dropped", ""],
      ["cost", "n"],
      ["scores off by", "n"],
    ],
    policies.map((policy) => {
      const {sampling: of} = policy,
        dropped = Object.entries(of.dropped).filter(([, count]) => count);
      const today = make("span", `${number(of.today)} of ${number(of.budget_per_day)}`);
      const left = Math.max(0, of.budget_per_day - of.today);
      return {
        key: policy.policy,
        cells: [
          policy.policy,
          judge(policy.judge),
          withMeter(today, of.today / of.budget_per_day, `${policy.policy}: share of the day's budget, ${left} left`),
          of.might ? `${share(of.judged, of.might)} of ${number(of.might)}` : "–",
          number(of.judged),
          [dropped.map(([why, count]) => `${number(count)} ${DROPPED[why] ?? why}`).join(", ") || "none", "soft"],
          dollars(of.cost),
          policy.calibration === null ? "–" : policy.calibration.toFixed(3),
        ],
      };
    }),
    "",
  );
}

const DROPPED = {
  busy: "for lack of room",
  budget: "past the budget",
  failed: "that failed",
  unreadable: "unreadable",
  elsewhere: "served elsewhere",
};

function judge(of) {
  const made = make("span", [of.checker, of.group && `group ${of.group}`].filter(Boolean).join(", then ") || "nobody");
  const sure =
    of.agreement === null
      ? of.why_uncorrected
      : `right on ${share(of.agreement, 1)} of ${number(of.labelled_pairs)} labelled pairs, corrected`;
  if (sure) made.append(make("span", sure, "sub"));
  return made;
}

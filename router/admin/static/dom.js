// Elements, numbers and questions to the gateway. Values enter the page through textContent and attributes of elements
// made here, never as HTML.

export const byId = (id) => document.getElementById(id);

export function make(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

export function draw(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

// --- numbers ---

export const number = (n) => n.toLocaleString("en");
export const compact = (n) => n.toLocaleString("en", {notation: "compact", maximumFractionDigits: 1});
export const rate = (n) =>
  n === 0 ? "0" : n >= 100 ? Math.round(n).toLocaleString("en") : n >= 10 ? n.toFixed(1) : n.toFixed(2);
export const share = (part, whole) => (whole ? ((100 * part) / whole).toFixed(1) + "%" : "–");
export function dollars(n) {
  const size = Math.abs(n);
  const digits =
    size === 0 || size >= 1
      ? {minimumFractionDigits: 2, maximumFractionDigits: size >= 1000 ? 0 : 2}
      : size >= 0.01
        ? {minimumFractionDigits: 2, maximumFractionDigits: 4}
        : {maximumSignificantDigits: 2};
  if (size >= 1000) digits.minimumFractionDigits = 0;
  return (n < 0 ? "-$" : "$") + size.toLocaleString("en", digits);
}
export function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s === 0) return "0";
  if (s < 0.001) return (s * 1e6).toFixed(0) + " µs";
  if (s < 0.01) return (s * 1e3).toFixed(1) + " ms";
  return s < 1 ? (s * 1e3).toFixed(0) + " ms" : s < 100 ? s.toFixed(1) + " s" : s.toFixed(0) + " s";
}
export const clock = (unix) =>
  new Date(unix * 1000).toLocaleTimeString([], {hour: "2-digit", minute: "2-digit", second: "2-digit"});

// --- tables: rows that stay keep their elements, so that focus and selection survive a refresh ---

/**
 * columns: [name, class]: "n" for numbers, "w" for what has a line of its own on a phone, or "";
 * rows: {key, cells}, a cell being text, [text, class] or a Node.
 */
export function table(of, columns, rows, empty) {
  if (!of.tHead) {
    const head = of.createTHead().insertRow();
    for (const [name, kind] of columns) {
      const cell = make("th", name, kind);
      cell.scope = "col";
      head.append(cell);
    }
    of.append(make("tbody"));
  }
  const body = of.tBodies[0];
  const kept = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const shown = rows.length ? rows : [{key: "", cells: [[empty, "soft"]], wide: true}];
  let at = 0;
  for (const {key, cells, wide} of shown) {
    let row = kept.get(key);
    if (row) kept.delete(key);
    else {
      row = make("tr");
      row.dataset.key = key;
    }
    cells.forEach((cell, index) => place(row, cell, index, columns, wide));
    while (row.cells.length > cells.length) row.lastChild.remove();
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
    at += 1;
  }
  for (const row of kept.values()) row.remove();
}

function place(row, cell, index, columns, wide) {
  let td = row.cells[index];
  if (!td) {
    td = make(index === 0 && !wide ? "th" : "td");
    if (td.tagName === "TH") td.scope = "row";
    row.append(td);
    if (wide) td.colSpan = columns.length;
    else td.dataset.label = columns[index][0];
  }
  const kind = wide ? "" : columns[index][1];
  if (cell instanceof Node) {
    td.className = kind;
    // A node that is the same as the one there, or holds focus, stays: buttons are updated by who made them.
    if (td.firstChild !== cell) td.replaceChildren(cell);
    return;
  }
  const [text, own] = Array.isArray(cell) ? cell : [cell, ""];
  td.className = [kind, own].filter(Boolean).join(" ");
  if (td.textContent !== String(text)) td.textContent = text;
}

export function withMeter(made, value, label) {
  const meter = make("meter");
  Object.assign(meter, {min: 0, max: 1, high: 0.9, value: Math.min(1, value)});
  meter.setAttribute("aria-label", label);
  made.append(meter);
  return made;
}

// --- the gateway ---

const TOKEN = "pointsman-token";
let signIn = null; // one question for the token at a time

export async function ask(path, options = {}) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN);
    const headers = {accept: "application/json", ...(options.body ? {"content-type": "application/json"} : {})};
    if (token) headers.authorization = `Bearer ${token}`;
    const reply = await fetch(path, {...options, headers, credentials: "omit"});
    if (reply.status === 401) {
      sessionStorage.removeItem(TOKEN);
      signIn ??= askToken(token !== null).finally(() => {
        signIn = null;
      });
      await signIn;
      continue;
    }
    const data = await reply.json();
    if (!reply.ok && !(options.also ?? []).includes(reply.status)) {
      throw new Error(data.error?.message ?? `${path} answered ${reply.status}`);
    }
    return data;
  }
}

function askToken(wrong) {
  const dialog = byId("sign-in"),
    form = byId("sign-in-form");
  byId("sign-in-wrong").textContent = wrong ? "That is not the token." : "";
  form.elements.token.value = "";
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.oncancel = (event) => event.preventDefault();
    form.onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(TOKEN, form.elements.token.value);
      dialog.close();
      resolve();
    };
  });
}

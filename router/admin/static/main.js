// The page's clock: asks the gateway again and again while somebody looks, and hands the answers to who shows them.
import {ask, byId} from "./dom.js";
import {redraw} from "./charts.js";
import {noteSpeeds, showConfig, showGroups} from "./fleet.js";
import {noteTargets, showQuality} from "./quality.js";
import {fillFilter, query, showRecords} from "./requests.js";
import {showSummary} from "./traffic.js";
import {fillModels, fillPolicies} from "./tryit.js";

const EVERY_MS = 3000;
let said = null,
  saidUntil = 0,
  digest = null,
  running = false,
  again = false;

/** A line that screen readers hear: what an action came to. Mistakes of the gateway's own come with every refresh. */
function tell(text, calm = false) {
  said = {text, calm};
  saidUntil = Date.now() + 8000;
  notice([]);
}

function notice(faults) {
  const line = byId("notice"),
    fresh = said && Date.now() < saidUntil ? said : null;
  const text = faults.length ? faults.join(" · ") : (fresh?.text ?? "");
  line.classList.toggle("calm", !faults.length && Boolean(fresh?.calm));
  if (line.textContent !== text) line.textContent = text;
}

async function refresh() {
  if (running) {
    again = true; // what was chosen meanwhile is shown as soon as this round is over
    return;
  }
  running = true;
  const faults = [];
  const read = (path, show) =>
    ask(path)
      .then(show)
      .catch((error) => {
        faults.push(error instanceof TypeError ? "the gateway does not answer" : error.message);
      });
  let config = null;
  await read("admin/config", (data) => {
    config = data;
    showConfig(data);
    noteTargets(data);
  });
  if (config?.draining) faults.push("this gateway is draining");
  if (config && !config.reload_ok) faults.push(`the last change of the files was refused: ${config.reload_error}`);
  await read(`admin/summary?window=${byId("window").value}`, (data) => {
    noteSpeeds(data);
    showSummary(data);
  });
  await Promise.all([
    read("admin/groups", (data) => {
      showGroups(data, tell);
      if (config) fillFilter(config, data);
    }),
    read(query(), showRecords),
    read("admin/quality", showQuality),
  ]);
  if (config && config.digest !== digest) {
    fillModels(config);
    await read("admin/policies", fillPolicies);
    digest = config.digest;
  }
  notice([...new Set(faults)]);
  document.body.dataset.loaded = "yes";
  running = false;
  if (again) {
    again = false;
    await refresh();
  }
}

async function loop() {
  if (!document.hidden && byId("pause").getAttribute("aria-pressed") !== "true") await refresh();
  setTimeout(loop, EVERY_MS);
}

// --- what is pressed ---

byId("pause").addEventListener("click", (event) => {
  const paused = event.target.getAttribute("aria-pressed") !== "true";
  event.target.setAttribute("aria-pressed", String(paused));
  event.target.textContent = paused ? "Paused" : "Pause";
});

byId("reload").addEventListener("click", async () => {
  try {
    const told = await ask("admin/reload", {method: "POST", also: [422]});
    tell(
      told.reload_ok ? `the files are in force as ${told.digest.slice(0, 12)}` : `refused: ${told.reload_error}`,
      told.reload_ok,
    );
  } catch (error) {
    tell(error.message);
  }
  refresh();
});

byId("window").addEventListener("change", refresh);
byId("filter").addEventListener("change", refresh);
byId("filter").addEventListener("submit", (event) => event.preventDefault());
for (const details of document.querySelectorAll("figure details"))
  details.addEventListener("toggle", () => {
    if (details.open) refresh();
  });
document.addEventListener("refresh", refresh);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});

// --- light and dark ---

const system = matchMedia("(prefers-color-scheme: dark)"),
  theme = byId("theme");

function dress() {
  const chosen = theme.value;
  if (chosen) document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
  document.documentElement.dataset.look = chosen || (system.matches ? "dark" : "light");
  redraw();
}

theme.value = localStorage.getItem("pointsman-theme") ?? "";
theme.addEventListener("change", () => {
  localStorage.setItem("pointsman-theme", theme.value);
  dress();
  refresh();
});
system.addEventListener("change", () => {
  dress();
  refresh();
});
dress();
loop();

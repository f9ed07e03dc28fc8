// What would a prompt do, under the policies in force or an edited one? Nothing is called or applied.
import {ask, byId, make} from "./dom.js";
import {choose} from "./requests.js";

const form = byId("try-form"),
  result = byId("try-result");
let policies = [];

export function fillModels(config) {
  const models = Object.values(config.policies).flatMap((policy) => policy.models);
  choose(form.elements.model, [...new Set([...models, ...config.groups])], null);
}

export function fillPolicies(data) {
  policies = data.policies;
  choose(
    form.elements.policy,
    policies.map((one) => one.file),
  );
  [...form.elements.policy.options].forEach((option) => {
    const found = policies.find((one) => one.file === option.value);
    if (found) option.textContent = `edit ${found.policy}`;
  });
}

form.elements.policy.addEventListener("change", () => {
  const found = policies.find((one) => one.file === form.elements.policy.value);
  byId("try-edit").hidden = !found;
  if (found) form.elements.text.value = found.text;
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const {prompt, model, headers, policy, text} = form.elements;
  const body = {
    request: {model: model.value, messages: [{role: "user", content: prompt.value}]},
    headers: Object.fromEntries(
      headers.value
        .split(";")
        .map((one) => one.split(":"))
        .filter((one) => one.length > 1)
        .map(([name, ...rest]) => [name.trim().toLowerCase(), rest.join(":").trim()]),
    ),
  };
  try {
    const shown = [card("The policies in force", await decide(body))];
    if (policy.value)
      shown.push(
        card(`${policy.value} as edited`, await decide({...body, policy: {file: policy.value, text: text.value}})),
      );
    const box = make("div", null, "results");
    box.append(...shown);
    result.replaceChildren(box);
  } catch (error) {
    result.replaceChildren(make("p", error.message, "bad"));
  }
});

const decide = (body) => ask("admin/try", {method: "POST", body: JSON.stringify(body), also: [422]});

function card(title, told) {
  const made = make("div");
  made.append(make("h3", title));
  if (!told.decision) {
    made.append(make("p", "This policy would be refused", "verdict bad"));
    const list = make("ul");
    list.append(
      ...told.mistakes.map((one) =>
        make("li", `${one.file}:${one.line}:${one.column}: ${one.path}: ${one.message}`, "code"),
      ),
    );
    made.append(list);
    return made;
  }
  const {group, route, score, deployment} = told.decision;
  const scored = score === null ? "" : `, score ${score.toFixed(3)}`;
  made.append(
    make("p", `Group ${group}`, "verdict"),
    make("p", `by route ${route}${scored}, at ${deployment ?? "no deployment that can serve"}`, "soft"),
    make("pre", told.in_words),
  );
  for (const one of told.warnings) made.append(make("p", `${one.file}:${one.line}: ${one.message}`, "warn small"));
  return made;
}

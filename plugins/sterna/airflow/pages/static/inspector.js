// The inspector of features: one entity's, as the feature service has them now.
import { el, facts, note, show } from "./dom.js";
import { ask } from "./api.js";
import { moment } from "./format.js";
import { t } from "./text.js";

export function open(place) {
  const button = el("button", { type: "button" }, t("look"));
  const result = el("div", { "aria-live": "polite" });
  const key = el("div", {});
  const choice = el("div", {});
  let fields = [];
  let pending = false;
  let view = null;
  let left = false;

  function choose(found) {
    view = found;
    offerKey(found);
    show(result);
  }

  function offerKey(found) {
    if (isUser(found)) draw([t("userId")], { inputmode: "numeric", placeholder: t("typeUser") });
    else draw(found.key);
  }

  function draw(names, given = {}) {
    const typed = fields.map((field) => field.value);
    const focused = fields.indexOf(document.activeElement);
    fields = names.map((_, at) => el("input", { id: `featureKey${at}`, type: "text", autocomplete: "off", onkeydown: entered, value: typed[at], ...given }));
    show(key, ...names.flatMap((name, at) => [
      el("label", { for: `featureKey${at}` }, name),
      el("div", { class: "line" }, fields[at], at === names.length - 1 ? button : null),
    ]));
    fields[focused]?.focus();
  }

  function entered(event) {
    if (event.key === "Enter" && !event.isComposing) look();
  }

  async function offer() {
    let views = [];
    try {
      views = await ask("api/views");
    } catch {
      return; // a user can be asked for without
    }
    if (left || !views.length) return;
    const list = el("select", { id: "featureView", onchange: () => choose(views[list.selectedIndex]) }, ...views.map((each) => el("option", {}, each.name)));
    show(choice, el("label", { for: "featureView" }, t("featureView")), list);
    choose(views[0]);
  }

  async function look() {
    // A space may be part of an id, but not of a user's, which is a number.
    const ids = fields.map((field) => isUser(view) ? field.value.trim() : field.value);
    if (ids.includes("") || pending) return;
    const asked = view;
    pending = true;
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    show(result, note("loading", t("loading")));
    try {
      const found = isUser(asked) ? await ask(`api/features/${encodeURIComponent(ids[0])}`) : await ask("api/features", { view: asked.name, id: ids });
      if (asked === view) show(result, isUser(asked) ? drawn(found, asked) : listed(found));
    } catch (error) {
      if (asked === view) show(result, el("div", { class: "note error", role: "alert" }, el("strong", {}, t("lookupFailed")), " ", el("span", {}, reason(error))));
    } finally {
      pending = false;
      button.disabled = false;
      button.removeAttribute("aria-busy");
    }
  }

  button.addEventListener("click", look);
  show(place, el("section", { class: "card narrow" }, el("h3", {}, t("inspectorTitle")),
    choice, key, result));
  offerKey(view);
  offer();
  return () => {
    left = true;
  };
}

// A user is asked for by a route of its own, and has labels of its own: with this view as without any.
function isUser(view) {
  return !view || view.of_users;
}

function listed(features) {
  const list = facts(Object.entries(features).map(pair));
  list.dataset.testid = "features-display";
  return list;
}

function pair([name, value]) {
  return [name, typeof value === "object" && value !== null ? JSON.stringify(value) : text(value)];
}

// Those of the labels, and where the services file has the view, what else it has.
function drawn(features, view) {
  const { age, city, last_updated_ts: last, ...others } = features;
  const labelled = [[t("featureAge"), age, text], [t("city"), city, text], [t("updated"), last, updated]].filter(([, value]) => !view || value !== undefined);
  const list = facts([...labelled.map(([label, value, shown]) => [label, shown(value)]), ...(view ? Object.entries(others).map(pair) : [])]);
  list.dataset.testid = "features-display";
  return list;
}

function reason(error) {
  return error.status && !error.message.startsWith("HTTP ") ? error.message : t("unknownError");
}

function text(value) {
  return value === null || value === undefined ? "–" : String(value);
}

function updated(value) {
  return value === null || value === undefined ? "–" : moment(value);
}

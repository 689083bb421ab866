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
    draw(found.key);
    show(result);
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
    const ids = fields.map((field) => view ? field.value : field.value.trim());
    if (ids.includes("") || pending) return;
    const asked = view;
    pending = true;
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    show(result, note("loading", t("loading")));
    try {
      const found = asked ? await ask("api/features", { view: asked.name, id: ids }) : await ask(`api/features/${encodeURIComponent(ids[0])}`);
      if (asked === view) show(result, asked ? listed(found) : drawn(found));
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
  draw([t("userId")], { inputmode: "numeric", placeholder: t("typeUser") });
  offer();
  return () => {
    left = true;
  };
}

function listed(features) {
  const list = facts(Object.entries(features).map(([name, value]) => [name, typeof value === "object" && value !== null ? JSON.stringify(value) : text(value)]));
  list.dataset.testid = "features-display";
  return list;
}

function drawn(features) {
  const list = facts([[t("featureAge"), text(features.age)], [t("city"), text(features.city)], [t("updated"), updated(features.last_updated_ts)]]);
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

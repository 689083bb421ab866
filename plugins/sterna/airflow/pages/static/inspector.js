// The inspector of features: one user's, as the feature service has them now.
import { el, facts, note, show } from "./dom.js";
import { ask } from "./api.js";
import { moment } from "./format.js";
import { t } from "./text.js";

export function open(place) {
  const input = el("input", { id: "userId", type: "text", inputmode: "numeric", autocomplete: "off", placeholder: t("typeUser") });
  const button = el("button", { type: "button" }, t("look"));
  const result = el("div", { "aria-live": "polite" });
  let pending = false;

  async function look() {
    const user = input.value.trim();
    if (!user || pending) return;
    pending = true;
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    show(result, note("loading", t("loading")));
    try {
      const found = await ask(`api/features/${encodeURIComponent(user)}`);
      show(result, drawn(found));
    } catch (error) {
      show(result, el("div", { class: "note error", role: "alert" }, el("strong", {}, t("lookupFailed")), " ", el("span", {}, reason(error))));
    } finally {
      pending = false;
      button.disabled = false;
      button.removeAttribute("aria-busy");
    }
  }

  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing) look();
  });
  button.addEventListener("click", look);
  show(place, el("section", { class: "card narrow" }, el("h3", {}, t("inspectorTitle")),
    el("label", { for: "userId" }, t("userId")), el("div", { class: "line" }, input, button), result));
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

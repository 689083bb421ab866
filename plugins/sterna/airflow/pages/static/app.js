// The frame around the views: navigation, language, and the look that Airflow has.
import { el, note, show } from "./dom.js";
import { configured, follow } from "./api.js";
import { language, setLanguage, t } from "./text.js";
import * as regions from "./regions.js";
import * as tables from "./tables.js";
import * as runs from "./runs.js";
import * as events from "./events.js";
import * as ingest from "./ingest.js";
import * as inspector from "./inspector.js";
import * as runBook from "./run_book.js";

const VIEWS = { regions, tables, runs, events, ingest, inspector, runBook };
let named = ["regions", "tables", "runs", "events"];
let leave = () => {};

function current() {
  const name = location.hash.replace(/^#\/?/, "").split("/")[0];
  return name in VIEWS ? name : "regions";
}

function navigation() {
  show(document.getElementById("nav"), named.map((each) =>
    el("a", { href: `#/${each}`, "aria-current": each === current() ? "page" : null }, t(each))));
}

function draw() {
  leave();
  const name = current();
  document.documentElement.lang = language() === "zh" ? "zh-CN" : "en";
  document.title = `sterna · ${t(name)}`;
  const main = document.getElementById("main");
  navigation();
  document.getElementById("skip").textContent = t("skip");
  const button = document.getElementById("language");
  button.textContent = language() === "zh" ? "English" : "中文";
  button.lang = language() === "zh" ? "en" : "zh-CN";
  const place = el("div", { class: "view" });
  show(main, el("h2", {}, t(name)), place);
  try {
    leave = VIEWS[name].open(place) ?? (() => {});
  } catch (error) {
    show(place, note("error", String(error.message ?? error)));
  }
}

// Only what is configured has a name in the navigation.
async function nameConfigured() {
  const found = await configured();
  named = [...named, ...["ingest", "inspector"].filter((each) => found[each])];
  navigation();
}

function look() {
  let dark = matchMedia("(prefers-color-scheme: dark)").matches;
  try {
    if (window.parent !== window) {
      const root = window.parent.document.documentElement;
      if (root.classList.contains("dark")) dark = true;
      if (root.classList.contains("light")) dark = false;
    }
  } catch {
    // another origin's frame: the browser's own setting holds
  }
  document.documentElement.dataset.look = dark ? "dark" : "light";
}

document.getElementById("language").addEventListener("click", () => {
  setLanguage(language() === "zh" ? "en" : "zh");
  draw();
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a.airflow");
  if (link) follow({ currentTarget: link, preventDefault: () => event.preventDefault() });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", look);
window.addEventListener("hashchange", draw);
window.addEventListener("storage", ({ key }) => {
  if (key === "timezone") draw(); // another one was chosen in Airflow's pages
});
window.addEventListener("pagehide", () => leave());
look();
draw();
nameConfigured();

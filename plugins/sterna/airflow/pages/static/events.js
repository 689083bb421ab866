// Events as they come, and the sinks that send them on.
import { badge, el, facts, grid, note, show } from "./dom.js";
import { address, ask, configured, send } from "./api.js";
import { count, moment, seconds, short } from "./format.js";
import { t } from "./text.js";

const EVERY = 15_000;
const MOST = 20;
const STATES = { "Disconnected": "calm", "Connecting...": "orange", "Connected": "green", "Listening for messages...": "green", "Failed": "red" };

export function open(place) {
  let stream = null;
  let left = false;
  let timer = 0;
  let turn = 0;
  const told = [];
  const state = el("p", { class: "state", role: "status", "data-testid": "connection" });
  const last = el("div", { "aria-live": "polite" });
  const list = el("div", {});
  const figure = el("p", { class: "big", "data-testid": "kpi" }, t("waiting"));
  const button = el("button", { type: "button", onclick: () => (stream ? stop() : start()) });
  const outlets = el("div", {}, note("loading", t("loading")));

  function said(name) {
    show(state, el("span", { class: `dot ${STATES[name]}`, "aria-hidden": "true" }), el("span", {}, name));
    state.dataset.color = STATES[name];
    button.textContent = stream ? t("disconnect") : t("connect");
  }

  function start() {
    stream = new EventSource(address("api/events"));
    said("Connecting...");
    stream.addEventListener("open", () => said("Connected"));
    stream.addEventListener("hello", () => said("Listening for messages..."));
    stream.addEventListener("told", (message) => add(JSON.parse(message.data)));
    stream.addEventListener("failed", (message) => failed(JSON.parse(message.data).error));
    stream.addEventListener("error", () => {
      if (stream && stream.readyState === EventSource.CLOSED) failed(t("streamRefused"));
      else if (stream) said("Connecting...");
    });
  }

  function failed(why) {
    stream?.close();
    stream = null;
    said("Failed");
    state.append(el("span", { class: "quiet" }, ` ${why}`));
  }

  function stop() {
    stream?.close();
    stream = null;
    said("Disconnected");
  }

  function add(event) {
    told.unshift(event);
    told.length = Math.min(told.length, MOST);
    show(last, facts([[t("lastTable"), event.table], [t("snapshot"), event.snapshot || "–"], [t("at"), moment(event.at)]]));
    show(list, grid([t("at"), t("table"), t("what"), t("snapshot")], told.map((each) => el("tr", {}, el("td", {}, moment(each.at)),
      el("th", { scope: "row", class: "name" }, each.table), el("td", {}, each.type), el("td", { class: "id" }, each.snapshot || "–"))), { label: t("events") }));
    measure(event);
  }

  async function measure(event) {
    const mine = (turn += 1);
    figure.setAttribute("aria-busy", "true");
    try {
      const found = await ask("api/kpi", { at: event.id });
      if (mine !== turn || left) return;
      if (found.configured) show(figure, Object.entries(found.kpi ?? {}).map(([name, value]) => el("span", { class: "kpi" }, String(value), el("small", {}, ` ${name}`))));
    } catch (error) {
      if (mine === turn && !left) show(figure, el("small", {}, error.message));
    } finally {
      if (mine === turn) figure.removeAttribute("aria-busy");
    }
  }

  async function draw() {
    try {
      const found = await ask("api/outlets");
      if (!left) show(outlets, drawn(found));
    } catch (error) {
      if (!left) show(outlets, note("error", error.message));
    }
    if (!left) timer = setTimeout(draw, EVERY);
  }

  function drawn(found) {
    if (!found.sinks.length) return "";
    return [el("h3", {}, t("outlets")), grid([t("outlet"), t("kind"), t("position"), t("behind"), t("age"), t("dead")], found.sinks.map((each) => el("tr", {}, el("th", { scope: "row" }, each.name),
      el("td", {}, each.target || badge("orange", t("notInFile"))), el("td", { class: "name" }, each.position ? short(each.position) : t("notBegun")),
      el("td", {}, each.kept ? t("eventsBehind", { events: count(each.events) }) : badge("orange", t("notKept"))), el("td", {}, seconds(each.lag)),
      el("td", {}, each.dead ? el("button", { type: "button", onclick: () => confirmed(each.name) }, t("replayMany", { count: count(each.dead) })) : "0"))), { label: t("outlets") })];
  }

  async function confirmed(name) {
    const inside = el("div", {}, note("loading", t("loading")));
    const close = el("button", { type: "button", onclick: () => dialog.close() }, t("cancel"));
    const go = el("button", { type: "button", class: "act", disabled: true }, t("replay"));
    const dialog = el("dialog", { "aria-label": t("replayTitle", { name }) }, el("h3", {}, t("replayTitle", { name })), inside, el("div", { class: "line" }, close, go));
    dialog.addEventListener("close", () => dialog.remove());
    place.append(dialog);
    dialog.showModal();
    try {
      const found = await ask(`api/outlets/${encodeURIComponent(name)}/dead`);
      show(inside, el("p", {}, t("replaySure", { count: count(found.count) })), el("ul", { class: "held" },
        ...found.letters.slice(0, 10).map((each) => el("li", {}, el("span", { class: "name" }, each.table), ` – ${each.reason}`))));
      go.disabled = found.count === 0;
      go.addEventListener("click", () => act(name, found.count, inside, go));
    } catch (error) {
      show(inside, note("error", error.message));
    }
  }

  async function act(name, number, inside, go) {
    go.disabled = true;
    show(inside, note("loading", t("sending")));
    try {
      const done = await send(`api/outlets/${encodeURIComponent(name)}/replay`, { confirmed: number });
      show(inside, note(done.problem ? "warning" : "calm", `${t("replayed", { sent: count(done.sent), left: count(done.left) })} ${done.problem}`));
      clearTimeout(timer);
      draw();
    } catch (error) {
      show(inside, note("error", error.message));
    }
  }

  show(place, el("section", { class: "card" }, el("div", { class: "title" }, el("h3", {}, t("live")), state, button), el("div", { class: "pair" }, el("div", {}, last), figure), list),
    el("section", {}, outlets));
  configured().then((found) => {
    figure.hidden = !found.figure;
  });
  said("Disconnected");
  start();
  draw();
  return () => {
    left = true;
    clearTimeout(timer);
    stream?.close();
  };
}

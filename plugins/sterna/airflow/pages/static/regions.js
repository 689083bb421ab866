// A card a region. Each asks for itself: one that is dark leaves the others as they are.
import { badge, el, facts, grid, link, linked, note, row, show } from "./dom.js";
import { ask } from "./api.js";
import { count, moment, seconds, short, size } from "./format.js";
import { percentiles, sparkline } from "./spark.js";
import { t } from "./text.js";

const EVERY = 10_000;
const MOST_HELD = 20;

export function open(place) {
  let timer = 0;
  let left = false;
  const cards = new Map();

  async function draw() {
    try {
      const { own, regions } = await ask("api/regions");
      if (left) return;
      if (cards.size === 0) show(place, el("div", { class: "cards" }, ...regions.map((name) => slot(name, name === own))));
      await Promise.all(regions.map(update));
    } catch (error) {
      if (!left && cards.size === 0) show(place, note("error", error.message));
    }
    if (!left) timer = setTimeout(draw, EVERY);
  }

  function slot(name, own) {
    const card = el("section", { class: "card", "data-region": name, "aria-label": name }, title(name, own, null), note("loading", t("loading")));
    cards.set(name, { card, own });
    return card;
  }

  async function update(name) {
    const found = cards.get(name);
    if (!found) return;
    let inside;
    try {
      inside = drawn(name, found.own, await ask(`api/regions/${encodeURIComponent(name)}`));
    } catch (error) {
      inside = [title(name, found.own, badge("calm", t("noAnswer"))), note("warning", error.message)];
    }
    if (left) return;
    const before = found.card.querySelector("details");
    show(found.card, inside);
    const now = found.card.querySelector("details");
    if (before && now) now.open = before.open; // as whoever reads it left it
  }

  show(place, note("loading", t("loading")));
  draw();
  return () => {
    left = true;
    clearTimeout(timer);
  };
}

function title(name, own, mark) {
  return el("div", { class: "title" }, el("h3", {}, name), own ? badge("calm", t("thisRegion")) : null, mark);
}

function drawn(name, own, card) {
  if (card.dark) {
    return [title(name, own, badge("dark", t("dark"))), note("warning", card.dark),
      facts([[t("watermark"), card.watermark ? short(card.watermark) : ""], [t("lastCommit"), card.last_commit ? moment(card.last_commit) : ""],
        [t("seenFrom"), card.watermark ? card.seen_from : ""]])];
  }
  const red = card.alarms.length > 0;
  const mark = red ? badge("red", t("needsYou")) : card.held.length ? badge("calm", t("someHeld")) : card.last_run ? badge("green", t("well")) : badge("calm", t("notStarted"));
  const synced = card.replica_hash !== "";
  const day = card.delays?.windows.find((each) => each.window === "day");
  const bound = card.cut_off ? t("atMost") : "";
  return [title(name, own, mark),
    el("p", { class: "big" }, `${bound}${seconds(card.lag_seconds)}`, el("small", {}, ` ${t("lagNow")}`)),
    synced ? null : note("warning", t("neverSynced", { region: name })),
    !synced ? null : sparkline(card.delays?.points ?? [], day, card.alarms.some((each) => each.kind === "lag" || each.kind === "objective")),
    day?.count ? el("p", { class: "quiet" }, `${t("dayDelays")} ${percentiles(day).join(" · ")}`) : null,
    ...(synced ? delays(card.delays) : []),
    card.alarms.length ? el("ul", { class: "alarms" }, ...card.alarms.map((each) => el("li", {}, el("strong", {}, each.kind), " ", ...linked(each.text)))) : null,
    card.cut_off ? note("warning", card.cut_off) : null,
    facts([[t("watermark"), card.watermark ? short(card.watermark) : t(synced ? "seeding" : "none")], [t("mainAt"), short(card.source_hash)], [t("primary"), reign(card)],
      [t("lastCommit"), moment(card.last_commit)], [t("lastRun"), card.last_run || "–"], [t("connection"), card.cut_off ? t("cutOff") : t("connected")],
      ...stored(card.stored), [t("transit"), card.transit.length ? transit(card.transit) : ""]]),
    card.unread_held ? note("warning", card.unread_held) : null,
    card.held.length ? held(card.held) : el("p", { class: "quiet" }, t("nothingHeld")),
    ...card.unseen.map((each) => note("warning", `${t("notLookedAt")} ${each}`))];
}

function delays(found) {
  if (!found) return [];
  const objectives = found.objectives.map((each) => el("p", { class: each.burning === false ? "quiet" : "objective" }, objective(each)));
  if (found.problem) return [note("warning", `${t("delaysUnknown")} ${found.problem}`), ...objectives];
  const rows = found.windows.map((each) => row(t(each.window), seconds(each.p50), seconds(each.p95), seconds(each.p99), seconds(each.most), count(each.count)));
  const heads = [t("delay"), "p50", "p95", "p99", t("most"), t("versions")];
  return [el("details", {}, el("summary", {}, t("delaysSince", { since: moment(found.since) })), grid(heads, rows, { label: t("delay") })), ...objectives];
}

function objective(found) {
  const goal = t("objective", { share: `${+(100 * found.share).toFixed(6)} %`, tables: found.tables.join(", "), lag: seconds(found.lag) });
  if (found.left === null) return `${goal}: ${t("unknown")}`;
  const state = found.left < 0 ? t("budgetGone") : t("budgetLeft", { left: `${Math.floor(100 * found.left)} %` });
  return `${goal}: ${state}${found.burning ? `, ${t("burning")}` : ""}`;
}

function reign(card) {
  if (card.shared) return t("sharedCatalog");
  return card.primary ? t("reign", { primary: card.primary, epoch: card.epoch }) : t("unknown");
}

function stored(found) {
  return found ? [[t("evidence"), size(found.evidence.bytes)], [t("garbage"), size(found.garbage.bytes)]] : [[t("evidence"), t("notCounted")]];
}

function transit(items) {
  return t("transitLeft", { tables: count(items.length), bytes: size(items.reduce((sum, each) => sum + each.bytes_left, 0)) });
}

function held(items) {
  const rows = items.slice(0, MOST_HELD).map((item) => el("li", {}, el("strong", { class: "name" }, item.held.key),
    facts([[t("since"), item.held.since ? moment(item.held.since) : t("unknown")], [t("reason"), `${item.held.kind}: ${item.held.reason}`], [t("file"), item.held.file], [t("remedy"), item.do],
      [t("entry"), link(item.card)]])));
  const more = items.length > MOST_HELD ? el("p", { class: "quiet" }, t("more", { count: count(items.length - MOST_HELD) })) : null;
  return el("details", { open: items.length <= 3 }, el("summary", {}, t("heldTables", { count: count(items.length) })), el("ul", { class: "held" }, ...rows), more);
}

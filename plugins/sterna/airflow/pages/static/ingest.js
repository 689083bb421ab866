// What came in from outside: tenants, what waits, batches, and where one upload is.
import { badge, el, facts, grid, note, row, show } from "./dom.js";
import { ask } from "./api.js";
import { count, moment, seconds, short, size } from "./format.js";
import { t } from "./text.js";

const EVERY = 10_000;
const COLORS = { published: "green", rejected: "red", staged: "calm", closed: "calm", buffered: "calm" };

export function open(place) {
  const wished = { state: "", tenant: "" };
  let timer = 0;
  let left = false;
  let turn = 0;
  const standing = el("div", {}, note("loading", t("loading")));

  async function draw(change = {}) {
    Object.assign(wished, change);
    clearTimeout(timer);
    const mine = (turn += 1);
    try {
      const found = await ask("api/ingest", wished);
      if (!left && mine === turn) show(standing, drawn(found));
    } catch (error) {
      if (!left && mine === turn) show(standing, note("error", error.message));
    }
    if (!left && mine === turn) timer = setTimeout(draw, EVERY);
  }

  function drawn(found) {
    if (!found.configured) return note("empty", t("noIngest"));
    if (!found.begun) return note("empty", t("nothingCame"));
    const tenants = grid([t("tenant"), t("backlog"), t("lastDay")], found.tenants.map((each) => row(each.name, size(each.backlog), size(each.day))), { label: t("tenants") });
    const tables = found.tables.length ? grid([t("tenant"), t("table"), t("drops"), t("batches"), t("bytes"), t("oldest"), t("reason")], found.tables.map((each) =>
      row(each.tenant, each.table, count(each.buffered), count(each.waiting), size(each.bytes), each.exit_code ? badge("red", seconds(each.lag)) : seconds(each.lag), each.reason)),
    { label: t("backlog") }) : note("empty", t("nothingWaits"));
    return [el("h3", {}, t("tenants")), tenants, el("h3", {}, t("backlog")), tables, states(found.counts), el("h3", {}, t("workers")), ...workers(found), ...unserved(found.unserved),
      el("h3", {}, t("batches")), filters(found), batches(found.batches)];
  }

  function filters(found) {
    const one = (id, name, values) => {
      const choice = el("select", { id, onchange: () => draw({ [id]: choice.value }) }, el("option", { value: "" }, t("all")),
        ...values.map((value) => el("option", { value, selected: wished[id] === value }, value)));
      return [el("label", { for: id }, name), choice];
    };
    return el("div", { class: "line tools" }, ...one("state", t("state"), found.states), ...one("tenant", t("tenant"), found.tenants.map((each) => each.name)));
  }

  show(place, finder(), standing);
  draw();
  return () => {
    left = true;
    clearTimeout(timer);
  };
}

// As `sterna ingest status` counts them; what somebody has to answer is red.
function states(counts) {
  const told = ["buffered", "ready", "delayed", "claimed", "abandoned", "rejected", "dead_rows"];
  const alarms = ["abandoned", "rejected", "dead_rows"];
  return facts(told.map((name) => [t(`count_${name}`), alarms.includes(name) && counts[name] ? badge("red", count(counts[name])) : count(counts[name])]));
}

function workers(found) {
  const none = found.counts.waiting && !found.counts.claimed && !found.workers.some((each) => each.alive);
  const standing = (each) => (each.alive ? badge("green", t("atWork")) : badge("red", t("noSign", { time: seconds(each.silent) })));
  const rows = found.workers.map((each) => row(`${each.host} ${each.pid}`, moment(each.begun), moment(each.seen), standing(each), each.batches.join(", ") || "–"));
  const told = rows.length ? [grid([t("worker"), t("begun"), t("lastSign"), t("state"), t("batches")], rows, { label: t("workers") })] : [];
  if (none) return [note("error", t("noWorker")), ...told];
  return told.length ? told : [note("empty", t("noWorkers"))];
}

function unserved(found) {
  if (!found.length) return [];
  return [grid([t("region"), t("notServed"), t("since")], found.map((each) => row(each.region, count(each.batches), moment(each.since))), { label: t("notServed") })];
}

function batches(found) {
  if (!found.length) return note("empty", t("noBatches"));
  return grid([t("closed"), t("table"), t("batch"), t("state"), t("rows"), t("bytes"), t("commit"), t("reason")], found.map((each) =>
    row(moment(each.closed), each.lane.table, String(each.number), badge(COLORS[each.state], each.state), count(each.rows), size(each.bytes), each.commit ? short(each.commit) : "–", each.reason)),
  { label: t("batches") });
}

function finder() {
  const input = el("input", { id: "upload", type: "search", autocomplete: "off", placeholder: t("uploadHint") });
  const button = el("button", { type: "button", onclick: find }, t("find"));
  const result = el("div", { "aria-live": "polite" });
  let asked = 0;
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing) find();
  });

  async function find() {
    const id = input.value.trim();
    if (!id) return;
    const turn = (asked += 1);
    show(result, note("loading", t("loading")));
    try {
      const found = await ask("api/ingest/find", { id });
      if (turn === asked) show(result, where(found));
    } catch (error) {
      if (turn === asked) show(result, note("error", error.message));
    }
  }

  return el("section", { class: "card" }, el("label", { for: "upload" }, el("h3", {}, t("whereIs"))), el("div", { class: "line" }, input, button), result);
}

function where(found) {
  if (found.configured === false) return note("empty", t("noIngest"));
  if (!found.found) return note("empty", t("notFound"));
  if (found.found === "channel") {
    return grid([t("table"), t("drops"), t("acceptedTo"), t("settledTo")], found.channels.map((each) => row(each.table, count(each.drops), each.accepted || "–", each.settled || "–")), { label: t("whereIs") });
  }
  const { drop, batch } = found;
  return facts([[t("state"), badge(COLORS[(drop ?? batch).state], (drop ?? batch).state)], [t("table"), (drop ?? batch).lane.table], [t("tenant"), (drop ?? batch).lane.tenant],
    [t("accepted"), drop ? moment(drop.accepted) : ""], [t("rows"), count((drop ?? batch).rows)], [t("bytes"), size((drop ?? batch).bytes)],
    [t("batch"), batch ? String(batch.number) : t("noBatchYet")], [t("commit"), batch?.commit ? short(batch.commit) : ""], [t("snapshot"), batch?.snapshot ? String(batch.snapshot) : ""], [t("reason"), batch?.reason ?? ""]]);
}

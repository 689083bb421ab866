// All tables of a region, a page at a time: the server searches, sorts and counts.
import { badge, el, grid, link, note, show } from "./dom.js";
import { ask, startRun, sternaDags } from "./api.js";
import { confirm, done } from "./confirm.js";
import { count, moment, price, seconds, short, size } from "./format.js";
import { t } from "./text.js";

const SIZE = 50;
const PAUSE_DAG = "sterna_pause";
const COLORS = { held: "orange", transit: "calm", behind: "calm", missing: "calm", gone: "calm", served: "green" };

export function open(place) {
  const state = { region: "", search: "", sort: "state", page: 0 };
  const plan = new Map();
  let asked = 0;
  let timer = 0;
  const result = el("div", { "aria-live": "polite" });
  const planned = el("div", {});
  const answer = el("div", { "aria-live": "polite" });
  const region = el("select", { id: "region", onchange: () => go({ region: region.value, page: 0 }) });
  const search = el("input", { id: "search", type: "search", placeholder: t("searchTables"), autocomplete: "off", oninput: () => {
    clearTimeout(timer);
    timer = setTimeout(() => go({ search: search.value, page: 0 }), 200);
  } });
  const button = el("button", { type: "button", onclick: explain }, t("whatNext"));

  async function begin() {
    try {
      const { own, regions } = await ask("api/regions");
      show(region, regions.map((name) => el("option", { value: name }, name === own ? `${name} (${t("thisRegion")})` : name)));
      state.own = own;
      state.pauses = await sternaDags().then((dags) => dags.find((dag) => dag.dag_id === PAUSE_DAG), () => undefined);
      show(place, el("div", { class: "line tools" }, el("label", { for: "region" }, t("region")), region,
        el("label", { for: "search", class: "hidden" }, t("searchTables")), search, button), planned, answer, result);
      await go({ region: own });
    } catch (error) {
      show(place, note("error", error.message));
    }
  }

  async function go(change) {
    Object.assign(state, change);
    const turn = (asked += 1);
    button.hidden = state.region !== state.own;
    if (!result.childNodes.length) show(result, note("loading", t("loading")));
    try {
      const found = await ask(`api/tables/${encodeURIComponent(state.region)}`, { search: state.search, sort: state.sort, page: state.page, size: SIZE });
      if (turn === asked) show(result, drawn(found));
    } catch (error) {
      if (turn === asked) show(result, note("error", error.message));
    }
  }

  async function explain() {
    button.disabled = true;
    show(planned, note("loading", t("planning")));
    try {
      const found = await ask("api/plan");
      plan.clear();
      for (const each of found.actions) plan.set(each.key, each);
      const bytes = Object.values(found.origins).reduce((sum, each) => sum + each.bytes, 0);
      const files = Object.values(found.origins).reduce((sum, each) => sum + each.files, 0);
      show(planned, note("calm", found.idle ? t("planIdle") : t("planSays", { keys: count(found.actions.length), files: count(files), bytes: size(bytes), held: count(found.held.length) }) + copies(found)));
      await go({});
    } catch (error) {
      show(planned, note("error", error.message));
    } finally {
      button.disabled = false;
    }
  }

  function drawn(found) {
    if (!found.total) return [note("empty", state.search ? t("noneFound") : t("noTables"))];
    const heads = [head("table", "name"), head("state", "state"), el("th", { scope: "col" }, t("snapshot")), head("lag", "lag"),
      el("th", { scope: "col", class: "figure" }, t("files")), el("th", { scope: "col", class: "figure" }, t("bytes")), el("th", { scope: "col" }, t("next")), el("th", { scope: "col" }, t("aboutTable"))];
    const summary = Object.entries(found.counts).filter(([, value]) => value).map(([name, value]) => badge(COLORS[name], `${t(`state_${name}`)} ${count(value)}`));
    return [el("p", { class: "counts" }, ...summary), grid(heads, found.rows.map(line), { label: t("tables") }), pages(found)];
  }

  function line(item) {
    const why = item.held ? el("details", {}, el("summary", {}, t("why")), el("p", {}, `${item.held.kind}: ${item.held.reason}`), item.held.file ? el("p", { class: "name" }, item.held.file) : null,
      item.do ? el("p", {}, `${t("remedy")}: ${item.do}`) : null, item.card ? el("p", {}, `${t("entry")}: `, link(item.card)) : null,
      el("p", { class: "quiet" }, `${t("since")} ${item.held.since ? moment(item.held.since) : t("unknown")}`)) : null;
    return el("tr", {}, el("th", { scope: "row", class: "name" }, item.key), el("td", {}, badge(COLORS[item.state], t(`state_${item.state}`)), why, pause(item), restored(item), rewound(item)),
      el("td", { class: "id" }, item.snapshot || "–"), el("td", {}, seconds(item.lag)), el("td", { class: "figure" }, count(item.files)),
      el("td", { class: "figure", title: item.unread ?? null }, size(item.bytes)), el("td", {}, next(item)), el("td", {}, more(item)));
  }

  // Of this Airflow's own region alone, and where the user may see the DAG: other regions have an Airflow of their own.
  function pause(item) {
    const action = item.paused ? "resume" : "pause";
    const text = item.paused ? el("p", { class: "quiet" }, item.paused) : null;
    if (state.region !== state.own || !state.pauses) return text;
    const reason = el("input", { type: "text", maxlength: "500", "aria-label": t("pauseReason"), placeholder: t("pauseReason") });
    const label = t(action);
    const open = () => confirm(result, { title: `${label}: ${item.key}`, text: t(`${action}TableMeans`), label, inside: item.paused ? [] : [reason] }, async () => {
      try {
        show(answer, done(PAUSE_DAG, action, await startRun(PAUSE_DAG, { tables: [item.key], action, reason: reason.value })));
      } catch (error) {
        show(answer, note("error", `${label}: ${item.key}: ${error.message}`));
      }
    });
    const disabled = state.pauses.is_paused;
    return el("div", {}, text, el("button", { type: "button", disabled, title: disabled ? t("pausedRunsWait") : null, onclick: open }, label));
  }

  function restored(item) {
    if (!item.restored) return null;
    const { at, as_of, as_of_time, commit } = item.restored;
    return el("details", {}, el("summary", {}, t("restoredAt", { at: moment(at) })),
      el("p", {}, t("restoredFrom", { time: as_of_time ? moment(as_of_time) : t("unknown"), commit: short(as_of) })), el("p", { class: "quiet" }, t("restoredBy", { commit: short(commit) })));
  }

  function rewound(item) {
    if (!item.rewound?.length) return null;
    const channels = item.rewound.map((each) => el("li", {}, el("strong", { class: "name" }, each.channel), el("p", {}, `Rewound: ${each.reason}`), el("p", {}, `${t("remedy")}: ${each.remedy}`),
      el("p", {}, `${t("entry")}: `, link(each.card))));
    return el("details", {}, el("summary", {}, badge("red", t("rewound", { count: count(channels.length) }))), el("ul", { class: "held" }, ...channels));
  }

  // What happened to a table, and who holds it, is looked up when somebody asks.
  function more(item) {
    const inside = el("div", {});
    const region = state.region;
    const opened = async () => {
      if (!details.open || inside.childNodes.length) return;
      show(inside, note("loading", t("loading")));
      try {
        show(inside, told(await ask(`api/tables/${encodeURIComponent(region)}/one`, { key: item.key })));
      } catch (error) {
        show(inside, note("error", error.message));
      }
    };
    const details = el("details", { ontoggle: opened }, el("summary", {}, t("show")), inside);
    return details;
  }

  function next(item) {
    const known = state.region === state.own ? plan.get(item.key) : null;
    if (known) return known.change === "drop" ? t("planDrop") : t("planPut", { files: count(known.files ?? 0), bytes: size(known.bytes ?? 0), localize: count(known.localize ?? 0) });
    return { held: t("nextHeld"), transit: t("nextTransit"), behind: t("nextPut"), missing: t("nextPut"), gone: t("planDrop"), served: t("nextNothing") }[item.state];
  }

  function head(label, name) {
    const down = state.sort === `-${name}`;
    const up = state.sort === name;
    const turn = () => go({ sort: up ? `-${name}` : name, page: 0 });
    return el("th", { scope: "col", "aria-sort": up ? "ascending" : down ? "descending" : "none" },
      el("button", { type: "button", class: "sort", onclick: turn }, t(label), up ? " ↑" : down ? " ↓" : ""));
  }

  function told({ events, holds }) {
    return [events.length ? el("ul", { class: "held" }, ...events.map((each) => el("li", {}, moment(each.at), el("br"), each.type.replace("sterna.table.", ""), each.snapshot ? ` ${each.snapshot}` : "")))
      : el("p", { class: "quiet" }, t("noEvents")),
    holds.length ? el("ul", { class: "held" }, ...holds.map((each) => el("li", {}, t("heldUntil", { snapshot: each.snapshot || "–", until: moment(each.until) }))))
      : el("p", { class: "quiet" }, t("noHolds"))];
  }

  function pages(found) {
    const last = Math.max(0, Math.ceil(found.total / found.size) - 1);
    return el("div", { class: "line pages" },
      el("button", { type: "button", disabled: found.page === 0, onclick: () => go({ page: found.page - 1 }) }, t("before")),
      el("span", {}, t("pageOf", { page: count(found.page + 1), pages: count(last + 1), total: count(found.total) })),
      el("button", { type: "button", disabled: found.page >= last, onclick: () => go({ page: found.page + 1 }) }, t("after")));
  }

  show(place, note("loading", t("loading")));
  begin();
  return () => {
    asked += 1;
    clearTimeout(timer);
  };
}

// What a plan copies from other regions' copies instead of origins, and what that saves; "" where it is nothing.
export function copies(plan) {
  const said = Object.entries(plan.copies ?? {}).map(([region, { bytes }]) => t("planCopies", { bytes: size(bytes), region }));
  if (said.length && plan.egress_saved) said.push(t("planSaves", { saved: price(plan.egress_saved), cost: price(plan.egress_cost + plan.egress_saved) }));
  return said.map((sentence) => ` ${sentence}`).join("");
}

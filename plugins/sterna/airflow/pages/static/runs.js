// What syncs are doing now, by Airflow's own runs and tasks: a person sees those that he may see there.
import { badge, el, facts, grid, linked, note, row, show } from "./dom.js";
import { actions } from "./actions.js";
import { airflow, airflowLink, ask, sternaDags } from "./api.js";
import { count, moment, seconds, size } from "./format.js";
import { t } from "./text.js";

const EVERY = 5_000;
const RUNS = 10;
const MOST_CARDS = 4;
const MOST_COPIES = 16;
const LOG_DELAY = 60_000;
const reasonsByLog = new Map();
const STAGES = ["plan", "copy", "localize", "publish", "announce", "linger", "arrive"];
const COLORS = { success: "green", failed: "red", running: "orange", queued: "calm", up_for_retry: "orange" };

export function open(place) {
  let timer = 0;
  let left = false;
  let asked = 0;
  const result = el("div", { class: "view" });

  async function draw() {
    const turn = (asked += 1);
    const isOld = () => left || turn !== asked;
    try {
      const dags = await sternaDags();
      const found = await Promise.all(dags.map((dag) => airflow(`dags/${encodeURIComponent(dag.dag_id)}/dagRuns`, { limit: RUNS, order_by: "-run_after" })));
      const runs = found.flatMap((each) => each.dag_runs).sort((a, b) => (a.run_after < b.run_after ? 1 : -1));
      const syncs = await Promise.all(runs.filter((run) => run.state === "running").slice(0, MOST_CARDS).map(sync));
      // A failure stands on top as long as its DAG has no newer run.
      const newest = new Set(found.map((each) => each.dag_runs[0]));
      const failures = await Promise.all(runs.filter((run) => run.state === "failed" && newest.has(run)).slice(0, MOST_CARDS).map(sync));
      const moving = await transit();
      if (isOld()) return;
      show(result, failures, syncs.length ? syncs : note("empty", t("nothingRuns")), moving, runs.length ? listed(runs.slice(0, 20)) : note("empty", t("noRuns")));
    } catch (error) {
      if (!isOld()) show(result, note("error", error.message));
    }
    if (!isOld()) timer = setTimeout(draw, EVERY);
  }

  const again = () => {
    clearTimeout(timer);
    draw();
  };
  show(result, note("loading", t("loading")));
  show(place, result, ...actions(again));
  draw();
  return () => {
    left = true;
    clearTimeout(timer);
  };
}

// How many bytes of a run's copies are done, by its copy tasks, the batches that its plan returned, and how much of its
// own each task has copied so far.
export function progress(tasks, batches, sent, now = Date.now()) {
  const copies = tasks.filter((task) => task.task_id === "copy" && task.map_index >= 0);
  const whole = batches.reduce((sum, batch) => sum + batch.bytes, 0);
  const bytes = ({ state, map_index: at }) => Math.min(batches[at]?.bytes ?? 0, state === "success" ? Infinity : sent.get(at) ?? 0);
  const done = copies.reduce((sum, task) => sum + bytes(task), 0);
  const begun = copies.map((task) => task.start_date).filter(Boolean).sort()[0];
  const elapsed = begun ? (now - new Date(begun).getTime()) / 1000 : 0;
  const rate = elapsed > 0 && done > 0 && done < whole ? done / elapsed : null;
  return { whole, done, rate, left: rate && (whole - done) / rate };
}

async function sentBytes(path, tasks) {
  const running = tasks.filter((task) => task.task_id === "copy" && task.map_index >= 0 && task.state === "running").slice(0, MOST_COPIES);
  const sent = await Promise.all(running.map(async ({ map_index }) => {
    try {
      const { value } = await airflow(`${path}/taskInstances/copy/xcomEntries/sent_bytes`, { map_index });
      return [map_index, Number(value) || 0];
    } catch {
      return [map_index, 0]; // it hasn't said so yet
    }
  }));
  return new Map(sent);
}

// Why a task failed, by its log: the line with an entry of the run book, else the error. A log is read once.
async function reason(path, task) {
  const log = `${path}/taskInstances/${encodeURIComponent(task.task_id)}/logs/${task.try_number}`;
  const key = `${log} ${task.map_index}`;
  if (!reasonsByLog.has(key)) {
    const found = await readReason(log, task);
    if (!found && Date.now() - new Date(task.end_date).getTime() < LOG_DELAY) return ""; // it may be on its way
    reasonsByLog.set(key, found);
  }
  return reasonsByLog.get(key);
}

async function readReason(log, task) {
  try {
    const { content } = await airflow(log, task.map_index < 0 ? {} : { map_index: task.map_index });
    const said = content.flatMap((each) => [each.event, each.reason, each.error_detail?.[0]?.exc_value]).filter((each) => typeof each === "string");
    const errors = content.map((each) => each.error_detail?.[0]?.exc_value).filter(Boolean);
    return said.findLast((each) => linked(each).length > 1) ?? errors.at(-1) ?? "";
  } catch {
    return ""; // its log is gone, or isn't for this user
  }
}

async function sync(run) {
  const path = `dags/${encodeURIComponent(run.dag_id)}/dagRuns/${encodeURIComponent(run.dag_run_id)}`;
  const { task_instances: tasks } = await airflow(`${path}/taskInstances`, { limit: 200 });
  let batches = [];
  try {
    const found = await airflow(`${path}/taskInstances/plan/xcomEntries/return_value`);
    batches = typeof found.value === "string" ? JSON.parse(found.value) : found.value;
  } catch {
    batches = []; // no plan yet, or a DAG without one
  }
  const known = progress(tasks, Array.isArray(batches) ? batches : [], await sentBytes(path, tasks));
  const failed = run.state === "failed" ? tasks.filter((task) => task.state === "failed").slice(0, MOST_CARDS) : [];
  const reasons = await Promise.all(failed.map((task) => reason(path, task)));
  return el("section", { class: "card", "data-run": run.dag_run_id },
    el("div", { class: "title" }, el("h3", {}, run.dag_id), badge(COLORS[run.state] ?? "calm", run.state), runLink(run)),
    ...reasons.filter(Boolean).map((each) => el("p", { class: "note error lines" }, ...linked(each))),
    facts([[t("begun"), moment(run.start_date)], [t("copied"), known.whole ? `${size(known.done)} / ${size(known.whole)}` : ""],
      ...(run.state === "running" && known.rate ? [[t("throughput"), `${size(known.rate)}/s`], [t("timeLeft"), seconds(known.left)]] : [])]),
    known.whole ? el("progress", { max: known.whole, value: known.done, "aria-label": t("copied") }) : null,
    el("ol", { class: "stages" }, ...stages(run, tasks)));
}

function stages(run, tasks) {
  const names = [...new Set(tasks.map((task) => task.task_id))];
  names.sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
  return names.map((name) => {
    const mine = tasks.filter((task) => task.task_id === name);
    const over = mine.filter((task) => task.state === "success").length;
    const state = ["failed", "up_for_retry", "running", "queued"].find((each) => mine.some((task) => task.state === each)) ?? mine[0].state ?? "none";
    const number = mine.length > 1 ? ` ${count(over)} / ${count(mine.length)}` : "";
    const labels = mine.filter((task) => task.state === "running" && task.rendered_map_index).map((task) => task.rendered_map_index);
    const target = airflowLink(`dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.dag_run_id)}/tasks/${encodeURIComponent(name)}`);
    return el("li", {}, el("a", { class: "airflow", href: target }, name), " ", badge(COLORS[state] ?? "calm", `${state}${number}`),
      labels.length ? el("small", { class: "quiet" }, ` ${labels.slice(0, 4).join(" · ")}`) : null);
  });
}

function place(name) {
  const at = STAGES.indexOf(name);
  return at < 0 ? STAGES.length : at;
}

async function transit() {
  try {
    const { own } = await ask("api/regions");
    const card = await ask(`api/regions/${encodeURIComponent(own)}`);
    if (!card.transit?.length) return null;
    return el("section", { class: "card" }, el("h3", {}, t("transit")), grid([t("table"), t("lag"), t("bytesLeft"), t("state")],
      card.transit.slice(0, 50).map((item) => row(item.held.key, seconds(item.lag_seconds), size(item.bytes_left), item.under_way ? t("beingCopied") : t("noLane"))), { label: t("transit") }));
  } catch {
    return null; // the view Regions says why
  }
}

function listed(runs) {
  return el("section", {}, el("h3", {}, t("lastRuns")), grid([t("dag"), t("run"), t("state"), t("begun"), t("took")], runs.map((run) =>
    row(run.dag_id, runLink(run), badge(COLORS[run.state] ?? "calm", run.state), run.start_date ? moment(run.start_date) : "–",
      run.start_date && run.end_date ? seconds((new Date(run.end_date) - new Date(run.start_date)) / 1000) : "–")), { label: t("lastRuns") }));
}

function runLink(run) {
  const target = airflowLink(`dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.dag_run_id)}`);
  return el("a", { class: "airflow name", href: target }, run.dag_run_id);
}

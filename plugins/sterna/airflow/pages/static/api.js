// Requests to the plugin's own routes and to Airflow's API, with the session that the browser has.
const BASE = new URL("../", import.meta.url);
const AIRFLOW = new URL("../api/v2/", BASE);

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function address(path, query = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    for (const each of [value].flat()) if (each !== "") url.searchParams.append(name, each);
  }
  return url;
}

export async function ask(path, query = {}) {
  return answered(await fetch(address(path, query), { headers: { Accept: "application/json" } }));
}

export async function send(path, body) {
  const headers = { "Content-Type": "application/json", Accept: "application/json" };
  return answered(await fetch(address(path), { method: "POST", headers, body: JSON.stringify(body) }));
}

export async function airflow(path, query = {}) {
  const url = new URL(path, AIRFLOW);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return answered(await fetch(url, { headers: { Accept: "application/json" } }));
}

export async function sternaDags() {
  const { dags } = await airflow("dags", { tags: "sterna", limit: 50, order_by: "dag_id" });
  return dags;
}

// Which views and DAGs have something behind them here; all of them, where that can't be said.
export async function configured() {
  try {
    return await ask("api/configured");
  } catch {
    return { ingest: true, inspector: true, figure: true, idle: [] };
  }
}

export async function change(method, path, body) {
  const headers = { "Content-Type": "application/json", Accept: "application/json" };
  return answered(await fetch(new URL(path, AIRFLOW), { method, headers, body: JSON.stringify(body) }));
}

export function startRun(dag, conf) {
  return change("POST", `dags/${encodeURIComponent(dag)}/dagRuns`, { logical_date: null, conf });
}

// Airflow's pages stand around this one, in a frame that may not navigate them: they are asked to.
export function airflowLink(path) {
  return new URL(`../${path}`, BASE).href;
}

export function follow(event) {
  try {
    if (window.parent === window) return;
    const target = new URL(event.currentTarget.href).pathname;
    window.parent.history.pushState({}, "", target);
    window.parent.dispatchEvent(new PopStateEvent("popstate"));
    event.preventDefault();
  } catch {
    // the link is followed here
  }
}

async function answered(response) {
  let body = null;
  try {
    body = await response.json();
  } catch {
    body = null;
  }
  if (!response.ok) {
    const detail = typeof body?.detail === "string" ? body.detail : "";
    throw new Refused(response.status, body?.statusMessage || body?.error || detail || `HTTP ${response.status}`);
  }
  return body;
}

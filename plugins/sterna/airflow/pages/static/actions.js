// What a person can have Airflow do with sterna's DAGs: by Airflow's own API, and so with that person's permissions.
import { badge, el, grid, note, row, show } from "./dom.js";
import { airflow, airflowLink, change, sternaDags } from "./api.js";
import { t } from "./text.js";

// Returns what is shown: the last answer, and the actions. `changed` is called once Airflow has done something.
export function actions(changed) {
  const answer = el("div", { "aria-live": "polite" });
  const list = el("section", {});

  async function draw() {
    try {
      const dags = await sternaDags();
      const details = await Promise.all(dags.map((dag) => airflow(`dags/${encodeURIComponent(dag.dag_id)}/details`)));
      if (dags.length) show(list, el("h3", {}, t("actions")), grid([t("dag"), t("state"), t("actions")], details.map(line), { label: t("actions") }));
    } catch {
      show(list); // the list of runs says why
    }
  }

  function line(dag) {
    const path = `dags/${encodeURIComponent(dag.dag_id)}`;
    const paused = dag.is_paused;
    const start = (label, conf) => button(dag, label, () => change("POST", `${path}/dagRuns`, { logical_date: null, conf }), paused);
    return row(el("span", { class: "name" }, dag.dag_id), badge(paused ? "orange" : "green", t(paused ? "paused" : "scheduled")),
      el("div", { class: "line" }, start("runNow", {}), "dry_run" in (dag.params ?? {}) ? start("dryRun", { dry_run: true }) : null,
        button(dag, paused ? "resume" : "pause", () => change("PATCH", `${path}?update_mask=is_paused`, { is_paused: !paused }))));
  }

  // A paused DAG's run would wait without a word.
  function button(dag, label, act, disabled = false) {
    return el("button", { type: "button", disabled, title: disabled ? t("pausedRunsWait") : null, onclick: () => confirmed(dag, label, act) }, t(label));
  }

  function confirmed(dag, label, act) {
    const close = el("button", { type: "button", onclick: () => dialog.close() }, t("cancel"));
    const go = el("button", { type: "button", class: "act" }, t(label));
    const dialog = el("dialog", { "aria-label": `${t(label)}: ${dag.dag_id}` }, el("h3", {}, `${t(label)}: ${dag.dag_id}`), el("p", {}, t(`${label}Means`)), el("div", { class: "line" }, close, go));
    dialog.addEventListener("close", () => dialog.remove());
    go.addEventListener("click", async () => {
      go.disabled = true;
      try {
        show(answer, done(dag, label, await act()));
        await draw();
        changed();
      } catch (error) {
        show(answer, note("error", `${t(label)}: ${dag.dag_id}: ${error.message}`));
      }
      dialog.close();
    });
    list.after(dialog);
    dialog.showModal();
  }

  function done(dag, label, result) {
    const run = result.dag_run_id;
    const text = el("p", { class: "note calm", role: "status" }, `${t(label)}: ${dag.dag_id} `);
    if (run) text.append(el("a", { class: "airflow name", href: airflowLink(`dags/${encodeURIComponent(dag.dag_id)}/runs/${encodeURIComponent(run)}`) }, run));
    return text;
  }

  draw();
  return [answer, list];
}

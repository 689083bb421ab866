// What a person can have Airflow do with sterna's DAGs: by Airflow's own API, and so with that person's permissions.
import { badge, el, grid, note, row, show } from "./dom.js";
import { airflow, change, configured, startRun, sternaDags } from "./api.js";
import { confirm, done } from "./confirm.js";
import { t } from "./text.js";

// Returns what is shown: the last answer, and the actions. `changed` is called once Airflow has done something.
export function actions(changed) {
  const answer = el("div", { "aria-live": "polite" });
  const list = el("section", {});

  async function draw() {
    try {
      const [all, { idle }] = await Promise.all([sternaDags(), configured()]);
      const dags = all.filter((dag) => !(dag.is_paused && idle.includes(dag.dag_id)));
      const details = await Promise.all(dags.map((dag) => airflow(`dags/${encodeURIComponent(dag.dag_id)}/details`)));
      if (dags.length) show(list, el("h3", {}, t("actions")), grid([t("dag"), t("state"), t("actions")], details.map(line), { label: t("actions") }));
    } catch {
      show(list); // the list of runs says why
    }
  }

  function line(dag) {
    const path = `dags/${encodeURIComponent(dag.dag_id)}`;
    const paused = dag.is_paused;
    const start = (label, conf) => button(dag, label, () => startRun(dag.dag_id, conf), paused);
    const needsNothing = Object.values(dag.params ?? {}).every((param) => !param.schema?.minItems);
    return row(el("span", { class: "name" }, dag.dag_id), badge(paused ? "orange" : "green", t(paused ? "paused" : "scheduled")),
      el("div", { class: "line" }, needsNothing ? start("runNow", {}) : null, "dry_run" in (dag.params ?? {}) ? start("dryRun", { dry_run: true }) : null,
        button(dag, paused ? "resume" : "pause", () => change("PATCH", `${path}?update_mask=is_paused`, { is_paused: !paused }))));
  }

  // A paused DAG's run would wait without a word.
  function button(dag, label, act, disabled = false) {
    return el("button", { type: "button", disabled, title: disabled ? t("pausedRunsWait") : null, onclick: () => confirmed(dag, label, act) }, t(label));
  }

  function confirmed(dag, label, act) {
    confirm(list, { title: `${t(label)}: ${dag.dag_id}`, text: t(`${label}Means`), label: t(label) }, async () => {
      try {
        show(answer, done(dag.dag_id, label, await act()));
        await draw();
        changed();
      } catch (error) {
        show(answer, note("error", `${t(label)}: ${dag.dag_id}: ${error.message}`));
      }
    });
  }

  draw();
  return [answer, list];
}

// A question before something is changed, and what Airflow answered.
import { el } from "./dom.js";
import { airflowLink } from "./api.js";
import { t } from "./text.js";

// Asks below a place of the page; `act` is called once, and the dialog is closed when it ends.
export function confirm(place, { title, text, label, inside = [] }, act) {
  const close = el("button", { type: "button", onclick: () => dialog.close() }, t("cancel"));
  const go = el("button", { type: "button", class: "act" }, label);
  const dialog = el("dialog", { "aria-label": title }, el("h3", {}, title), el("p", {}, text), ...inside, el("div", { class: "line" }, close, go));
  dialog.addEventListener("close", () => dialog.remove());
  go.addEventListener("click", async () => {
    go.disabled = true;
    await act();
    dialog.close();
  });
  place.after(dialog);
  dialog.showModal();
}

// What was done to a DAG, with a link to its run where one has begun.
export function done(dag, label, result) {
  const run = result.dag_run_id;
  const text = el("p", { class: "note calm", role: "status" }, `${t(label)}: ${dag} `);
  if (run) text.append(el("a", { class: "airflow name", href: airflowLink(`dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run)}`) }, run));
  return text;
}

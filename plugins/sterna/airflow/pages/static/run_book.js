// The run book that comes with sterna, an entry at a time: #/runBook/<anchor>. Its Markdown becomes elements here.
import { el, grid, link, note, row, show } from "./dom.js";
import { address } from "./api.js";
import { t } from "./text.js";

const HEADING = /^(#{1,6}) (.*)/;
const INLINE = /(`[^`]+`|\*\*[^*]+\*\*|\[(?:[^\]`]|`[^`]*`)+\]\([^)]+\))/;

export function open(place) {
  let left = false;
  const wanted = decodeURIComponent(location.hash.split("/")[2] ?? "");

  async function draw() {
    try {
      const answer = await fetch(address("static/operations.md"));
      if (!answer.ok) throw new Error(t("noRunBook", { entry: wanted }));
      const found = section((await answer.text()).split("\n"), wanted);
      if (!left) show(place, found.length ? el("section", { class: "card" }, ...blocks(found)) : note("empty", t("noRunBook", { entry: wanted })));
    } catch (error) {
      if (!left) show(place, note("error", error.message));
    }
  }

  show(place, note("loading", t("loading")));
  draw();
  return () => {
    left = true;
  };
}

// As the anchors of the page on a server for repositories.
export function anchor(heading) {
  return heading.toLowerCase().replace(/[^\p{L}\p{N}_\- ]/gu, "").replaceAll(" ", "-");
}

// The lines of a heading, and of what stands below it.
function section(lines, wanted) {
  const from = lines.findIndex((line) => HEADING.test(line) && (!wanted || anchor(HEADING.exec(line)[2]) === wanted));
  if (from < 0) return [];
  const depth = HEADING.exec(lines[from])[1].length;
  const to = lines.findIndex((line, at) => at > from && HEADING.test(line) && HEADING.exec(line)[1].length <= depth);
  return lines.slice(from, to < 0 ? lines.length : to);
}

function blocks(lines) {
  const made = [];
  let at = 0;
  const taken = (matches) => {
    const begun = at;
    while (at < lines.length && matches(lines[at])) at += 1;
    return lines.slice(begun, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    if (!line.trim()) at += 1;
    else if (HEADING.test(line)) made.push(el(HEADING.exec(lines[at++])[1].length < 3 ? "h3" : "h4", {}, ...inline(HEADING.exec(line)[2])));
    else if (line.trimStart().startsWith("```")) made.push(code(taken));
    else if (line.startsWith("|")) made.push(table(taken((each) => each.startsWith("|"))));
    else if (line.startsWith("* ")) made.push(list(taken((each) => each.startsWith("* ") || each.startsWith("  ") || !each.trim())));
    else made.push(el("p", {}, ...inline(taken((each) => each.trim() && !/^([|#]|\* |```)/.test(each)).join(" "))));
  }
  return made;

  function code(take) {
    at += 1;
    const inside = take((each) => !each.trimStart().startsWith("```"));
    at += 1;
    return el("pre", { tabindex: "0" }, inside.join("\n"));
  }
}

function list(lines) {
  const items = lines.join("\n").split(/^\* /m).slice(1).map((item) => item.split("\n").map((line) => line.replace(/^ {2}/, "")));
  return el("ul", {}, ...items.map(([first, ...others]) => el("li", {}, ...blocks([first, ...others]))));
}

function table([heads, , ...rows]) {
  const cells = (line) => line.split("|").slice(1, -1).map((cell) => el("span", {}, ...inline(cell.trim())));
  return grid(cells(heads).map((cell) => el("th", { scope: "col" }, cell)), rows.map((line) => row(...cells(line))), { label: t("runBook") });
}

function inline(text) {
  return text.split(INLINE).map((part, at) => {
    if (at % 2 === 0) return part;
    if (part.startsWith("`")) return el("code", {}, part.slice(1, -1));
    if (part.startsWith("**")) return el("strong", {}, ...inline(part.slice(2, -2)));
    const [, said, target] = /^\[(.+)\]\(([^)]+)\)$/.exec(part);
    return elsewhere(inline(said), target);
  });
}

// Other pages of the documentation don't come with sterna's package: they are named.
function elsewhere(said, target) {
  if (/^(operations\.md)?#/.test(target)) return el("a", { href: `#/runBook/${target.split("#")[1]}` }, ...said);
  if (/^https?:/.test(target)) return link(target);
  return el("span", { title: `docs/${target}` }, ...said, el("small", { class: "quiet" }, ` (docs/${target})`));
}

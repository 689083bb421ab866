// Elements and their text. Values only ever become text nodes: nothing here reads HTML.
const SVG = "http://www.w3.org/2000/svg";

export function el(name, given = {}, ...inside) {
  return fill(document.createElement(name), given, inside);
}

export function svg(name, given = {}, ...inside) {
  return fill(document.createElementNS(SVG, name), given, inside);
}

export function show(place, ...inside) {
  place.replaceChildren(...inside.flat().filter((each) => each !== null && each !== undefined && each !== ""));
}

export function note(kind, text) {
  return el("p", { class: `note ${kind}`, role: kind === "error" ? "alert" : "status" }, text);
}

export function badge(kind, text) {
  return el("span", { class: `badge ${kind}` }, text);
}

// An entry of the run book: of the one that comes with sterna, or at an operator's own address.
const ENTRY = /(https?:\/\/[^\s;,()]+#[\w-]+|docs\/operations\.md#[\w-]+)/;

export function link(place) {
  if (/^https?:\/\//.test(place ?? "")) return el("a", { href: place, rel: "noreferrer", target: "_blank" }, place);
  return ENTRY.test(place ?? "") ? el("a", { href: `#/runBook/${place.split("#")[1]}` }, place) : place;
}

// A message, in which entries of the run book are links.
export function linked(text) {
  return text.split(ENTRY).map((each, at) => (at % 2 ? link(each) : each));
}

export function facts(pairs) {
  return el("dl", { class: "facts" }, ...pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined)
    .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

export function grid(heads, rows, given = {}) {
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": given.label ?? "" },
    el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head) => (head instanceof Node ? head : el("th", { scope: "col" }, head))))),
      el("tbody", {}, ...rows)));
}

export function row(...cells) {
  return el("tr", {}, ...cells.map((cell) => el("td", {}, cell)));
}

function fill(element, given, inside) {
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...inside.flat().filter((each) => each !== null && each !== undefined && each !== "")
    .map((each) => (each instanceof Node ? each : String(each))));
  return element;
}

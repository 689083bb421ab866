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

// A place in the run book: a link where it is an address, else its name.
export function link(place) {
  return /^https?:\/\//.test(place ?? "") ? el("a", { href: place, rel: "noreferrer", target: "_blank" }, place) : place;
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

// The delays of a region's last day as SVG: the longest of each five minutes above their median, over two axes.
import { svg } from "./dom.js";
import { clock, seconds } from "./format.js";
import { t } from "./text.js";

const LEFT = 48;
const RIGHT = 304;
const TOP = 8;
const FLOOR = 78;
const DAY = 86400;
const STEPS = [1, 2, 4, 10, 20, 30, 60, 120, 240, 600, 1200, 1800, 3600, 7200, 14400, 28800, 57600, 86400, 172800, 604800];

export function sparkline(points, day, isLate) {
  const now = Date.now() / 1000;
  const most = Math.max(1, ...points.map((each) => each.most));
  const top = STEPS.find((step) => step >= most) ?? most;
  const x = (at) => (LEFT + Math.max(0, Math.min(1, (at - now + DAY) / DAY)) * (RIGHT - LEFT)).toFixed(1);
  const y = (delay) => (FLOOR - ((FLOOR - TOP) * delay) / top).toFixed(1);
  const label = points.length ? [t("lagDay", { most: seconds(most) }), ...percentiles(day)].join("; ") : t("lagDayNone");
  const picture = svg("svg", { viewBox: "0 0 320 94", class: "spark", role: "img", "aria-label": label }, svg("title", {}, label));
  if (points.length) {
    const line = (name) => points.map((each) => `${x(each.at)},${y(each[name])}`).join(" ");
    picture.append(svg("polygon", { points: `${x(points[0].at)},${FLOOR} ${line("most")} ${x(points.at(-1).at)},${FLOOR}`, class: "under" }),
      svg("polyline", { points: line("p50"), class: "median" }), svg("polyline", { points: line("most"), class: isLate ? "lag over" : "lag" }));
  }
  for (const delay of points.length ? [0, top / 2, top] : [0]) {
    picture.append(svg("line", { x1: LEFT, x2: RIGHT, y1: y(delay), y2: y(delay), class: "ground" }),
      svg("text", { x: LEFT - 4, y: Number(y(delay)) + 3, "text-anchor": "end" }, delay ? seconds(delay) : "0"));
  }
  for (const hours of [24, 18, 12, 6, 0]) {
    const at = now - hours * 3600;
    picture.append(svg("text", { x: x(at), y: FLOOR + 13, "text-anchor": "middle" }, clock(at * 1000)));
  }
  return picture;
}

// What stands below the picture: the percentiles of its day.
export function percentiles(day) {
  return day?.count ? [["p50", day.p50], ["p95", day.p95], ["p99", day.p99], [t("most"), day.most]].map(([name, delay]) => `${name} ${seconds(delay)}`) : [];
}

// A line of a region's lag over a day, as SVG.
import { svg } from "./dom.js";
import { seconds } from "./format.js";
import { t } from "./text.js";

const WIDTH = 260;
const HEIGHT = 44;
const DAY = 86400;

export function sparkline(points, limit) {
  const now = Date.now() / 1000;
  const most = Math.max(1, ...points.map(([, lag]) => lag));
  const x = (at) => Math.max(0, Math.min(WIDTH, (WIDTH * (at - now + DAY)) / DAY));
  const y = (lag) => HEIGHT - 2 - ((HEIGHT - 6) * lag) / most;
  const line = points.map(([at, lag]) => `${x(at).toFixed(1)},${y(lag).toFixed(1)}`);
  const label = points.length ? t("lagDay", { most: seconds(most) }) : t("lagDayNone");
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", role: "img", "aria-label": label, preserveAspectRatio: "none" },
    svg("title", {}, label), svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 2, y2: HEIGHT - 2, class: "ground" }));
  if (line.length) {
    const first = x(points[0][0]).toFixed(1);
    const last = x(points.at(-1)[0]).toFixed(1);
    picture.append(svg("polygon", { points: `${first},${HEIGHT - 2} ${line.join(" ")} ${last},${HEIGHT - 2}`, class: "under" }),
      svg("polyline", { points: line.join(" "), class: limit ? "lag over" : "lag" }));
  }
  return picture;
}

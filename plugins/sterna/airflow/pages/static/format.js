// Figures and moments, for people.
import { locale, t } from "./text.js";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const FIELDS = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" };

export function seconds(value) {
  if (value === null || value === undefined) return t("unknown");
  if (value < 1) return value === 0 ? "0 s" : "< 1 s";
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${(value / 3600).toFixed(1)} h`;
  return `${(value / 86400).toFixed(1)} d`;
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export function count(value) {
  return value === null || value === undefined ? "–" : Number(value).toLocaleString(locale());
}

export function price(value) {
  return value.toLocaleString(locale(), { maximumFractionDigits: 6 });
}

export function moment(text) {
  if (!text) return t("never");
  const found = new Date(text);
  return Number.isNaN(found.getTime()) ? String(text) : found.toLocaleString(locale(), { ...FIELDS, timeZone: zone() });
}

export function clock(time) {
  return new Date(time).toLocaleTimeString(locale(), { timeZone: zone(), hour: "2-digit", minute: "2-digit" });
}

// The time zone that was chosen in Airflow's pages; else the browser's, as there.
function zone() {
  try {
    const kept = JSON.parse(localStorage.getItem("timezone"));
    return new Intl.DateTimeFormat("en", { timeZone: kept ?? undefined }).resolvedOptions().timeZone;
  } catch {
    return undefined;
  }
}

export function short(hash) {
  return hash ? hash.slice(0, 12) : t("none");
}

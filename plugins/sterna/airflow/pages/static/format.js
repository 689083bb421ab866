// Figures and moments, for people.
import { locale, t } from "./text.js";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

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
  return Number.isNaN(found.getTime()) ? String(text) : found.toLocaleString(locale());
}

export function short(hash) {
  return hash ? hash.slice(0, 12) : t("none");
}

// Colours of points and their legend. Levels are told apart by hue and by their names; numbers by a scale.

import { button, el, fill, number } from "./dom.js";

const LEVELS = [[0, 114, 178], [230, 131, 0], [0, 158, 115], [204, 102, 160], [120, 94, 240], [170, 140, 20], [86, 180, 233], [213, 70, 30], [110, 110, 60], [0, 70, 120], [170, 70, 100], [60, 190, 180]];
const OTHERS = [140, 144, 150];
const SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 216, 53]];
const REPELS = [200, 60, 45];
const ATTRACTS = [20, 125, 90];
const MIDDLE = { light: [215, 218, 222], dark: [70, 76, 84] };

export const isDark = () => {
  const asked = document.documentElement.dataset.theme;
  return asked ? asked === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

const mix = (a, b, t) => a.map((x, i) => Math.round(x + (b[i] - x) * t));

function onScale(value, about) {
  if (!Number.isFinite(value)) return null;
  const t = Math.min(1, Math.max(0, (value - about.low) / (about.high - about.low || 1)));
  if (about.signed) {
    const middle = MIDDLE[isDark() ? "dark" : "light"];
    return t < 0.5 ? mix(REPELS, middle, 2 * t) : mix(middle, ATTRACTS, 2 * t - 1);
  }
  const at = t * (SCALE.length - 1);
  const low = Math.min(Math.floor(at), SCALE.length - 2);
  return mix(SCALE[low], SCALE[low + 1], at - low);
}

/** Return colours of the drawn rows, four bytes each; a selection dims all other points. */
export function paint(rows, about, chosen) {
  const out = new Uint8Array(4 * rows.length);
  const fading = isDark() ? [92, 98, 106, 60] : [150, 156, 164, 60];
  rows.forEach((row, i) => {
    let colour = null;
    if (!about) colour = LEVELS[0];
    else if (about.kind === "levels") colour = LEVELS[about.codes[row]] ?? OTHERS;
    else colour = onScale(about.values[row], about);
    const inside = !chosen || chosen.has(row);
    out.set(colour && inside ? [...colour, 225] : fading, 4 * i);
  });
  return out;
}

const css = (colour) => `rgb(${colour.join(" ")})`;

/** Write the legend; a level can be pressed to select its samples. */
export function legend(element, about, onlevel) {
  if (!about) return fill(element);
  const title = el("strong", {}, about.title);
  if (about.kind === "levels") {
    const items = about.levels.map((level, i) => {
      const mark = el("i", { class: "dot", "aria-hidden": "true" });
      mark.style.background = css(LEVELS[i] ?? OTHERS);
      const pressed = onlevel && level !== "(others)";
      return pressed ? button([mark, level], () => onlevel(level), { class: "level", title: "Select these samples" }) : el("span", { class: "level" }, mark, level);
    });
    return fill(element, title, ...items);
  }
  const ramp = el("i", { class: "ramp", "aria-hidden": "true" });
  const stops = [0, 0.25, 0.5, 0.75, 1].map((t) => css(onScale(about.low + t * (about.high - about.low), about)));
  ramp.style.background = `linear-gradient(90deg, ${stops.join(", ")})`;
  return fill(element, title, el("span", {}, number(about.low)), ramp, el("span", {}, number(about.high)), about.signed ? el("span", { class: "dim" }, "red lowers or away, green raises or towards") : null);
}

/** Colours of edges, bright enough for the paper they are drawn on. */
export const edge = (strength) => (strength > 0 ? (isDark() ? [72, 199, 142] : ATTRACTS) : isDark() ? [240, 110, 95] : REPELS);

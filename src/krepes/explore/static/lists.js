// Lists of samples: each can be opened, and ticked into the selection.

import { getBlob } from "./api.js";
import { el, number } from "./dom.js";
import { go, state } from "./state.js";

export const shared = { about: null };
export const run = () => shared.about.runs[state.run] ?? shared.about.runs.a;

const pictures = new Map();

/** A sample's picture, fetched once. */
export function picture(name, row, size = "small") {
  const image = el("img", { class: `picture ${size}`, alt: "", loading: "lazy" });
  const key = `${name}/${row}`;
  if (!pictures.has(key)) pictures.set(key, getBlob(`/api/${name}/samples/${row}/picture`).then((blob) => URL.createObjectURL(blob)));
  pictures.get(key).then((address) => (image.src = address), () => image.remove());
  return image;
}

export const ticked = () => state.sel?.ids ?? [];

/** Tick a sample into a list of ids, which becomes the selection; or take it out. */
export function tick(id) {
  const ids = ticked().includes(id) ? ticked().filter((other) => other !== id) : [...ticked(), id];
  go({ sel: ids.length ? { ids } : null });
}

function tickBox(sample) {
  const box = el("input", { type: "checkbox", class: "tick", "aria-label": `Tick ${sample.id}`, onchange: () => tick(sample.id) });
  box.checked = ticked().includes(sample.id);
  box.dataset.id = sample.id;
  return box;
}

/** What a sample says of itself in one line: its first values that are neither id nor class. */
function hint(sample) {
  const known = run().columns.map(({ name }) => name);
  const values = sample.values.filter((value, i) => known[i] !== run().label && value !== sample.id);
  return values.slice(0, 6).join(" · ");
}

/** One sample as a row of a list; `figure` is a number with its tone, `{ text, tone }`. */
export function card(sample, figure, name = state.run) {
  const open = el("button", { type: "button", class: "open", onclick: () => go({ sample: sample.id, tab: "sample", run: name }) },
    run().kind === "image" ? picture(name, sample.row) : null,
    el("span", { class: "who" }, el("b", {}, sample.id), sample.label !== null ? el("span", { class: "chip" }, sample.label) : null, sample.split === "held out" ? el("span", { class: "chip held" }, "held out") : null),
    el("span", { class: "hint" }, hint(sample)));
  return el("li", { class: "card" }, tickBox(sample), open, figure ? el("span", { class: `figure ${figure.tone ?? ""}`, title: figure.title }, figure.text) : null);
}

export function list(samples, figure, empty = "None.", name = state.run) {
  if (!samples.length) return el("p", { class: "dim" }, empty);
  return el("ul", { class: "cards" }, samples.map((sample) => card(sample, figure?.(sample), name)));
}

/** A block with a heading, a line of explanation and content. */
export const block = (title, says, ...content) => el("section", { class: "block" }, el("h3", {}, title), says ? el("p", { class: "dim" }, says) : null, ...content);

export const tone = (value) => (value > 0 ? "attracts" : value < 0 ? "repels" : "");

export const many = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

/** Keep tick boxes as the selection says. */
export function refreshTicks() {
  const chosen = new Set(ticked());
  for (const box of document.querySelectorAll("input.tick")) box.checked = chosen.has(box.dataset.id);
}

// The page of one sample: made of, beside would change, beside its neighbours.

import { getJson } from "./api.js";
import { button, el, fill, percent, say, signed } from "./dom.js";
import { block, list, picture, run, tick, ticked, tone } from "./lists.js";
import { go, state } from "./state.js";

let asked = 0;

/** Show the sample of the state; returns its page, for the map's edges. */
export async function showSample(view) {
  const turn = ++asked;
  if (state.sample === null) {
    fill(view, el("h2", {}, "A sample"), el("p", {}, "Press a point on the map, or find a sample by its id or a value in the search field above. You then see what its embedding is made of, what would change it, and who is close to it."));
    return null;
  }
  const { row } = await getJson(`/api/${state.run}/place`, { id: state.sample });
  if (row === null) {
    fill(view, el("p", { class: "flag" }, `There is no sample ${state.sample} in this run.`));
    return null;
  }
  const page = await getJson(`/api/${state.run}/samples/${row}`);
  if (turn !== asked) return null;
  const would = el("div", { class: "column", "aria-busy": "true" }, el("p", { class: "dim" }, "What would change it …"));
  fill(view, head(page), flags(page), fields(page), el("div", { class: "columns" }, madeOf(page), would), neighbours(page));
  wouldChange(would, row, turn);
  return page;
}

function head(page) {
  const name = state.run;
  const mark = button(ticked().includes(page.id) ? "Ticked" : "Tick", () => {
    tick(page.id);
    mark.textContent = ticked().includes(page.id) ? "Ticked" : "Tick";
  });
  return el("div", { class: "head" },
    page.picture ? picture(name, page.row, "large") : null,
    el("div", {},
      el("h2", {}, page.id),
      el("p", {}, page.label !== null ? el("span", { class: "chip" }, `${run().label}: ${page.label}`) : null, el("span", { class: "chip held" }, page.split), page.landmark ? el("span", { class: "chip mark" }, "landmark") : null),
      el("p", { class: "row" }, mark, button("Colour the map by influence on it", () => go({ by: "influence" }), { class: "quiet", disabled: !run().removable }))));
}

function flags(page) {
  if (!page.flags.length) return el("p", { class: "fine" }, "Nothing unusual: its class agrees with its neighbours and landmarks as far as they are known, and landmarks are near.");
  return el("ul", { class: "flags" }, page.flags.map(({ text }) => el("li", { class: "flag" }, text)));
}

function fields(page) {
  if (!page.columns.length || (page.picture && page.columns.length === 1)) return null;
  const others = page.made_of.attracts.slice(0, 2).concat(page.made_of.repels.slice(0, 1));
  const cells = page.columns.map((column, i) => el("tr", {}, el("th", { scope: "row" }, column), el("td", {}, page.values[i]), others.map((other) => el("td", { class: other.values[i] === page.values[i].slice(0, 119) ? "same" : "differs" }, other.values[i]))));
  const heads = [el("th", { scope: "col" }, "column"), el("th", { scope: "col" }, "this"), ...others.map((other) => el("th", { scope: "col", class: tone(other.score) }, `${other.score > 0 ? "attracts" : "repels"} ${other.id}`))];
  return el("details", { class: "fields", open: page.columns.length <= 12 }, el("summary", {}, "The row beside its strongest landmarks"), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, cells))));
}

function madeOf(page) {
  const { attracts, repels, landmarks, moved } = page.made_of;
  const figure = (sample) => ({ text: signed(sample.score), tone: tone(sample.score), title: `${percent(sample.part)} of its shift` });
  if (!moved) return el("div", { class: "column" }, block("Made of", "No step lowered the objective of this run, so no landmark moved anything."));
  return el("div", { class: "column" },
    block("Made of", `The landmarks, of ${landmarks}, whose tangent kernel pulls its embedding. Not: what would change it.`,
      el("h4", {}, "attract"), list(attracts, figure), el("h4", {}, "repel"), list(repels, figure, "No landmark repels it.")));
}

async function wouldChange(view, row, turn) {
  try {
    const found = await getJson(`/api/${state.run}/samples/${row}/influence`);
    if (turn !== asked) return;
    const figure = (sample) => ({ text: signed(sample.change), tone: tone(sample.change), title: "change of the cosine without this row" });
    fill(view, block("Would change it", `Training rows whose removal would change the cosine to ${found.landmark.id}, the landmark that attracts it most. By the surrogate, to first order.`,
      el("h4", {}, "hold them together"), list(found.together, figure), el("h4", {}, "keep them apart"), list(found.apart, figure)),
      el("p", { class: "dim" }, found.trust ?? "Whether retraining agrees was not measured: krepes prove does it."),
      found.error > 0.05 ? el("p", { class: "flag" }, `Quick answers of this run differ by ${percent(found.error)} from exact ones on a test removal.`) : null);
  } catch (error) {
    if (turn === asked) fill(view, block("Would change it", null, el("p", { class: "flag" }, error.message)));
  } finally {
    view.removeAttribute("aria-busy");
  }
}

function neighbours(page) {
  return el("div", { class: "columns" },
    el("div", { class: "column" }, block("Closest by latent cosine", "Among all samples, about the mean embedding.", list(page.latent, (sample) => ({ text: signed(sample.cosine, 3) })))),
    el("div", { class: "column" }, block("Closest landmarks by kernel", "Similarity alone, without what the objective added.", list(page.kernel, (sample) => ({ text: signed(sample.kernel) })))));
}

export const edgesOf = (page) => (page ? [...page.made_of.attracts, ...page.made_of.repels] : []);
export const failed = (error) => say(error.message);

// Questions about sets of samples: the selection itself, a concept made of it, and what if it had not been there.

import { postBlob, postJson, postPacked } from "./api.js";
import { button, el, fill, number, percent, say, select, signed } from "./dom.js";
import { block, card, list, many, run, tone } from "./lists.js";
import { go, state } from "./state.js";

export const current = { rows: null, count: 0 };

/** What a selection is, in words. */
export function words(chosen) {
  if (!chosen) return "nothing";
  if (chosen.ids) return `${many(chosen.ids.length, "ticked sample")}`;
  if (chosen.where) return `where ${chosen.where}`;
  if (chosen.cell) return `${chosen.cell.column}: ${chosen.cell.of} anchored to ${chosen.cell.landmark}`;
  return `a lasso of ${chosen.lasso.polygon.length} corners`;
}

/** Fetch the selection of the state; returns its rows as a set, or null. */
export async function fetchSelection() {
  if (!state.sel) return (current.found = null);
  current.found = await postPacked(`/api/${state.run}/select`, state.sel);
  return new Set(current.found.rows);
}

export function showSelection(view) {
  const condition = el("input", { type: "text", id: "where", value: state.sel?.where ?? "", placeholder: example(), spellcheck: "false" });
  const filter = el("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    if (condition.value.trim()) go({ sel: { where: condition.value.trim() } });
  } }, el("label", { class: "field grow" }, el("span", {}, "Filter: column OP value, and, or, parentheses"), condition), el("button", {}, "Select"));
  const pasted = el("textarea", { rows: "2", placeholder: "ids, one on each line or with commas" });
  const byList = el("details", {}, el("summary", {}, "Paste a list of ids"), el("label", { class: "field" }, el("span", {}, "Ids"), pasted), button("Select these", () => {
    const ids = pasted.value.split(/[\n,;]+/).map((id) => id.trim()).filter(Boolean);
    if (ids.length) go({ sel: { ids } });
  }));
  fill(view, el("h2", {}, "Selection"), el("p", { class: "dim" }, "Draw a lasso on the map, press a level of the legend or a cell of the groups, filter, paste ids, or tick samples anywhere."), run().columns.length ? filter : null, byList, chosenPart());
}

function chosenPart() {
  const found = current.found;
  if (!state.sel || !found) return null;
  const share = el("p", {}, found.labels.map(({ label, count }) => el("span", { class: "chip" }, `${label}: ${number(count)}`)));
  return el("div", {},
    el("h3", { id: "count" }, `${many(found.count, "sample")}, ${number(found.training)} of them trained on`),
    el("p", { class: "dim" }, words(state.sel)),
    run().label ? share : null,
    el("p", { class: "row" }, button("What if without them?", () => go({ tab: "whatif" })), button("A concept of them", () => go({ tab: "concept" })), button("CSV", () => save("csv")), button("JSON", () => save("json")), button("Clear", () => go({ sel: null }), { class: "quiet" })),
    list(found.samples, null, "No sample fulfils this."),
    found.count > found.samples.length ? el("p", { class: "dim" }, `The first ${found.samples.length} are listed; the export holds all.`) : null);
}

function example() {
  const column = run().columns.find(({ number: is, name }) => is && name !== run().label) ?? run().columns[0];
  return column ? (column.number ? `${column.name} < 30` : `${column.name} == 'value'`) : "";
}

async function save(format) {
  try {
    const blob = await postBlob(`/api/${state.run}/export`, { selection: state.sel, format });
    const link = el("a", { href: URL.createObjectURL(blob), download: `selection.${format}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (error) {
    say(error.message);
  }
}

export function showConcept(view) {
  const answer = el("div", { "aria-live": "polite" });
  const ask = button("Find the direction", () => concept(answer, ask), { class: "main", disabled: !state.sel });
  fill(view, el("h2", {}, "A concept"),
    el("p", { class: "dim" }, "A direction of the latent space that points to some samples and away from others, how sure one can be of it, and who is pulled along it. At least nine samples on each side."),
    el("dl", { class: "pairs" }, el("dt", {}, "Of the concept"), el("dd", { id: "positives" }, state.sel ? words(state.sel) : "select samples first"), el("dt", {}, "Others"), el("dd", {}, state.neg ? words(state.neg) : "random other samples")),
    el("p", { class: "row" }, ask, button("Use the selection as the others", () => go({ neg: state.sel, sel: null }), { disabled: !state.sel }), state.neg ? button("Random others", () => go({ neg: null }), { class: "quiet" }) : null),
    answer);
}

async function working(ask, view, answer) {
  ask.disabled = true;
  fill(view, el("p", { class: "dim", "aria-busy": "true" }, "Working …"));
  try {
    fill(view, ...(await answer()));
  } catch (error) {
    fill(view, el("p", { class: "flag" }, error.message));
  } finally {
    ask.disabled = false;
  }
}

const pull = (sample) => ({ text: signed(sample.pull), tone: tone(sample.pull) });

function concept(view, ask) {
  return working(ask, view, async () => {
    const found = await postJson(`/api/${state.run}/concept`, { positive: state.sel, negative: state.neg });
    const sure = found.p <= 0.05 && found.accuracy > found.chance;
    const colour = () => go({ by: `answer:${found.key}` });
    return [
      el("p", { class: sure ? "finding good" : "finding bad" }, el("b", {}, sure ? "A direction. " : "No direction. "), `Held-out samples are told apart in ${percent(found.accuracy)} of cases; shuffled labels reach ${percent(found.chance)} (p = ${number(found.p, 2)}). Directions of other draws agree with a cosine of ${number(found.stability, 2)}.`),
      el("p", { class: "dim" }, `Fitted to ${found.fitted[0]} of ${number(found.positives)} samples and ${found.fitted[1]} of ${number(found.negatives)} others, in the surrogate's latent space.`),
      el("p", {}, button("Colour the map by the pull", colour)),
      block("Landmarks that move its samples along it", "By attraction or by repulsion; negative against it.", list(found.landmarks, pull)),
      el("div", { class: "columns" }, el("div", { class: "column" }, block("Pulled towards it most", null, list(found.toward, pull))), el("div", { class: "column" }, block("Pulled away most", null, list(found.away, pull)))),
    ];
  });
}

let followed = null;

export function showWhatIf(view) {
  const columns = run().columns.filter(({ number: is, name }) => !is || name === run().label).map(({ name }) => name);
  followed ??= run().groups[0] ?? run().label ?? "";
  const answer = el("div", { "aria-live": "polite" });
  const ask = button("What moves without them?", () => whatIf(answer, ask), { class: "main", disabled: !state.sel || !run().removable });
  fill(view, el("h2", {}, "What if"),
    el("p", { class: "dim" }, "What would be different if these training rows had not been there? The surrogate is solved again without them, and without random sets of the same size."),
    el("dl", { class: "pairs" }, el("dt", {}, "Take away"), el("dd", {}, state.sel ? words(state.sel) : "select samples first")),
    columns.length ? select("Follow the groups of", [["", "no column"], ...columns.map((name) => [name, name])], followed, (value) => (followed = value)) : null,
    el("p", { class: "row" }, ask), run().removable ? null : el("p", { class: "flag" }, `Not for this run: ${run().why}.`), answer);
}

function bar(line, most) {
  const box = el("span", { class: "bar", title: `random sets: ${number(line.random_mean)} ± ${number(line.random_deviation)}` });
  const at = (value) => `${50 + (50 * Math.max(-most, Math.min(most, value))) / (most || 1)}%`;
  const band = el("i", { class: "band" });
  band.style.left = at(line.random_mean - 2 * (line.random_deviation ?? 0));
  band.style.right = `calc(100% - ${at(line.random_mean + 2 * (line.random_deviation ?? 0))})`;
  const mark = el("i", { class: "at" });
  mark.style.left = at(line.change);
  box.append(band, mark);
  return box;
}

function table(caption, lines, name) {
  if (!lines.length) return null;
  const most = Math.max(...lines.map((line) => Math.abs(line.change)), ...lines.map((line) => Math.abs(line.random_mean) + 2 * (line.random_deviation ?? 0)));
  return block(caption, "The mark is this set; the band is what random sets of the same size do (± 2 deviations).", el("div", { class: "scroll" }, el("table", { class: "moves" },
    el("thead", {}, el("tr", {}, ["", "before", "after", "change", "beside random sets"].map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, lines.map((line) => el("tr", {}, el("th", { scope: "row" }, name(line)), el("td", {}, number(line.before)), el("td", {}, number(line.after)), el("td", {}, signed(line.change)), el("td", {}, bar(line, most))))))));
}

function whatIf(view, ask) {
  return working(ask, view, async () => {
    const groups = followed ? [followed] : [];
    const found = await postJson(`/api/${state.run}/whatif`, { remove: state.sel, groups });
    const { change, random_mean: mean, random_below: below } = found.overall;
    const beyond = below === 1;
    return [
      el("p", { class: "finding" }, el("b", {}, beyond ? "More than random rows. " : "Not more than random rows. "), `Without ${number(found.removed)} of ${number(found.trained)} training rows held-out samples move by ${percent(change)} of the spread; without random sets of the same size by ${percent(mean)}, and ${Math.round(below * found.sets)} of ${found.sets} sets moved them less.`),
      el("p", { class: "dim" }, `${found.looked_at} held-out samples, ${number(found.seconds, 2)} s. ${found.trust ?? "Whether retraining agrees was not measured: krepes prove does it."}`),
      found.error > 0.05 ? el("p", { class: "flag" }, `Quick answers of this run differ by ${percent(found.error)} from exact ones on a test removal: krepes whatif is exact.`) : null,
      el("p", {}, button("Colour the map by movement", () => go({ by: `answer:${found.key}` }))),
      table("Distance of groups", found.groups, (line) => line.what),
      block("Samples that move most", "In parts of the spread; chosen by this very removal.", el("ul", { class: "cards" }, found.samples.map((sample) => card(sample, { text: percent(sample.change), title: `random sets: ${percent(sample.random_mean)}` })))),
      table("Pairs whose cosine changes most", found.pairs, (line) => line.what),
    ].filter(Boolean);
  });
}

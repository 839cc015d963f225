// Groups and features, with their samples; and two runs beside each other.

import { getJson } from "./api.js";
import { button, el, fill, number, percent, select, signed } from "./dom.js";
import { block, list, many, run, shared } from "./lists.js";
import { go, state } from "./state.js";

let column = null;
const kept = new Map();

async function once(path, values) {
  const key = `${path}?${JSON.stringify(values)}`;
  if (!kept.has(key)) kept.set(key, await getJson(path, values));
  return kept.get(key);
}

export async function showGroups(view) {
  const names = run().columns.map(({ name }) => name);
  if (!names.length) return fill(view, el("h2", {}, "Groups"), el("p", { class: "dim" }, "The data of this run have no columns."));
  if (!names.includes(column)) column = run().groups[0] ?? run().label ?? names[0];
  const matrix = el("div", { "aria-live": "polite" });
  const features = el("div");
  const choose = (name) => {
    column = name;
    showGroups(view);
  };
  fill(view, el("h2", {}, "Groups and features"), select("Groups of", names.map((name) => [name, name]), column, choose), matrix, features);
  const asked = column;
  try {
    const found = await once(`/api/${state.run}/groups`, { column: asked });
    if (asked === column) fill(matrix, ...groupTable(found));
  } catch (error) {
    fill(matrix, el("p", { class: "flag" }, error.message));
  }
  try {
    fill(features, el("p", { class: "dim", "aria-busy": "true" }, "Features …"));
    fill(features, featureTable(await once(`/api/${state.run}/features`, {}), choose));
  } catch (error) {
    fill(features, el("p", { class: "flag" }, error.message));
  }
}

function groupTable({ column: name, groups, cells, samples }) {
  const at = new Map(cells.map((cell) => [`${cell.of}\u0000${cell.landmark}`, cell]));
  const rows = groups.map((group) => el("tr", {}, el("th", { scope: "row" }, group), groups.map((other) => cellOf(name, at.get(`${group}\u0000${other}`)))));
  return [
    el("p", { class: "dim" }, `Which group holds the landmark that attracts a sample most? Rows are the groups of ${many(samples, "sample")}, columns those of their landmarks. A bold cell with a dot is beyond shuffled landmarks (corrected p ≤ 0.05). Press a cell to see its samples.`),
    el("div", { class: "scroll" }, el("table", { class: "matrix" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "samples ↓ landmarks →"), groups.map((group) => el("th", { scope: "col" }, group)))), el("tbody", {}, rows))),
  ];
}

function cellOf(name, cell) {
  if (!cell || cell.share === null) return el("td", { class: "empty" }, "–");
  const made = button([percent(cell.share), cell.beyond ? " •" : ""], () => go({ sel: { cell: { column: name, of: cell.of, landmark: cell.landmark } }, tab: "selection" }), {
    class: cell.beyond ? "cell beyond" : "cell",
    title: `${cell.count} samples; ${percent(cell.expected)} by chance; lift ${number(cell.lift)}; corrected p ${number(cell.p_corrected, 2)}`,
    disabled: cell.count === 0,
  });
  made.style.setProperty("--share", String(cell.share));
  return el("td", {}, made);
}

function featureTable({ features, sentence, caveat, samples }, choose) {
  const most = Math.max(...features.map(({ gap, null_high: high }) => Math.max(Math.abs(gap ?? 0), high ?? 0)), 0.01);
  const rows = features.map((line) => {
    const box = el("span", { class: "bar zero", title: `shuffled: ${signed(line.null_low)} to ${signed(line.null_high)}` });
    const at = (value) => `${Math.max(0, (100 * (value ?? 0)) / most)}%`;
    const fillBar = el("i", { class: "length" });
    fillBar.style.width = at(line.gap);
    const band = el("i", { class: "band" });
    band.style.width = at(line.null_high);
    box.append(fillBar, band);
    return el("tr", {}, el("th", { scope: "row" }, button(line.column, () => choose(line.column), { class: "link" })), el("td", {}, signed(line.gap)), el("td", {}, box), el("td", {}, line.p === null ? "–" : number(line.p, 2)), el("td", { class: "dim" }, line.note));
  });
  return block("Features", sentence, el("div", { class: "scroll" }, el("table", { class: "moves" }, el("thead", {}, el("tr", {}, ["column", "gap", "beside shuffles", "p", ""].map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows))), el("p", { class: "dim" }, `On ${many(samples, "sample")}. ${caveat}`));
}

export async function showCompare(view) {
  const runs = shared.about.runs;
  if (!runs.b) return fill(view, el("h2", {}, "Compare"), el("p", { class: "dim" }, "Open two runs of the same samples: krepes explore RUN RUN2."));
  fill(view, el("h2", {}, "Two runs"), el("p", { class: "dim", "aria-busy": "true" }, "Comparing …"));
  try {
    const found = await once("/api/compare", {});
    const both = state.sample === null ? null : await Promise.all(["a", "b"].map((name) => sampleIn(name)));
    fill(view, el("h2", {}, "Two runs"),
      el("p", { class: "finding" }, `Of a sample's ten closest samples, ${percent(found.agree)} are the same in both runs; by chance ${percent(found.chance)}. ${many(found.compared, "sample")} of ${number(found.shared)} that the runs share.`),
      facts(runs, found.titles),
      both ? sideBySide(both, found.titles) : el("p", { class: "dim" }, "Pick a sample to see what it is made of in both runs."),
      block("Samples on which they agree least", null, list(found.least, (sample) => ({ text: percent(sample.agree), title: "shared neighbours" }))));
  } catch (error) {
    fill(view, el("h2", {}, "Two runs"), el("p", { class: "flag" }, error.message));
  }
}

function facts(runs, titles) {
  const lines = [["objective", "objective"], ["trained on", "trained"], ["landmarks", "landmarks"], ["dimensions", "dimensions"], ["start", "start"]];
  const shown = (value) => (typeof value === "number" ? number(value) : value);
  return el("table", {}, el("thead", {}, el("tr", {}, el("th", {}), titles.map((title) => el("th", { scope: "col" }, title)))), el("tbody", {}, lines.map(([text, key]) => el("tr", {}, el("th", { scope: "row" }, text), [runs.a, runs.b].map((one) => el("td", { class: runs.a[key] === runs.b[key] ? "" : "differs" }, shown(one[key])))))));
}

async function sampleIn(name) {
  const { row } = await getJson(`/api/${name}/place`, { id: state.sample });
  return row === null ? null : getJson(`/api/${name}/samples/${row}`);
}

function sideBySide(pages, titles) {
  const near = pages.map((page) => new Set(page?.latent.map(({ id }) => id) ?? []));
  const columns = pages.map((page, i) => {
    if (!page) return el("div", { class: "column" }, el("p", { class: "flag" }, `${state.sample} is not in ${titles[i]}.`));
    const name = "ab"[i];
    return el("div", { class: "column" },
      block(`Made of, in ${titles[i]}`, null, list(page.made_of.attracts, (sample) => ({ text: signed(sample.score), tone: "attracts" }), "None.", name)),
      block("Closest by latent cosine", null, list(page.latent, (sample) => ({ text: near[1 - i].has(sample.id) ? "in both" : "here only", tone: near[1 - i].has(sample.id) ? "attracts" : "" }), "None.", name)));
  });
  return el("div", {}, el("h3", {}, `Sample ${state.sample}`), el("div", { class: "columns" }, columns));
}

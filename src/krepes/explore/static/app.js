// The page: tabs, maps, search; everything follows the state in the address.

import { getJson, getPacked, shareable, takeToken } from "./api.js";
import { legend } from "./colours.js";
import { button, byId, el, fill, number, say, select } from "./dom.js";
import { refreshTicks, run, shared } from "./lists.js";
import { showCompare, showGroups } from "./matrix.js";
import { edgesOf, showSample } from "./sample.js";
import { fetchSelection, showConcept, showSelection, showWhatIf } from "./sets.js";
import { go, start, state, watch } from "./state.js";

const TABS = { sample: ["Sample", showSample], selection: ["Selection", showSelection], concept: ["Concept", showConcept], whatif: ["What if", showWhatIf], groups: ["Groups", showGroups], compare: ["Compare", showCompare] };
const maps = {};
const views = {};
let selected = null;
let page = null;

const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
const shownBy = () => state.by ?? (run().label ? `column:${run().label}` : "split");
const guarded = (work) => work().catch((error) => error.name !== "AbortError" && say(error.message));

function makeTabs() {
  const names = Object.keys(TABS).filter((name) => name !== "compare" || shared.about.runs.b);
  for (const name of names) {
    const made = button(TABS[name][0], () => go({ tab: name }), { role: "tab", id: `tab-${name}`, "aria-controls": `view-${name}` });
    made.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = names[(names.indexOf(name) + step + names.length) % names.length];
      go({ tab: next });
      byId(`tab-${next}`).focus();
    });
    byId("tabs").append(made);
    views[name] = el("div", { role: "tabpanel", id: `view-${name}`, "aria-labelledby": `tab-${name}`, class: "view", hidden: true });
    byId("views").append(views[name]);
  }
}

function showTab() {
  if (!views[state.tab]) state.tab = "sample";
  for (const [name, view] of Object.entries(views)) {
    const here = name === state.tab;
    view.hidden = !here;
    const tab = byId(`tab-${name}`);
    tab.setAttribute("aria-selected", here);
    tab.tabIndex = here ? 0 : -1;
  }
  if (state.tab !== "sample") guarded(async () => TABS[state.tab][1](views[state.tab]));
}

function makeTools() {
  const about = run();
  const colours = [["none", "one colour"], ["split", "part of the fit"], ...about.columns.map(({ name }) => [`column:${name}`, name])];
  if (state.sample !== null && about.removable) colours.push(["influence", "influence on the sample"]);
  if (state.by?.startsWith("answer:")) colours.push([state.by, "the last answer"]);
  const lasso = button("Lasso", toggleLasso, { id: "lasso", "aria-pressed": "false", title: "Draw around samples (L)" });
  const runs = Object.entries(shared.about.runs);
  fill(byId("tools"),
    runs.length > 1 ? select("Ask about", runs.map(([name, one]) => [name, one.run ?? one.title]), state.run, (name) => go({ run: name })) : null,
    select("Colour", colours, shownBy(), (by) => go({ by })),
    about.spaces.length > 1 ? select("Space", about.spaces.map((name) => [name, name]), state.space, (space) => go({ space })) : null,
    about.projections.length > 1 ? select("Map", about.projections.map((name) => [name, name.toUpperCase()]), state.proj, (proj) => go({ proj })) : null,
    lasso, button("Whole map", () => Object.values(maps).forEach((map) => map.home()), { class: "quiet" }),
    button("Copy link", copyLink, { class: "quiet", title: "The address of this view, with its token: for this machine only" }));
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(shareable());
    say("The link is copied. It opens on this machine while the explorer runs.", "good");
  } catch {
    say(shareable(), "good");
  }
}

function toggleLasso() {
  const on = byId("lasso").getAttribute("aria-pressed") !== "true";
  byId("lasso").setAttribute("aria-pressed", on);
  for (const map of Object.values(maps)) map.armLasso(on);
}

async function makeMaps() {
  await painted();
  const { Map2d } = await import("./map.js"); // the largest part: what is there is shown before it
  for (const [name, about] of Object.entries(shared.about.runs)) {
    maps[name] = new Map2d(byId("stage"), {
      pick: (row) => guarded(async () => {
        const found = await getJson(`/api/${name}/samples/${row}`);
        go({ run: name, sample: found.id, tab: state.tab === "compare" ? "compare" : "sample" });
      }),
      lasso: (polygon) => {
        toggleLasso();
        go({ run: name, sel: { lasso: { polygon, space: state.space, projection: state.proj } }, tab: ["concept", "whatif"].includes(state.tab) ? state.tab : "selection" });
      },
      look: (box) => maps[name].sampled && guarded(() => drawPoints(name, box)),
    });
    maps[name].label = shared.about.runs.b ? about.run ?? about.title : "";
  }
  byId("stage").classList.toggle("two", Boolean(shared.about.runs.b));
}

async function drawPoints(name, box = null) {
  const map = maps[name];
  const { space, proj: projection } = state;
  const found = await getPacked(`/api/${name}/points`, { space, projection, box: box?.join(",") });
  map.sampled = found.drawn < found.total || box !== null;
  map.setPoints(found.rows, found.places);
  const part = found.drawn < found.total ? `${number(found.drawn)} of ${number(found.total)} samples drawn; zoom in for more` : `${number(found.total)} samples`;
  map.title.textContent = [map.label, part, box ? "" : projection === "pca" ? "principal components" : projection.toUpperCase()].filter(Boolean).join(" · ");
}

async function colourMaps() {
  const by = shownBy();
  for (const name of Object.keys(maps)) {
    const [kind, ...rest] = by.split(":");
    const values = { by: kind, name: rest.join(":") || null, row: null };
    let about = null;
    if (kind === "influence") {
      const { row } = state.sample === null ? { row: null } : await getJson(`/api/${name}/place`, { id: state.sample });
      about = row === null ? null : await getPacked(`/api/${name}/colours`, { by: kind, row });
    } else if (kind !== "none" && (kind !== "answer" || name === state.run)) about = await getPacked(`/api/${name}/colours`, values);
    maps[name].colour(about, name === state.run ? selected : null);
    if (name === state.run) legend(byId("legend"), about, kind === "column" ? (level) => go({ sel: { where: `\`${rest.join(":")}\` == ${quoted(level)}` }, tab: "selection" }) : null);
  }
}

const quoted = (text) => (text.includes("'") ? `"${text}"` : `'${text}'`);

async function followSample() {
  page = await showSample(views.sample);
  for (const name of Object.keys(maps)) {
    if (state.sample === null) maps[name].show(null);
    else if (name === state.run) page && maps[name].show(page.row, edgesOf(page));
    else {
      const { row } = await getJson(`/api/${name}/place`, { id: state.sample });
      const other = row === null ? null : await getJson(`/api/${name}/samples/${row}`);
      maps[name].show(row, edgesOf(other));
    }
  }
}

async function follow(changed) {
  const has = (...keys) => keys.some((key) => changed.has(key));
  if (has("run", "by", "sample", "space", "proj")) makeTools();
  if (has("space", "proj")) await Promise.all(Object.keys(maps).map((name) => drawPoints(name)));
  if (has("sel", "run")) {
    selected = await fetchSelection().catch((error) => (say(error.message), null));
    refreshTicks();
  }
  showTab();
  if (has("by", "sel", "run") || (has("sample") && state.by === "influence")) await colourMaps();
  if (has("sample", "run", "space", "proj")) await followSample();
}

function makeSearch() {
  const field = byId("search");
  const found = byId("found");
  let control = null;
  const close = () => {
    found.hidden = true;
    field.setAttribute("aria-expanded", "false");
  };
  const open = (sample) => {
    close();
    field.value = "";
    go({ sample: sample.id, tab: "sample" });
  };
  const look = async () => {
    control?.abort();
    control = new AbortController();
    if (!field.value.trim()) return close();
    const { found: samples } = await getJson(`/api/${state.run}/search`, { q: field.value }, control.signal);
    fill(found, ...(samples.length ? samples.map((sample) => el("li", {}, button([el("b", {}, sample.id), el("span", { class: "hint" }, sample.values.slice(0, 5).join(" · "))], () => open(sample), { role: "option" }))) : [el("li", { class: "dim" }, "No sample has this id or value.")]));
    found.hidden = false;
    field.setAttribute("aria-expanded", "true");
  };
  field.addEventListener("input", () => guarded(look));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (event.key === "ArrowDown" || event.key === "Enter") {
      const first = found.querySelector("button");
      if (first && !found.hidden) event.key === "Enter" ? first.click() : first.focus();
      event.preventDefault();
    }
  });
  found.addEventListener("keydown", (event) => {
    const items = [...found.querySelectorAll("button")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") field.focus(), close();
    if (!step) return;
    event.preventDefault();
    (items[items.indexOf(document.activeElement) + step] ?? field).focus();
  });
  document.addEventListener("click", (event) => !event.target.closest(".search") && close());
}

function makeTheme() {
  const kept = localStorage.getItem("krepes-theme");
  if (kept) document.documentElement.dataset.theme = kept;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  byId("theme").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
    localStorage.setItem("krepes-theme", document.documentElement.dataset.theme);
    guarded(colourMaps);
  });
  dark.addEventListener("change", () => guarded(colourMaps));
}

async function main() {
  if (!takeToken()) return say("Open the address that the terminal shows: it holds the token of this explorer.");
  shared.about = await getJson("/api/about");
  const { a, b } = shared.about.runs;
  byId("title").textContent = b ? `${a.run ?? a.title} beside ${b.run ?? b.title}` : a.title;
  document.title = `${byId("title").textContent} · KREPES explorer`;
  const notes = [...a.notes, ...(b?.notes ?? [])];
  if (notes.length) fill(byId("notes"), notes.join(" ")).hidden = false;
  makeTheme();
  makeTabs();
  await makeMaps();
  makeSearch();
  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "l" && !event.ctrlKey && !event.metaKey && !event.target.closest("input, textarea, select")) toggleLasso();
    if (event.key === "/" && !event.target.closest("input, textarea, select")) byId("search").focus(), event.preventDefault();
  });
  let turn = Promise.resolve();
  watch((changed) => (turn = turn.then(() => guarded(() => follow(changed)))));
  start();
  await turn;
  document.body.dataset.ready = "yes";
}

guarded(main);

// What the reader looks at, kept in the address: a link opens the same view, and Back goes back.

const DEFAULTS = { run: "a", tab: "sample", sample: null, by: null, space: "encoder", proj: "pca", sel: null, neg: null, remove: null };
const JSONS = new Set(["sel", "neg", "remove"]);

export const state = { ...DEFAULTS };
const listeners = new Set();

/** Call a function with the set of changed keys after every change. */
export const watch = (listener) => listeners.add(listener);

function read() {
  const found = new URLSearchParams(location.search);
  const next = { ...DEFAULTS };
  for (const key of Object.keys(DEFAULTS)) {
    const text = found.get(key);
    if (text === null) continue;
    try {
      next[key] = JSONS.has(key) ? JSON.parse(text) : text;
    } catch {
      next[key] = null;
    }
  }
  return next;
}

function address() {
  const made = new URL(location.href);
  for (const [key, standard] of Object.entries(DEFAULTS)) {
    const value = state[key];
    if (value === null || value === standard) made.searchParams.delete(key);
    else made.searchParams.set(key, JSONS.has(key) ? JSON.stringify(value) : value);
  }
  return made;
}

/** Change what is looked at. */
export function go(changes, { replace = false } = {}) {
  const changed = Object.keys(changes).filter((key) => JSON.stringify(state[key]) !== JSON.stringify(changes[key]));
  if (!changed.length) return;
  Object.assign(state, changes);
  history[replace ? "replaceState" : "pushState"](null, "", address());
  tell(new Set(changed));
}

function tell(changed) {
  for (const listener of listeners) listener(changed);
}

export function start() {
  Object.assign(state, read());
  addEventListener("popstate", () => {
    const next = read();
    const changed = Object.keys(next).filter((key) => JSON.stringify(next[key]) !== JSON.stringify(state[key]));
    Object.assign(state, next);
    tell(new Set(changed));
  });
  tell(new Set(Object.keys(DEFAULTS)));
}

// Elements without markup: whatever comes from data becomes text, never HTML.

/** Make an element: attributes, event listeners (`onclick`), and children, which are elements or text. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false).map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

export const byId = (id) => document.getElementById(id);

export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const button = (text, onclick, attributes = {}) => el("button", { type: "button", onclick, ...attributes }, text);

/** A select of `[value, text]` pairs. */
export function select(label, options, chosen, onchange) {
  const made = el("select", { onchange: () => onchange(made.value) });
  for (const [value, text] of options) made.append(el("option", { value, selected: value === chosen }, text));
  return el("label", { class: "field" }, el("span", {}, label), made);
}

/** Numbers as a person reads them. */
export function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1);
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
}

export const signed = (value, digits = 2) => (value === null ? "–" : `${value > 0 ? "+" : value < 0 ? "−" : ""}${number(Math.abs(value), digits)}`);

export const percent = (value) => (value === null ? "–" : `${number(100 * value, value > 0.995 || value < 0.1 ? 2 : 3)} %`);

let timer;
/** Say something that went wrong, or was done, for a while. */
export function say(text, kind = "bad") {
  const message = byId("message");
  message.textContent = text;
  message.className = `message ${kind}`;
  message.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => (message.hidden = true), kind === "bad" ? 9000 : 3000);
}

// Questions to the server. The token came with the address; it is kept for this tab and sent in a header.

const KEY = `krepes-token-${location.port}`;

/** Take the token out of the address, so that it is neither seen nor copied by accident. */
export function takeToken() {
  const address = new URL(location.href);
  const token = address.searchParams.get("token");
  if (token) {
    try {
      sessionStorage.setItem(KEY, token);
    } catch {
      memory = token; // storage is closed to pages inside other pages
    }
    memory = token;
    address.searchParams.delete("token");
    history.replaceState(null, "", address);
  }
  return Boolean(token || held());
}

let memory = null;

function held() {
  if (memory) return memory;
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** The address of this page with the token, to be opened elsewhere on this machine. */
export function shareable() {
  const address = new URL(location.href);
  address.searchParams.set("token", held() ?? "");
  return address.href;
}

export class Refusal extends Error {}

async function ask(path, body, signal) {
  const headers = { "x-krepes-token": held() ?? "" };
  if (body !== undefined) headers["content-type"] = "application/json";
  const method = body === undefined ? "GET" : "POST";
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The explorer does not answer: is its command still running?");
  }
  if (!answer.ok) {
    const why = await answer.json().catch(() => ({}));
    throw new Refusal(why.error ?? `The explorer answered with status ${answer.status}.`);
  }
  return answer;
}

const query = (values) =>
  new URLSearchParams(Object.entries(values).filter(([, value]) => value !== null && value !== undefined)).toString();

export const getJson = async (path, values = {}, signal) => (await ask(`${path}?${query(values)}`, undefined, signal)).json();
export const postJson = async (path, body) => (await ask(path, body)).json();
export const getPacked = async (path, values = {}, signal) => unpacked(await (await ask(`${path}?${query(values)}`, undefined, signal)).arrayBuffer());
export const postPacked = async (path, body) => unpacked(await (await ask(path, body)).arrayBuffer());
export const getBlob = async (path) => (await ask(path)).blob();
export const postBlob = async (path, body) => (await ask(path, body)).blob();

const TYPES = { float32: Float32Array, uint32: Uint32Array, uint8: Uint8Array };

/** Read a packed body: length of the head, the head as JSON, then its arrays, each at a multiple of four bytes. */
function unpacked(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let at = 4 + length;
  for (const { name, type, length: size } of head.arrays) {
    const made = new TYPES[type](buffer, at, size);
    head[name] = made;
    at += made.byteLength + ((4 - (made.byteLength % 4)) % 4);
  }
  return head;
}

// What the page asks of its server. Answers to the same question are kept; a token is asked for when one is needed.
import { say } from "./labels.js";

const kept = new Map();
const KEEP = 30;

/** A refusal, as one line that a person can read; `kind` is the server's name for it. */
export class Problem extends Error {
  constructor(message, kind = "") {
    super(message);
    this.kind = kind;
  }
}

/** The models of the server and what each can do. */
export function getInfo() {
  return ask("GET", "/info");
}

/** POST `body` to one of the server's routes. */
export function post(path, body) {
  const key = path + JSON.stringify(body);
  if (!kept.has(key)) {
    if (kept.size >= KEEP) kept.delete(kept.keys().next().value);
    kept.set(key, ask("POST", path, body));
    kept.get(key).catch(() => kept.delete(key));
  }
  return kept.get(key);
}

/** Little-endian float32 numbers, which arrive in base64. */
export function readFloats(base64) {
  const letters = atob(base64);
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

async function ask(method, path, body) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Problem(say("unreachable"));
  }
  if (answer.ok) return answer.json();
  if (answer.status === 401) {
    await askToken(Boolean(token));
    return ask(method, path, body);
  }
  if (answer.status === 429 || answer.status === 503) throw new Problem(say("busy"));
  const said = await answer.json().catch(() => ({}));
  throw new Problem(`${say("refused")} ${said.error ?? answer.status}`, said.error_type);
}

let asking = null;

/** Ask once for a token, however many requests were refused. */
function askToken(wasWrong) {
  const dialog = document.getElementById("token-dialog");
  document.getElementById("token-wrong").hidden = !wasWrong;
  asking ??= new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => {
        const field = document.getElementById("token");
        sessionStorage.setItem("token", field.value.trim());
        field.value = "";
        asking = null;
        resolve();
      },
      { once: true },
    );
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.showModal();
  });
  return asking;
}

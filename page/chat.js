// A conversation with the model that this address serves. Messages stay in the page.
import { markdown } from "./chat_markdown.js";

const byId = (id) => document.getElementById(id);
const list = byId("messages");
const settings = ["system", "temperature", "top_p", "max_tokens"];
let messages = []; // as they are sent
let running = null; // AbortController of the answer

// The token is in the part of the address that browsers do not send.
const token = (() => {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) sessionStorage.setItem("token", given);
  if (given) history.replaceState(null, "", location.pathname);
  return given || sessionStorage.getItem("token");
})();

function headers() {
  const all = { "Content-Type": "application/json" };
  if (token) all.Authorization = `Bearer ${token}`;
  return all;
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function atEnd() {
  return list.scrollHeight - list.scrollTop - list.clientHeight < 80;
}

function show(role, text) {
  const article = element("article", role, text);
  list.append(article);
  list.scrollTop = list.scrollHeight;
  return article;
}

// The events of a stream, without "data: ".
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    for (let end = held.indexOf("\n\n"); end >= 0; end = held.indexOf("\n\n")) {
      const event = held.slice(0, end);
      held = held.slice(end + 2);
      if (event.startsWith("data: ")) yield event.slice(6);
    }
  }
}

class Answer {
  constructor() {
    this.article = show("assistant", "");
    this.content = "";
    this.reasoning = "";
    this.tokens = 0;
    this.began = 0;
    this.drawn = false;
  }
  add(delta) {
    if (!this.began) this.began = performance.now();
    this.content += delta.content || "";
    this.reasoning += delta.reasoning_content || "";
    if (delta.content || delta.reasoning_content) this.tokens += 1;
    if (this.drawn) return;
    this.drawn = true; // at most once a frame
    requestAnimationFrame(() => this.draw());
  }
  draw() {
    this.drawn = false;
    const follow = atEnd();
    const parts = [];
    if (this.reasoning) {
      const details = element("details", "", "");
      const before = this.article.querySelector("details");
      details.open = this.chosen ?? !this.content;
      if (before && before.open !== this.shown) details.open = this.chosen = before.open; // a person has clicked
      this.shown = details.open;
      details.append(element("summary", "", "Reasoning"), this.reasoning);
      parts.push(details);
    }
    this.article.replaceChildren(...parts, ...markdown(this.content));
    const seconds = (performance.now() - this.began) / 1000;
    if (this.tokens > 1) byId("rate").textContent = `${(this.tokens / seconds).toFixed(1)} tokens/s`;
    if (follow) list.scrollTop = list.scrollHeight;
  }
}

function request() {
  const body = { messages: [...messages], stream: true, stream_options: { include_usage: true } };
  const system = byId("system").value.trim();
  if (system) body.messages.unshift({ role: "system", content: system });
  for (const name of ["temperature", "top_p", "max_tokens"])
    if (byId(name).value !== "") body[name] = Number(byId(name).value);
  return JSON.stringify(body);
}

async function answer() {
  running = new AbortController();
  update();
  const made = new Answer();
  const conversation = messages; // "New" begins another one
  try {
    const response = await fetch("v1/chat/completions",
                                 { method: "POST", headers: headers(), body: request(), signal: running.signal });
    if (!response.ok) {
      const body = await response.json();
      throw new Error(body.error.message || body.error);
    }
    for await (const event of events(response)) {
      if (event === "[DONE]") break;
      const data = JSON.parse(event);
      if (data.error) throw new Error(data.error.message);
      for (const choice of data.choices) made.add(choice.delta);
      if (data.usage) made.tokens = data.usage.completion_tokens;
    }
  } catch (error) {
    if (error.name !== "AbortError") show("error", error.message);
  }
  running = null;
  if (made.content || made.reasoning) {
    made.draw();
    conversation.push({ role: "assistant", content: made.content });
  } else {
    made.article.remove();
  }
  update();
}

function update() {
  byId("send").hidden = running !== null;
  byId("stop").hidden = running === null;
  byId("retry").disabled = running !== null || messages.length === 0;
}

byId("compose").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("message").value.trim();
  if (!text || running) return;
  byId("message").value = "";
  const last = messages.at(-1);
  if (last?.role === "user") last.content += `\n\n${text}`; // without an answer: templates want the roles in turn
  else messages.push({ role: "user", content: text });
  show("user", text);
  answer();
});
byId("message").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("compose").requestSubmit();
});
byId("stop").addEventListener("click", () => {
  if (running) running.abort();
  byId("message").focus();
});
byId("retry").addEventListener("click", () => {
  if (messages.at(-1)?.role === "assistant") messages.pop();
  while (list.lastElementChild && !list.lastElementChild.classList.contains("user")) list.lastElementChild.remove();
  if (messages.length > 0) answer();
});
byId("clear").addEventListener("click", () => {
  if (running) running.abort();
  messages = [];
  list.replaceChildren();
  byId("rate").textContent = "";
  byId("message").focus();
  update();
});
byId("show-settings").addEventListener("click", () => {
  const form = byId("settings");
  form.hidden = !form.hidden;
  byId("show-settings").setAttribute("aria-expanded", String(!form.hidden));
});
for (const name of settings) {
  const kept = localStorage.getItem(name);
  if (kept !== null) byId(name).value = kept;
  byId(name).addEventListener("change", () => localStorage.setItem(name, byId(name).value));
}
byId("settings").addEventListener("submit", (event) => event.preventDefault());

addEventListener("hashchange", () => location.reload()); // another token
fetch("v1/models", { headers: headers() })
  .then(async (response) => {
    const models = response.status === 401 ? null : await response.json();
    byId("model").textContent = models ? models.data[0].id : "a token is needed: add #token=TOKEN to this address";
  })
  .catch(() => { byId("model").textContent = "the model cannot be reached"; });
byId("message").focus();
update();

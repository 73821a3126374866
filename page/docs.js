// The HTTP API as a page: one section for each route of openapi.json, with its curl command and a way to try it.
const kKey = "harmonics.token";  // as the dashboard keeps it
const kLongest = 20000;          // characters of a reply that are shown
const kMostNumbers = 1024;       // of an example of the model's input

const at = (id) => document.getElementById(id);
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
function say(text, bad = false) {
  at("said").textContent = text;
  at("said").classList.toggle("bad", bad);
}
const token = () => sessionStorage.getItem(kKey) ?? "";
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// "yes": always; "no": never; "sometimes": if other machines can reach the address, or the user set a token.
function needs_token(operation) {
  if (operation.security.length === 0) return "no";
  return operation.security.some((way) => Object.keys(way).length === 0) ? "sometimes" : "yes";
}
const kTokenWords = { yes: "token", no: "no token", sometimes: "token if not on loopback" };

// One route: its inputs, and the request they make.
class Route {
  constructor(path, method, operation) {
    Object.assign(this, { path, method: method.toUpperCase(), operation });
    this.inputs = new Map();
    this.section = make("section", { "aria-labelledby": operation.operationId });
    this.curl = make("pre", { class: "scroll", tabindex: "0", "aria-label": "The command" });
    this.reply = make("pre", { class: "scroll", tabindex: "0", "aria-label": "The reply", hidden: "" });
    this.status = make("span", { class: "soft", role: "status" });
    this.section.append(
      make("h2", { id: operation.operationId, class: "route" }, make("span", { class: "badge" }, this.method), make("code", {}, path)),
      make("p", {}, operation.summary + "."),
      make("p", { class: "soft" }, `${operation.description} Requires: ${kTokenWords[needs_token(operation)]}.`));
    this.add_parameters();
    this.add_body();
    const copy = make("button", { type: "button" }, "Copy curl");
    copy.addEventListener("click", () => this.copy(copy));
    this.acts = make("div", { class: "acts" }, copy);
    if (!this.opens_socket) {
      const go = make("button", { type: "button" }, "Try it");
      go.addEventListener("click", () => this.go());
      this.acts.append(go);
    }
    this.acts.append(this.status);
    this.section.append(this.curl, this.acts, this.reply);
    this.show();
  }

  get opens_socket() { return "101" in this.operation.responses; }
  get types() { return Object.keys(this.operation.requestBody?.content ?? {}); }

  add_parameters() {
    const example = new URLSearchParams(this.operation["x-example"] ?? "");
    for (const p of this.operation.parameters ?? []) {
      const id = `${this.operation.operationId}-${p.name}`;
      const input = make("input", { id, autocomplete: "off", spellcheck: "false", size: "14" });
      input.value = example.get(p.name) ?? (p.in === "path" ? "x" : "");
      input.addEventListener("input", () => this.show());
      this.inputs.set(p, input);
      this.section.append(make("p", { class: "parameter" }, make("label", { for: id }, make("code", {}, p.name)), input,
        make("span", { class: "soft" }, `${p.schema.type}${p.required ? ", required" : ""}: ${p.description}`)));
    }
  }

  add_body() {
    if (this.types.length === 0) return;
    const id = `${this.operation.operationId}-body`, example = this.operation.requestBody.content[this.types[0]].example;
    this.body = make("textarea", { id, rows: "2", spellcheck: "false" });
    this.body.value = JSON.stringify(example);
    this.body.addEventListener("input", () => this.show());
    this.section.append(make("p", { class: "soft" }, make("label", { for: id }, "Body: "), this.types.join(", ")), this.body);
  }

  get target() {
    const query = new URLSearchParams();
    let path = this.path;
    for (const [p, input] of this.inputs) {
      if (p.in === "path") path = path.replace(`{${p.name}}`, encodeURIComponent(input.value));
      else if (input.value !== "") query.set(p.name, input.value);
    }
    const text = query.toString();
    return path + (text ? "?" + text : "");
  }

  headers(shown) {
    const headers = {};
    if (this.body) headers["Content-Type"] = this.types[0];
    const needed = needs_token(this.operation);
    if (shown ? needed === "yes" || (needed === "sometimes" && token()) : needed !== "no" && token())
      headers.Authorization = `Bearer ${shown ? "TOKEN" : token()}`;
    return headers;
  }

  // The token itself is not shown.
  show() {
    const words = ["curl"];
    for (const [name, value] of Object.entries(this.headers(true))) words.push("-H", quoted(`${name}: ${value}`));
    if (this.body) words.push("-d", quoted(this.body.value));
    words.push(quoted(location.origin + this.target));
    this.curl.textContent = words.join(" ");
  }

  async copy(button) {
    try {
      await navigator.clipboard.writeText(this.curl.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(this.curl);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy curl"; }, 1500);
  }

  async go() {
    this.status.textContent = "waiting…";
    try {
      const reply = await fetch(this.target, { method: this.method, headers: this.headers(false), body: this.body?.value });
      const text = await reply.text();
      this.status.textContent = `${reply.status} ${reply.statusText}`;
      this.status.classList.toggle("bad", !reply.ok);
      this.reply.textContent = text.length > kLongest ? text.slice(0, kLongest) + "…" : text;
      this.reply.hidden = false;
    } catch (e) {
      this.status.textContent = `no reply: ${e.message}`;
      this.status.classList.add("bad");
    }
  }
}

// Zeros for every input of the model, so that the example of predictions is a correct request.
function example_of(model) {
  const inputs = {};
  for (const { name, shape } of model.inputs) {
    const count = shape.reduce((product, size) => product * size, 1);
    if (count > kMostNumbers) return null;
    inputs[name] = [shape.length === 0 ? 0 : Array(count).fill(0)];
  }
  return JSON.stringify({ inputs });
}

async function adapt_to_model(routes) {
  const predict = routes.find((route) => route.path === "/v1/predict");
  const reply = await fetch("/v1/model", { headers: token() ? { Authorization: `Bearer ${token()}` } : {} });
  const example = reply.ok && predict ? example_of(await reply.json()) : null;
  if (!example) return;
  predict.body.value = example;
  predict.show();
}

async function start() {
  const document_ = await (await fetch("/openapi.json")).json();
  at("version").textContent = document_.info.version;
  at("version").hidden = false;
  const routes = [];
  for (const [path, methods] of Object.entries(document_.paths))
    for (const [method, operation] of Object.entries(methods)) routes.push(new Route(path, method, operation));
  at("routes").append(...routes.map((route) => route.section));
  at("token-form").addEventListener("submit", (e) => {
    e.preventDefault();
    sessionStorage.setItem(kKey, at("token").value.trim());
    at("token").value = "";
    say(token() ? "The token is used for this tab." : "No token is used.");
    for (const route of routes) route.show();
    adapt_to_model(routes);
  });
  document.documentElement.dataset.ready = "true";
  await adapt_to_model(routes);
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => localStorage.getItem("harmonics.theme") ?? (dark.matches ? "dark" : "light");
const wear = () => { document.documentElement.dataset.theme = theme(); };
at("theme").addEventListener("click", () => { localStorage.setItem("harmonics.theme", theme() === "dark" ? "light" : "dark"); wear(); });
wear();

start().catch((e) => say(`openapi.json cannot be read: ${e.message}`, true));

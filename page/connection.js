// The way to the run: its events over a WebSocket that is opened again whenever it goes, and what is asked of it.
const kKey = "harmonics.token";
const kSilence = 5000;  // a status comes four times a second: this long without one, nobody is there
const kFirstWait = 500, kLongestWait = 8000;

// The token leaves the address bar: it stays in this tab alone.
function take_token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  sessionStorage.setItem(kKey, given);
  history.replaceState(null, "", location.pathname + location.search);
}

export class Connection {
  // `on_event(object)`, `on_state(word, detail)`: "connecting", "open", "lost", "locked" (the token is missing or wrong).
  constructor(on_event, on_state) {
    this.on_event = on_event;
    this.on_state = on_state;
    this.wait = kFirstWait;
    this.heard = 0;
    take_token();
    addEventListener("hashchange", () => { take_token(); this.again(); });
    addEventListener("online", () => this.again());
    document.addEventListener("visibilitychange", () => document.hidden || this.state === "open" || this.again());
    setInterval(() => this.watch(), 1000);
  }

  get token() { return sessionStorage.getItem(kKey) ?? ""; }
  set token(text) {
    sessionStorage.setItem(kKey, text);
    this.again();
  }
  // Seconds since anything was heard.
  get silence() { return this.heard === 0 ? Infinity : (performance.now() - this.heard) / 1000; }

  open() {
    const query = new URLSearchParams({ every: "0.25", layers: "true" });
    if (this.token) query.set("token", this.token);
    this.tell("connecting");
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/events?${query}`);
    this.socket = socket;
    this.begun = performance.now();
    let opened = false;
    socket.onopen = () => { opened = true; };
    socket.onmessage = (message) => {
      if (socket !== this.socket) return;
      this.heard = performance.now();
      this.wait = kFirstWait;
      this.tell("open");
      this.on_event(JSON.parse(message.data));
    };
    socket.onclose = () => { if (socket === this.socket) this.lost(opened); };
  }

  // At once, whatever was waited for.
  again() {
    clearTimeout(this.timer);
    const before = this.socket;
    this.socket = null;
    before?.close();
    this.open();
  }

  async control(message) {
    const headers = { "Content-Type": "application/json", ...this.authority() };
    const reply = await fetch("/v1/control", { method: "POST", headers, body: JSON.stringify(message), cache: "no-store" });
    const answer = await reply.json();
    if (reply.status === 401) this.on_state("locked", answer.error);
    if (answer.error) throw new Error(answer.note ? `${answer.error}: ${answer.note}` : answer.error);
    return answer;
  }

  authority() { return this.token ? { Authorization: `Bearer ${this.token}` } : {}; }

  // A refused WebSocket does not say why; a request does.
  async lost(opened) {
    this.socket = null;
    if (!opened && (await this.refused())) return this.tell("locked");
    this.tell("lost", `again in ${Math.ceil(this.wait / 1000)} s`);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), this.wait);
    this.wait = Math.min(2 * this.wait, kLongestWait);
  }

  async refused() {
    try {
      const reply = await fetch("/v1/status", { headers: this.authority(), cache: "no-store" });
      return reply.status === 401;
    } catch {
      return false;  // nobody is there
    }
  }

  // One that neither closes nor says anything.
  watch() {
    const since = Math.max(this.heard, this.begun ?? 0);
    if (this.socket && performance.now() - since > kSilence && !document.hidden) this.again();
  }

  tell(state, detail = "") {
    if (state === this.state && !detail) return;
    this.state = state;
    this.on_state(state, detail);
  }
}

/**
 * A host of MCP Apps that allows an app only what the specification (2026-01-26) has, and records every fault.
 *
 * `host.open(html, options)` shows an app in a frame with the strictest sandbox and content policy that there may be.
 * Calls of tools go to `/call` of the test, which has a client of the server.
 */

const POLICY = [
  "default-src 'none'",
  "script-src 'self' 'unsafe-inline'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "connect-src 'none'",
  "frame-src 'none'",
  "object-src 'none'",
  "base-uri 'self'",
].join("; ");

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isSize = (value) => Number.isInteger(value) && value > 0;

const REQUESTS = {
  "ui/initialize": ({ protocolVersion, appInfo, appCapabilities }) =>
    protocolVersion === "2026-01-26" &&
    typeof appInfo?.name === "string" &&
    typeof appInfo?.version === "string" &&
    isObject(appCapabilities),
  "ui/request-display-mode": ({ mode }, { hostContext }) => hostContext.availableDisplayModes?.includes(mode),
  "tools/call": (params) =>
    Object.keys(params).sort().join() === "arguments,name" && typeof params.name === "string" && isObject(params.arguments),
};

const NOTIFICATIONS = {
  "ui/notifications/initialized": isObject,
  "ui/notifications/size-changed": ({ width, height }) => isSize(width) && isSize(height),
};

class Host {
  faults = [];
  calls = [];
  sizes = [];

  open(html, { hostContext = {}, hostCapabilities = { serverTools: {} } } = {}) {
    this.close();
    Object.assign(this, { hostContext, hostCapabilities, stage: "new", faults: [], calls: [], sizes: [] });
    this.pending = new Map();
    this.usedIds = new Set();
    this.frame = document.createElement("iframe");
    this.frame.id = "view";
    this.frame.setAttribute("sandbox", "allow-scripts");
    this.frame.srcdoc = html.replace("<head>", `<head><meta http-equiv="Content-Security-Policy" content="${POLICY}">`);
    this.listener = ({ source, data }) => source === this.frame.contentWindow && this.receive(data);
    window.addEventListener("message", this.listener);
    document.body.append(this.frame);
  }

  close() {
    if (this.frame === undefined) return;
    window.removeEventListener("message", this.listener);
    this.frame.remove();
    this.frame = undefined;
  }

  send(message) {
    this.frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
  }

  notify(method, params) {
    if (this.stage !== "ready") throw new Error(`the host may not send ${method} before the app is initialized`);
    this.send({ method, params });
  }

  /** Send the app a request, and return its response. */
  request(method, params = {}) {
    return new Promise((resolve) => {
      const id = `host-${this.pending.size + 1}`;
      this.pending.set(id, resolve);
      this.send({ id, method, params });
    });
  }

  changeContext(changes) {
    Object.assign(this.hostContext, changes);
    this.notify("ui/notifications/host-context-changed", changes);
  }

  showResult(input, result) {
    this.notify("ui/notifications/tool-input", { arguments: input });
    this.notify("ui/notifications/tool-result", result);
  }

  fault(text, message) {
    this.faults.push(`${text}: ${JSON.stringify(message)}`);
  }

  receive(message) {
    if (!isObject(message) || message.jsonrpc !== "2.0") this.fault("no JSON-RPC message", message);
    else if (message.method === undefined) this.receiveResponse(message);
    else if (message.id === undefined) this.receiveNotification(message);
    else this.receiveRequest(message);
  }

  receiveResponse(message) {
    const resolve = this.pending.get(message.id);
    if (resolve === undefined || (message.result === undefined) === (message.error === undefined)) this.fault("a stray response", message);
    else resolve(message);
  }

  receiveNotification(message) {
    const check = NOTIFICATIONS[message.method];
    if (!check?.(message.params)) this.fault("not a notification of an app", message);
    if (message.method === "ui/notifications/initialized") {
      if (this.stage !== "answered") this.fault("initialized at the wrong time", message);
      this.stage = "ready";
    } else if (this.stage !== "ready") this.fault("too early", message);
    if (message.method === "ui/notifications/size-changed") {
      this.sizes.push(message.params);
      this.frame.style.height = `${message.params.height}px`;
    }
  }

  async receiveRequest(message) {
    const { id, method, params } = message;
    if (!["number", "string"].includes(typeof id) || this.usedIds.has(id)) this.fault("the id is no number or text, or in use", message);
    this.usedIds.add(id);
    if (!isObject(params) || !REQUESTS[method]?.(params, this)) this.fault("not a request of an app", message);
    if ((method === "ui/initialize") !== (this.stage === "new")) this.fault("at the wrong time", message);
    const { frame } = this;
    const result = await this.handle(method, params);
    if (this.frame === frame) this.send({ id, result });
    if (method === "ui/initialize") this.stage = "answered";
  }

  async handle(method, params) {
    if (method === "ui/initialize") {
      const { hostCapabilities, hostContext } = this;
      return { protocolVersion: "2026-01-26", hostInfo: { name: "tests", version: "1" }, hostCapabilities, hostContext };
    }
    if (method === "ui/request-display-mode") {
      this.hostContext.displayMode = params.mode;
      this.frame.style.height = params.mode === "fullscreen" ? "95vh" : "";
      return { mode: params.mode };
    }
    this.calls.push(params);
    return (await fetch("/call", { method: "POST", body: JSON.stringify(params) })).json();
  }
}

window.host = new Host();

/**
 * The page that a host shows as an MCP App (version 2026-01-26): it finds the handle in the result of a tool, and shows
 * the viewer for that output. Everything goes through the host: JSON-RPC over postMessage, and no other request.
 */
import { createViewer, formatBytes, parseResult } from "../viewer/viewer.js";

const PROTOCOL_VERSION = "2026-01-26";
const METHOD_NOT_FOUND = -32601;
const APP_FAILED = -32000;

/** The height of the page with a viewer, if the host leaves it to the app. */
const INLINE_HEIGHT = 600;

const EXPIRY_FORMAT = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });

/** The viewer's colours and fonts, and the host's variables that replace them if the host sets them. */
const HOST_VARIABLES = {
  "--fb-bg": "--color-background-primary",
  "--fb-panel": "--color-background-primary",
  "--fb-raised": "--color-background-secondary",
  "--fb-line": "--color-border-primary",
  "--fb-fg": "--color-text-primary",
  "--fb-muted": "--color-text-secondary",
  "--fb-sans": "--font-sans",
  "--fb-mono": "--font-mono",
};

/** Colours that are only right together: text of the host on a background of ours may be invisible. */
const REQUIRED_VARIABLES = ["--color-background-primary", "--color-text-primary"];

const page = document.documentElement;
const [head, summary, fullscreen, outline, root] = ["head", "summary", "fullscreen", "outline", "app"].map((id) =>
  document.getElementById(id),
);
const { tools: toolNames, version } = JSON.parse(document.getElementById("settings").textContent);

const sizeObserver = new ResizeObserver(reportSize);
const context = {};
let capabilities = {};
let toolInput = {};
let viewer = null;

/** Exchange JSON-RPC messages with the host: the page around this frame. */
function connectHost(requestHandlers, notificationHandlers) {
  const pending = new Map();
  let lastId = 0;
  const post = (message) => window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");

  async function answer({ id, method, params }) {
    const handler = requestHandlers.get(method);
    if (handler === undefined) {
      post({ id, error: { code: METHOD_NOT_FOUND, message: `Method not found: ${method}` } });
      return;
    }
    try {
      post({ id, result: await handler(params ?? {}) });
    } catch (error) {
      post({ id, error: { code: APP_FAILED, message: String(error.message) } });
    }
  }

  function settle({ id, result, error }) {
    const request = pending.get(id);
    pending.delete(id);
    if (error) request?.reject(new Error(error.message));
    else request?.resolve(result);
  }

  window.addEventListener("message", ({ source, data }) => {
    if (source !== window.parent || data?.jsonrpc !== "2.0") return;
    if (data.method === undefined) settle(data);
    else if (data.id !== undefined) answer(data);
    else notificationHandlers.get(data.method)?.(data.params ?? {});
  });

  return {
    notify: (method, params) => post({ method, params }),
    request: (method, params) =>
      new Promise((resolve, reject) => {
        const id = (lastId += 1);
        pending.set(id, { resolve, reject });
        post({ id, method, params });
      }),
  };
}

const host = connectHost(
  new Map([
    ["ping", () => ({})],
    ["ui/resource-teardown", tearDown],
  ]),
  new Map([
    ["ui/notifications/tool-input", (params) => (toolInput = params.arguments ?? {})],
    ["ui/notifications/tool-result", showResult],
    ["ui/notifications/tool-cancelled", ({ reason }) => showText("The call was cancelled.", reason)],
    ["ui/notifications/host-context-changed", applyContext],
  ]),
);

// What is shown.

function showResult(result) {
  const output = result.isError ? null : findOutput(result);
  if (output === null) {
    const texts = (result.content ?? []).filter((block) => block.type === "text").map((block) => readError(block.text));
    showText(result.isError ? "The call failed." : "This result was not stored.", texts.join("\n"));
    return;
  }
  const { handle, descriptor } = output;
  closeViewer();
  summary.textContent = summarize(descriptor) || handle;
  outline.textContent = outline.title = descriptor.outline ?? "";
  head.hidden = false;
  viewer = createViewer(root, call, {
    handle,
    descriptor,
    state: toolInput.output_handle === undefined ? {} : readState(toolInput),
    canQuery: toolNames.output_query !== undefined,
  });
}

/** Return the handle in a result, and its descriptor: that of a stored result, or what a page says. */
function findOutput({ structuredContent, content = [] }) {
  const texts = content.filter((block) => block.type === "text").map((block) => tryParse(block.text));
  const found = [structuredContent, ...texts].find((value) => typeof value?.output_handle === "string");
  if (found === undefined) return null;
  return { handle: found.output_handle, descriptor: found.size_bytes === undefined ? {} : found };
}

/** Return the view that shows what the arguments of output_fetch ask for. */
function readState({ format, path, offset, where, fields }) {
  const state = { format, path, offset, where: where && JSON.stringify(where), fields: fields?.join(", ") };
  return Object.fromEntries(Object.entries(state).filter(([, value]) => value !== undefined && value !== null));
}

function summarize({ size_bytes: size, item_count: count, mime_type: type, expires_at: expiry }) {
  const expiryTime = Date.parse(expiry);
  const parts = [
    Number.isInteger(count) && `${count.toLocaleString("en")} items`,
    size !== undefined && formatBytes(size),
    type,
    !Number.isNaN(expiryTime) && `until ${EXPIRY_FORMAT.format(expiryTime)}`,
  ];
  return parts.filter(Boolean).join(" · ");
}

function showText(title, text = "") {
  closeViewer();
  head.hidden = true;
  const message = document.createElement("h1");
  const details = document.createElement("pre");
  message.textContent = title;
  details.textContent = text;
  root.replaceChildren(message, ...(text ? [details] : []));
}

function closeViewer() {
  viewer?.destroy();
  viewer = null;
  root.className = "";
}

function tearDown() {
  sizeObserver.disconnect();
  closeViewer();
  return {};
}

// Calls of tools.

/** Call a tool of the server through the host; its name may have a prefix there. */
async function call(tool, args) {
  if (capabilities.serverTools === undefined) throw new Error("This host does not let apps call tools of the server.");
  const result = await host.request("tools/call", { name: toolNames[tool], arguments: args });
  const text = result.content?.find((block) => block.type === "text")?.text ?? "";
  if (!result.isError) return parseResult(text);
  const details = tryParse(text)?.error ?? {};
  throw Object.assign(new Error(details.message ?? (text || `${tool} failed`)), { details });
}

function readError(text) {
  return tryParse(text)?.error?.message ?? text;
}

function tryParse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// The host's look, and the size of the page.

function applyContext(changes) {
  Object.assign(context, changes);
  const variables = context.styles?.variables ?? {};
  page.style.colorScheme = ["light", "dark"].includes(context.theme) ? context.theme : "";
  const isComplete = REQUIRED_VARIABLES.every((name) => variables[name]);
  for (const [own, name] of Object.entries(HOST_VARIABLES)) {
    if (isComplete && variables[name]) page.style.setProperty(own, variables[name]);
    else page.style.removeProperty(own);
  }
  const { height, maxHeight } = context.containerDimensions ?? {};
  const isFullscreen = context.displayMode === "fullscreen";
  page.toggleAttribute("data-fills", isFullscreen || height !== undefined);
  page.style.setProperty("--app-height", `${Math.min(INLINE_HEIGHT, maxHeight ?? INLINE_HEIGHT)}px`);
  fullscreen.hidden = !context.availableDisplayModes?.includes(isFullscreen ? "inline" : "fullscreen");
  fullscreen.textContent = isFullscreen ? "Exit full screen" : "Full screen";
}

async function toggleFullscreen() {
  const mode = context.displayMode === "fullscreen" ? "inline" : "fullscreen";
  const result = await host.request("ui/request-display-mode", { mode });
  // The host decides, and may answer with another mode.
  applyContext({ displayMode: result.mode });
}

function reportSize() {
  if (page.hasAttribute("data-fills")) return;
  const height = Math.ceil(document.body.getBoundingClientRect().height);
  host.notify("ui/notifications/size-changed", { width: Math.ceil(window.innerWidth), height });
}

/** Submit a form by its button, also where the host's sandbox blocks forms: there the browser sends no submit event. */
function submitByButton(event) {
  const form = event.target.closest("button:not([type='button'])")?.form;
  if (!form) return;
  event.preventDefault();
  form.dispatchEvent(new SubmitEvent("submit", { cancelable: true }));
}

async function start() {
  const initialized = await host.request("ui/initialize", {
    protocolVersion: PROTOCOL_VERSION,
    appInfo: { name: "forebay", title: "Stored output", version },
    appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
  });
  capabilities = initialized.hostCapabilities ?? {};
  applyContext(initialized.hostContext ?? {});
  host.notify("ui/notifications/initialized", {});
  sizeObserver.observe(document.body);
}

document.addEventListener("click", submitByButton);
fullscreen.addEventListener("click", () => toggleFullscreen().catch(() => {}));
showText("Waiting for the result…");
start().catch((error) => showText("The host did not accept this app.", error.message));

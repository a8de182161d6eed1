/**
 * A host made of the protocol's own packages: `Client` for the server, `AppBridge` for the app in a sandbox of another
 * origin. `window.host.run(options)` calls a tool and shows its app, as the host of a conversation would.
 */
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { AppBridge, PostMessageTransport, RESOURCE_MIME_TYPE, getToolUiResourceUri } from "@modelcontextprotocol/ext-apps/app-bridge";

const INFO = { name: "forebay-apps", version: "1" };
const EXTENSIONS = { "io.modelcontextprotocol/ui": { mimeTypes: [RESOURCE_MIME_TYPE] } };

class Host {
  errors = [];
  sizes = [];

  async connect(server, sandbox, { showsApps = true } = {}) {
    this.sandbox = sandbox;
    this.client = new Client(INFO, { capabilities: showsApps ? { extensions: EXTENSIONS } : {} });
    await this.client.connect(new StreamableHTTPClientTransport(new URL(server)));
    const { tools } = await this.client.listTools();
    this.tools = new Map(tools.map((tool) => [tool.name, tool]));
    return tools.map((tool) => [tool.name, getToolUiResourceUri(tool) ?? null]);
  }

  async run(name, args, hostContext = {}) {
    const tool = this.tools.get(name);
    const uri = getToolUiResourceUri(tool);
    const [{ contents }, result] = await Promise.all([
      this.client.readResource({ uri }),
      this.client.callTool({ name, arguments: args }),
    ]);
    const [{ text: html, mimeType, _meta: meta }] = contents;
    if (mimeType !== RESOURCE_MIME_TYPE) throw new Error(`the app is ${mimeType}`);
    const { csp, permissions } = meta.ui;
    const frame = await this.openSandbox();
    this.bridge = new AppBridge(this.client, INFO, { serverTools: {} }, { hostContext: { toolInfo: { tool }, ...hostContext } });
    this.bridge.onerror = (error) => this.errors.push(String(error));
    this.bridge.onsizechange = (size) => {
      this.sizes.push(size);
      frame.style.height = `${size.height}px`;
    };
    this.bridge.onrequestdisplaymode = async ({ mode }) => {
      this.bridge.setHostContext({ ...hostContext, displayMode: mode });
      return { mode };
    };
    const initialized = new Promise((resolve) => (this.bridge.oninitialized = resolve));
    await this.bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
    await this.bridge.sendSandboxResourceReady({ html, csp, permissions });
    await initialized;
    await this.bridge.sendToolInput({ arguments: args });
    await this.bridge.sendToolResult(result);
    return { result, app: this.bridge.getAppVersion(), capabilities: this.bridge.getAppCapabilities() };
  }

  openSandbox() {
    this.frame?.remove();
    const frame = document.createElement("iframe");
    frame.id = "sandbox";
    frame.setAttribute("sandbox", "allow-scripts allow-same-origin");
    const ready = new Promise((resolve) => {
      const listener = ({ source, data }) => {
        if (source !== frame.contentWindow || data?.method !== "ui/notifications/sandbox-proxy-ready") return;
        window.removeEventListener("message", listener);
        resolve(frame);
      };
      window.addEventListener("message", listener);
    });
    frame.src = this.sandbox;
    document.body.append(frame);
    this.frame = frame;
    return ready;
  }

  setContext(hostContext) {
    this.bridge.setHostContext(hostContext);
  }

  tearDown() {
    return this.bridge.teardownResource({});
  }
}

window.host = new Host();

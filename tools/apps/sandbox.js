/** The page between a host and an app, on an origin of its own: it shows the app, and passes messages on. */

const view = document.createElement("iframe");
view.id = "view";
view.setAttribute("sandbox", "allow-scripts");
document.body.append(view);

function show({ html, csp = {}, permissions = {} }) {
  const list = (domains, fallback = "") => (domains?.length ? domains.join(" ") : fallback);
  const resources = list(csp.resourceDomains);
  const policy = [
    "default-src 'none'",
    `script-src 'self' 'unsafe-inline' ${resources}`,
    `style-src 'self' 'unsafe-inline' ${resources}`,
    `img-src 'self' data: ${resources}`,
    `connect-src ${list(csp.connectDomains, "'none'")}`,
    `frame-src ${list(csp.frameDomains, "'none'")}`,
    "object-src 'none'",
    `base-uri ${list(csp.baseUriDomains, "'self'")}`,
  ].join("; ");
  view.allow = permissions.clipboardWrite ? "clipboard-write" : "";
  view.srcdoc = html.replace("<head>", `<head><meta http-equiv="Content-Security-Policy" content="${policy}">`);
}

window.addEventListener("message", ({ source, data }) => {
  if (source === view.contentWindow) window.parent.postMessage(data, "*");
  else if (source !== window.parent) return;
  else if (data.method === "ui/notifications/sandbox-resource-ready") show(data.params);
  else view.contentWindow.postMessage(data, "*");
});

window.parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} }, "*");

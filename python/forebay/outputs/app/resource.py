"""The resource `ui://forebay/…`, an HTML page that a host shows beside the results of a tool."""

import functools
import re
from collections.abc import Mapping
from typing import Any

import orjson

import forebay
from forebay.wire.lazy_json import LazyJSON

__all__ = ["EXTENSION_KEY", "MIME_TYPE", "ViewerApp", "declares_apps", "is_app_uri"]

EXTENSION_KEY = "io.modelcontextprotocol/ui"
"""The key of MCP Apps among the extensions in the capabilities of clients and servers."""

MIME_TYPE = "text/html;profile=mcp-app"
"""The MIME type of apps. A host lists it in its capabilities."""

_URI_PREFIX = "ui://forebay/"

_STYLES = ("outputs/viewer/viewer.css", "outputs/app/app.css")
_SCRIPTS = ("outputs/viewer/viewer.js", "outputs/app/app.js")

# The page loads nothing, so it needs no domain. The lists are explicit, because some hosts allow more without them.
_RESOURCE_META = {
    "ui": {
        "csp": {"connectDomains": [], "resourceDomains": [], "frameDomains": [], "baseUriDomains": []},
        "permissions": {"clipboardWrite": {}},
        "prefersBorder": True,
    }
}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Stored output</title>
<style>
{style}
</style>
</head>
<body>
<header id="head" hidden>
<h1 id="summary"></h1>
<button type="button" id="fullscreen" hidden></button>
<code id="outline"></code>
</header>
<main id="app"></main>
<script type="application/json" id="settings">{settings}</script>
<script type="module">
{script}
</script>
</body>
</html>
"""

_IMPORT = re.compile(r"^import\b[^;]*;\n", re.MULTILINE)


def declares_apps(capabilities: object) -> bool:
    """Return whether the capabilities of a client say that it shows apps in HTML."""
    value: Any = capabilities
    for key in ("extensions", EXTENSION_KEY, "mimeTypes"):
        if isinstance(value, LazyJSON) and value.is_object:
            # Large: a client decides what else is in it, so only this member is looked at.
            value = value.members((key,)).get(key)
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    mime_types = value.parse() if isinstance(value, LazyJSON) else value
    return isinstance(mime_types, list) and MIME_TYPE in mime_types


def is_app_uri(uri: object) -> bool:
    """Return whether a URI is that of an app of forebay: of this one, or of another one behind it."""
    return isinstance(uri, str) and uri.startswith(_URI_PREFIX)


class ViewerApp:
    """The viewer for stored outputs, as a resource.

    `tool_names` are the names under which the server lists the tools that the viewer calls. They are part of the page.
    The name of `output_fetch` is also part of the URI, so that two servers with forebay, one behind the other, have
    different URIs.
    """

    def __init__(self, tool_names: Mapping[str, str]) -> None:
        self._tool_names = dict(tool_names)
        self.uri = _URI_PREFIX + tool_names["output_fetch"]

    def add_to_tool(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        """Return a tool's definition with this app for its results, unless the tool has an app of its own."""
        meta = definition.get("_meta") or {}
        if not isinstance(meta, Mapping) or "ui" in meta or "ui/resourceUri" in meta:
            return dict(definition)
        return {**definition, "_meta": {**meta, "ui": {"resourceUri": self.uri}}}

    def define_resource(self) -> dict[str, Any]:
        """Return the definition for `resources/list`."""
        return {
            "uri": self.uri,
            "name": "output_viewer",
            "description": "Viewer for stored outputs: outline, pages, search and queries",
            "mimeType": MIME_TYPE,
            "_meta": _RESOURCE_META,
        }

    def read(self) -> dict[str, Any]:
        """Return the result of `resources/read`."""
        # No name can end the element early: a prefix has no `<`.
        settings = orjson.dumps({"version": forebay.__version__, "tools": self._tool_names}).decode()
        style, script = _read_sources()
        page = _PAGE.format(style=style, settings=settings, script=script)
        return {"contents": [{"uri": self.uri, "mimeType": MIME_TYPE, "text": page, "_meta": _RESOURCE_META}]}


@functools.cache
def _read_sources() -> tuple[str, str]:
    """Return the style and the script of the page, each from several files."""
    import importlib.resources

    package = importlib.resources.files("forebay")
    viewer, app = (package.joinpath(name).read_text("utf-8") for name in _SCRIPTS)
    # The page has one script, in which nothing is imported. A block keeps the names of one file apart from the other's.
    script = f"{viewer}\n{{\n{_IMPORT.sub('', app)}}}"
    return "\n".join(package.joinpath(name).read_text("utf-8") for name in _STYLES), script

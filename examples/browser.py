"""A simulated browser for a small site in memory. Each public method of `Browser` is a tool."""

import base64
import hashlib
import hmac
import json
import struct
from typing import Any

HOME = "https://example.com/"

SITE: dict[str, dict[str, Any]] = {
    HOME: {
        "title": "Example Domain",
        "text": "This domain is for use in documentation examples without needing permission.",
        "links": {"More information…": "https://example.com/info"},
        "fields": {},
    },
    "https://example.com/info": {
        "title": "Information",
        "text": "Domains that are reserved for documentation may not be registered.",
        "links": {"Home": HOME, "Contact": "https://example.com/contact"},
        "fields": {},
    },
    "https://example.com/contact": {
        "title": "Contact",
        "text": "Write to us.",
        "links": {"Home": HOME},
        "fields": {"name": "", "message": ""},
    },
}

CAPABILITIES = {
    "storage": ["cookies", "storage"],
    "profile": ["list_profiles", "oc_profile_status"],
    "crawl": ["crawl", "crawl_sitemap", "batch_execute", "batch_paginate", "worker_update", "worker_complete"],
    "recording": ["oc_recording_start", "oc_recording_stop", "oc_recording_list", "oc_recording_export"],
    "workflow": [
        "workflow_init",
        "workflow_status",
        "workflow_collect",
        "workflow_collect_partial",
        "workflow_cleanup",
        "execute_plan",
    ],
    "totp": ["oc_totp_generate"],
}

RECORDED_TOOLS = {"navigate", "read_page", "interact"}


class BrowserError(Exception):
    """An error whose message the model reads."""


class Browser:
    """The browser's state and tools. Tools that `CAPABILITIES` does not list belong to `core`."""

    def __init__(self) -> None:
        self._url = HOME
        self._past: list[str] = []
        self._future: list[str] = []
        self._tabs = [HOME]
        self._fields: dict[str, str] = {}
        self._requests: list[dict[str, Any]] = []
        self._settings: dict[str, Any] = {}
        self._memory: dict[str, str] = {}
        self._cookies: dict[str, str] = {}
        self._local_storage: dict[str, str] = {}
        self._checkpoints: dict[str, str] = {}
        self._recordings: dict[str, list[dict[str, Any]]] = {}
        self._recording: str | None = None
        self._workflows: dict[str, dict[str, str]] = {}
        self._workers: dict[str, dict[str, Any]] = {}

    # Pages

    def navigate(self, url: str) -> dict[str, Any]:
        """Open a page by its address."""
        self._past.append(self._url)
        return self._open(url)

    def read_page(self) -> dict[str, Any]:
        """The address, title and text of the open page."""
        return {"url": self._url, "title": self._page["title"], "text": self._page["text"]}

    def query_dom(self, selector: str) -> list[str]:
        """Elements of the open page: a for its links, input for its fields, title."""
        return {"a": [*self._page["links"]], "input": [*self._page["fields"]], "title": [self._page["title"]]}.get(
            selector, []
        )

    def find(self, text: str) -> dict[str, Any]:
        """Find a text on the open page."""
        return {"offset": self._page["text"].find(text)}

    def inspect(self, element: str) -> dict[str, Any]:
        """Return the target of a link or the value of a field."""
        return {"href": self._page["links"].get(element), "value": self._fields.get(element)}

    def interact(self, element: str) -> dict[str, Any]:
        """Click a link of the open page."""
        if element not in self._page["links"]:
            raise BrowserError(f"there is no {element!r} on this page; query_dom says which links it has")
        self._past.append(self._url)
        return self._open(self._page["links"][element])

    def computer(self, x: int, y: int) -> dict[str, Any]:
        """Click at a point: links stand below each other, twenty pixels apart."""
        links = [*self._page["links"]]
        return self.interact(links[y // 20]) if 0 <= y // 20 < len(links) and x >= 0 else self._summarize_page()

    def act(self, instruction: str) -> dict[str, Any]:
        """Do what a short instruction says: 'click Home', 'back'."""
        verb, _, element = instruction.partition(" ")
        return self.page_back() if verb == "back" else self.interact(element)

    def fill_form(self, values: dict[str, str]) -> dict[str, str]:
        """Fill in fields of the open page."""
        for name, value in values.items():
            self.form_input(name, value)
        return self._fields

    def form_input(self, name: str, value: str) -> dict[str, str]:
        """Fill in one field of the open page."""
        if name not in self._page["fields"]:
            raise BrowserError(f"there is no field {name!r} on this page")
        self._fields[name] = value
        return {name: value}

    def javascript_tool(self, expression: str) -> Any:
        """The value of document.title, location.href or document.links.length."""
        values = {"document.title": self._page["title"], "location.href": self._url}
        return {**values, "document.links.length": len(self._page["links"])}.get(expression)

    def page_content(self) -> str:
        """The open page as HTML."""
        links = "".join(f'<a href="{href}">{text}</a>' for text, href in self._page["links"].items())
        return f"<title>{self._page['title']}</title><p>{self._page['text']}</p>{links}"

    def page_title(self) -> str:
        """The title of the open page."""
        return str(self._page["title"])

    def page_reload(self) -> dict[str, Any]:
        """Open the page again."""
        return self._open(self._url)

    def page_back(self) -> dict[str, Any]:
        """Go to the page before."""
        if self._past:
            self._future.append(self._url)
            self._open(self._past.pop())
        return self._summarize_page()

    def page_forward(self) -> dict[str, Any]:
        """Undo page_back."""
        return self._open(self._future.pop()) if self._future else self._summarize_page()

    def screenshot(self) -> str:
        """A picture of the open page, in characters."""
        return f"+{'-' * 40}+\n|{self._page['title']:^40}|\n+{'-' * 40}+"

    def tabs_create(self, url: str = HOME) -> list[str]:
        """Open a page in a new tab."""
        self._open(url)
        self._tabs.append(url)
        return self._tabs

    def tabs_list(self) -> list[str]:
        """The pages of all tabs."""
        return self._tabs

    def tabs_close(self, index: int) -> list[str]:
        """Close a tab."""
        if not 0 <= index < len(self._tabs):
            raise BrowserError(f"there is no tab {index}; there are {len(self._tabs)}")
        del self._tabs[index]
        return self._tabs

    # Sessions and evidence

    def oc_connection_health(self) -> dict[str, Any]:
        """Whether the browser answers."""
        return {"connected": True, "requests": len(self._requests)}

    def oc_session_snapshot(self) -> dict[str, Any]:
        """Save the state of the session."""
        return {"url": self._url, "past": self._past, "fields": self._fields}

    def oc_session_resume(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Restore a saved session."""
        self._past = list(snapshot.get("past", []))
        return self._open(str(snapshot.get("url", HOME)))

    def oc_assert(self, url: str | None = None, text: str | None = None) -> dict[str, Any]:
        """Whether the open page has this address and this text."""
        holds = (url is None or url == self._url) and (text is None or text in self._page["text"])
        return {"verdict": "pass" if holds else "fail"}

    def oc_evidence_bundle(self) -> dict[str, Any]:
        """The open page and what led to it."""
        return {"page": self.read_page(), "requests": self._requests}

    def oc_checkpoint(self, name: str) -> dict[str, str]:
        """Remember the open page under a name."""
        self._checkpoints[name] = self._url
        return self._checkpoints

    def wait_for(self, text: str) -> dict[str, bool]:
        """Whether a text is on the open page; nothing of it loads later."""
        return {"found": text in self._page["text"]}

    def console_capture(self) -> list[str]:
        """List console messages of the pages."""
        return [f"loaded {request['url']}" for request in self._requests]

    def validate_page(self) -> dict[str, Any]:
        """Links of the open page that lead nowhere."""
        return {"broken": [text for text, href in self._page["links"].items() if href not in SITE]}

    # Network and settings

    def request_intercept(self, pattern: str) -> dict[str, Any]:
        """Requests so far with this in their address."""
        return {"matched": [request for request in self._requests if pattern in request["url"]]}

    def network(self, count: int = 10) -> list[dict[str, Any]]:
        """The last requests."""
        return self._requests[-count:]

    def network_clear(self) -> dict[str, int]:
        """Forget the requests so far."""
        count = len(self._requests)
        self._requests.clear()
        return {"cleared": count}

    def emulate_device(self, width: int, height: int) -> dict[str, Any]:
        """Set the size of the window."""
        return self._change_setting("window", [width, height])

    def file_upload(self, field: str, path: str) -> dict[str, str]:
        """Put the name of a file into a field."""
        return self.form_input(field, path)

    def drag_drop(self, source: str, target: str) -> dict[str, Any]:
        """Drag an element onto another one."""
        return self._change_setting("dragged", [source, target])

    def http_auth(self, user: str) -> dict[str, Any]:
        """Set the user for HTTP authentication."""
        return self._change_setting("user", user)

    def user_agent(self, value: str) -> dict[str, Any]:
        """Set the browser's User-Agent header."""
        return self._change_setting("user_agent", value)

    def geolocation(self, latitude: float, longitude: float) -> dict[str, Any]:
        """Set the browser's location."""
        return self._change_setting("geolocation", [latitude, longitude])

    def lightweight_scroll(self, pixels: int) -> dict[str, Any]:
        """Scroll the open page."""
        return self._change_setting("scrolled", int(self._settings.get("scrolled", 0)) + pixels)

    def memory(self, key: str, value: str | None = None) -> dict[str, str | None]:
        """Remember a value under a key, or recall it."""
        if value is not None:
            self._memory[key] = value
        return {key: self._memory.get(key)}

    def extract_data(self, fields: list[str]) -> dict[str, Any]:
        """Fields of the open page: title, text, url, links."""
        page = {**self.read_page(), "links": self._page["links"]}
        return {field: page.get(field) for field in fields}

    def performance_metrics(self) -> dict[str, int]:
        """Measure the size of the open page."""
        return {"bytes": len(self.page_content().encode()), "links": len(self._page["links"])}

    # Tools that most agents do not need

    def cookies(self, name: str | None = None, value: str | None = None) -> dict[str, str]:
        """Read all cookies of the open site, or set one of them to a value."""
        if name is not None and value is not None:
            self._cookies[name] = value
        return self._cookies

    def storage(self, key: str | None = None, value: str | None = None) -> dict[str, str]:
        """Read what the open site keeps in local storage, or set a key of it to a value."""
        if key is not None and value is not None:
            self._local_storage[key] = value
        return self._local_storage

    def list_profiles(self) -> list[dict[str, Any]]:
        """List the profiles that the browser can be started with, and which of them is in use."""
        return [{"name": "default", "is_active": True}, {"name": "guest", "is_active": False}]

    def oc_profile_status(self, name: str = "default") -> dict[str, Any]:
        """Whether a profile is in use, and how many cookies and keys of local storage it holds."""
        return {"name": name, "cookies": len(self._cookies), "storage": len(self._local_storage)}

    def crawl(self, url: str, max_pages: int = 30, max_depth: int = 3) -> dict[str, Any]:
        """Follow links from a page, breadth first, and return the text of every page that was found on the way."""
        found: dict[str, int] = {}
        waiting = [(url, 0)]
        while waiting and len(found) < max_pages:
            here, depth = waiting.pop(0)
            if here in SITE and here not in found and depth <= max_depth:
                found[here] = depth
                waiting += [(href, depth + 1) for href in SITE[here]["links"].values()]
        return {"pages": [{"url": here, "depth": depth, "text": SITE[here]["text"]} for here, depth in found.items()]}

    def crawl_sitemap(self, url: str = HOME, limit: int = 100) -> dict[str, Any]:
        """List the addresses of a site's map that begin with this one, without opening any of the pages."""
        return {"urls": [here for here in SITE if here.startswith(url)][:limit]}

    def batch_execute(self, urls: list[str], expression: str) -> list[Any]:
        """Open several pages one after the other, and evaluate the same expression on each of them."""
        return [self._open(url) and self.javascript_tool(expression) for url in urls]

    def batch_paginate(self, url: str, element: str, max_pages: int = 10) -> list[dict[str, Any]]:
        """Open a page and click the same element again and again, as long as there is one, reading each page."""
        self._open(url)
        read = [self.read_page()]
        while len(read) < max_pages and element in self._page["links"]:
            self.interact(element)
            read.append(self.read_page())
        return read

    def worker_update(self, worker: str, progress: float, note: str = "") -> dict[str, Any]:
        """Report the progress of a batch worker, between 0 and 1, with an optional note for the caller."""
        self._workers[worker] = {"progress": progress, "note": note}
        return self._workers

    def worker_complete(self, worker: str, result: str) -> dict[str, Any]:
        """Report that a batch worker is done, with its result for the caller who collects it."""
        self._workers[worker] = {"progress": 1.0, "result": result}
        return self._workers

    def oc_recording_start(self, name: str) -> dict[str, str]:
        """Start a recording under a name: the pages that are opened and read, and the elements that are clicked."""
        self._recordings[name] = []
        self._recording = name
        return {"recording": name}

    def oc_recording_stop(self) -> dict[str, Any]:
        """End the recording that was begun, and say how many steps it has."""
        name, self._recording = self._recording, None
        return {"recorded": name, "steps": len(self._recordings.get(name or "", []))}

    def oc_recording_list(self) -> dict[str, int]:
        """List all recordings by name, with how many steps each of them has."""
        return {name: len(steps) for name, steps in self._recordings.items()}

    def oc_recording_export(self, name: str) -> dict[str, Any]:
        """Export a recording: its steps in order, each with the tool that was called and its arguments."""
        if name not in self._recordings:
            raise BrowserError(f"there is no recording {name!r}; oc_recording_list says which there are")
        return {"name": name, "steps": self._recordings[name]}

    def workflow_init(self, name: str, urls: list[str]) -> dict[str, Any]:
        """Begin a workflow of several pages under a name; each page waits until it is collected."""
        self._workflows[name] = dict.fromkeys(urls, "waiting")
        return {"workflow": name, "pages": len(urls)}

    def workflow_status(self, name: str) -> dict[str, str]:
        """Say of each page of a workflow whether it waits or was collected."""
        return self._workflow(name)

    def workflow_collect(self, name: str) -> list[dict[str, Any]]:
        """Read all pages of a workflow that still wait, and mark them as collected."""
        return self.workflow_collect_partial(name, len(self._workflow(name)))

    def workflow_collect_partial(self, name: str, count: int) -> list[dict[str, Any]]:
        """Read as many pages of a workflow as are asked for, of those that still wait, and mark them as collected."""
        waiting = [url for url, state in self._workflow(name).items() if state == "waiting"][:count]
        self._workflows[name] |= dict.fromkeys(waiting, "collected")
        return [self._open(url) for url in waiting]

    def workflow_cleanup(self, name: str) -> dict[str, bool]:
        """Forget a workflow, whether or not all of its pages were collected."""
        return {"removed": self._workflows.pop(name, None) is not None}

    def execute_plan(self, steps: list[dict[str, str]], stop_on_error: bool = True) -> list[dict[str, Any]]:
        """Do several steps in a row: each opens a page by 'navigate' or clicks an element by 'interact'."""
        results: list[dict[str, Any]] = []
        for step in steps:
            try:
                opens = "navigate" in step
                results.append(self.navigate(step["navigate"]) if opens else self.interact(step["interact"]))
            except (BrowserError, KeyError) as error:
                results.append({"error": str(error)})
                if stop_on_error:
                    break
        return results

    def oc_totp_generate(self, secret: str, time: int, digits: int = 6) -> dict[str, str]:
        """Generate a one-time password from a secret in base32 and a time in seconds, as RFC 6238 has it."""
        key = base64.b32decode(secret, casefold=True)
        digest = hmac.digest(key, struct.pack(">Q", time // 30), "sha1")
        number = struct.unpack_from(">I", digest, digest[-1] & 15)[0] & 0x7FFFFFFF
        return {"code": str(number % 10**digits).zfill(digits)}

    # Shared by the tools

    @property
    def _page(self) -> dict[str, Any]:
        return SITE[self._url]

    def _open(self, url: str) -> dict[str, Any]:
        if url not in SITE:
            raise BrowserError(f"there is no page {url!r}; crawl_sitemap or query_dom say which there are")
        self._url = url
        self._fields = dict(self._page["fields"])
        self._requests.append({"url": url, "etag": hashlib.sha256(json.dumps(SITE[url]).encode()).hexdigest()[:12]})
        return self._summarize_page()

    def _summarize_page(self) -> dict[str, Any]:
        return {"url": self._url, "title": self._page["title"]}

    def _change_setting(self, name: str, value: Any) -> dict[str, Any]:
        self._settings[name] = value
        return self._settings

    def _workflow(self, name: str) -> dict[str, str]:
        if name not in self._workflows:
            raise BrowserError(f"there is no workflow {name!r}; begin it with workflow_init")
        return self._workflows[name]

    def record(self, tool: str, arguments: dict[str, Any]) -> None:
        """Append a step to the current recording, if there is one."""
        if self._recording is not None and tool in RECORDED_TOOLS:
            self._recordings[self._recording].append({"tool": tool, "arguments": arguments})

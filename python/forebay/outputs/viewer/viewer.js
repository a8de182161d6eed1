/**
 * The viewer of a stored output: it reads, searches and queries the output in pages, however large the output is.
 *
 * `call(tool, arguments)` is its only way to data. It calls output_fetch, output_search or output_query, resolves to
 * the result as `parseResult` returns it, and rejects with an Error whose message a person can read; its `details` may
 * have the `tables` and the `example` of a failed query. Data only ever becomes text of the page, never markup.
 */

/** How much to ask for at once; the server sends less where a page would be too large. */
const PAGE_SIZES = { items: 100, lines: 400, text: 16384, bytes: 4096, matches: 50 };

/** Pages to keep; those far outside of the view are dropped beyond this number. */
const MAX_PAGES = 8;

const MAX_CELL_CHARS = 160;
/** Characters of an object or a list in a cell: beyond them, only the number of the other members is shown. */
const MAX_NESTED_CHARS = 34;
const MAX_NESTED_TEXT_CHARS = 24;
/** Items with more keys than this are not shown in columns: most of the cells would be empty. */
const MAX_COLUMNS = 200;
/** Maximum number of steps of a path that are buttons. */
const MAX_CRUMBS = 20;
const MAX_TREE_NODES = 2000;
const CONTEXT_BYTES = 120;
const HEX_ROW_BYTES = 16;

const START_STATE = Object.freeze({
  view: "read",
  format: "auto",
  path: "",
  where: "",
  fields: "",
  offset: 0,
  pattern: "",
  regex: false,
  ignore_case: false,
  mode: "text",
  sql: "",
});

const KEYS = [
  ["j / k", "next or previous row"],
  ["Enter", "show all of a row or a cell, or open a match"],
  ["g", "go to an offset"],
  ["/", "search"],
  ["q", "query in SQL"],
  ["r", "read"],
  ["c", "copy the call that reads the same"],
  ["?", "show or hide these keys"],
];

/** A number whose digits JavaScript cannot hold, such as a long id. */
class ExactNumber {
  constructor(source) {
    this.source = source;
  }

  toString() {
    return this.source;
  }

  valueOf() {
    return Number(this.source);
  }
}

/** Parse the JSON of a result, and keep the digits of every number where the browser can. */
export function parseResult(text) {
  return JSON.parse(text, (_key, value, context) =>
    typeof value === "number" && context?.source !== undefined && String(value) !== context.source
      ? new ExactNumber(context.source)
      : value,
  );
}

/**
 * Show a viewer in `root`, replacing what is there.
 *
 * `descriptor` is what is known of the output. Further options: `state`, the view to begin with;
 * `onState(state, isStep)`, called when it changes, by a step that one may want to undo or by scrolling; `canQuery`,
 * whether there is output_query. Returns `{show(state), destroy()}`.
 */
export function createViewer(root, call, { handle, descriptor = {}, state = {}, onState = () => {}, canQuery = true }) {
  const viewer = new Viewer(root, call, { handle, descriptor, onState, canQuery });
  viewer.show(state);
  return { show: (changes) => viewer.show(changes), destroy: () => viewer.destroy() };
}

class Viewer {
  constructor(root, call, { handle, descriptor, onState, canQuery }) {
    Object.assign(this, { root, call, handle, onState });
    // Only items can be queried, and only JSON has values to decode.
    this.canQuery = canQuery && descriptor.item_count !== null;
    this.hasValues = /json|^$/.test(descriptor.mime_type ?? "");
    // A text or bytes have no paths, and no items to select from.
    this.hasPaths = this.hasValues || descriptor.item_count !== null || Boolean(descriptor.outline);
    this.opensAsLines = !this.hasPaths && descriptor.line_count > 1;
    this.state = { ...START_STATE };
    this.lastCall = null;
    this.list = null;
    this.runs = 0;
    this.onKey = (event) => this.handleKey(event);
    this.build();
    document.addEventListener("keydown", this.onKey);
  }

  destroy() {
    this.runs += 1;
    this.list?.close();
    document.removeEventListener("keydown", this.onKey);
    this.root.replaceChildren();
  }

  // The frame: tabs, forms, status, content and position.

  build() {
    const views = [["read", "Read"], ["search", "Search"], ...(this.canQuery ? [["query", "Query"]] : [])];
    this.tabs = views.map(([view, text]) =>
      el("button", { type: "button", class: "fb-tab", "data-view": view, onclick: () => this.choose(view) }, text),
    );
    this.forms = { read: this.buildReadForm(), search: this.buildSearchForm(), query: this.buildQueryForm() };
    this.crumbs = el("nav", { class: "fb-crumbs", "aria-label": "Breadcrumbs" });
    this.status = el("p", { class: "fb-status", role: "status" });
    this.body = el("div", { class: "fb-body", tabindex: "0", role: "region", "aria-label": "Content" });
    this.copyButton = el(
      "button",
      {
        type: "button",
        class: "fb-small",
        title: "Copy the call that reads the same (c)",
        onclick: () => this.copyCall(),
      },
      "Copy call",
    );
    this.slider = el("input", {
      type: "range",
      class: "fb-slider",
      min: "0",
      "aria-label": "Position",
      onchange: () => this.jump(Number(this.slider.value)),
    });
    this.position = el("span", { class: "fb-position" });
    this.goTo = el("input", {
      type: "number",
      min: "0",
      class: "fb-goto",
      "aria-label": "Go to offset",
      placeholder: "go to",
    });
    this.foot = el(
      "form",
      {
        class: "fb-foot",
        onsubmit: (event) => this.submit(event, () => this.jump(Number(this.goTo.value), this.body)),
      },
      this.position,
      this.slider,
      this.goTo,
      el("button", { class: "fb-small" }, "Go"),
    );
    this.help = el(
      "dl",
      { class: "fb-help", hidden: true },
      ...KEYS.flatMap(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)]),
    );
    this.root.classList.add("fb-viewer");
    this.root.replaceChildren(
      el("div", { class: "fb-tabs", role: "group", "aria-label": "View" }, ...this.tabs),
      ...Object.values(this.forms),
      this.help,
      this.crumbs,
      el("div", { class: "fb-line" }, this.status, this.copyButton),
      this.body,
      this.foot,
    );
  }

  buildReadForm() {
    const formats = ["auto", "items", "lines", "text", "bytes"].map((name) => el("option", { value: name }, name));
    this.format = el("select", { onchange: () => this.submitRead() }, ...formats);
    this.path = el("input", { placeholder: "such as /rows/3", spellcheck: "false", autocapitalize: "off" });
    this.where = el("input", {
      placeholder: 'such as {"status": "failed"}',
      spellcheck: "false",
      autocapitalize: "off",
    });
    this.fields = el("input", { placeholder: "such as id, user.name", spellcheck: "false", autocapitalize: "off" });
    this.selectors = [
      label("Path", this.path, "fb-grow"),
      label("Where", this.where, "fb-grow"),
      label("Fields", this.fields, "fb-grow"),
    ];
    return el(
      "form",
      {
        class: "fb-form",
        "aria-label": "Read",
        onsubmit: (event) => this.submit(event, () => this.submitRead()),
      },
      label("Format", this.format),
      ...this.selectors,
      el("button", {}, "Read"),
    );
  }

  buildSearchForm() {
    this.pattern = el("input", {
      type: "search",
      placeholder: "text to find",
      spellcheck: "false",
      autocapitalize: "off",
    });
    this.regex = el("input", { type: "checkbox" });
    this.ignoreCase = el("input", { type: "checkbox" });
    this.values = el("input", { type: "checkbox" });
    return el(
      "form",
      {
        class: "fb-form",
        "aria-label": "Search",
        onsubmit: (event) => this.submit(event, () => this.submitSearch()),
      },
      label("Find", this.pattern, "fb-grow"),
      check("regular expression", this.regex),
      check("ignore case", this.ignoreCase),
      this.hasValues && check("decoded values", this.values),
      el("button", {}, "Search"),
    );
  }

  buildQueryForm() {
    this.sql = el("textarea", {
      rows: "3",
      placeholder: "such as SELECT status, count(*) FROM items GROUP BY 1",
      spellcheck: "false",
    });
    this.sql.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.submit(event, () => this.submitQuery());
    });
    return el(
      "form",
      {
        class: "fb-form",
        "aria-label": "Query",
        onsubmit: (event) => this.submit(event, () => this.submitQuery()),
      },
      label("SQL (DuckDB); the table is named items", this.sql, "fb-grow"),
      el("button", { title: "Ctrl+Enter" }, "Run"),
    );
  }

  submit(event, run) {
    event.preventDefault();
    run();
  }

  submitRead() {
    this.show({
      view: "read",
      format: this.format.value,
      path: this.path.value.trim(),
      where: this.where.value.trim(),
      fields: this.fields.value.trim(),
      offset: 0,
    });
  }

  submitSearch() {
    this.show({
      view: "search",
      pattern: this.pattern.value,
      regex: this.regex.checked,
      ignore_case: this.ignoreCase.checked,
      mode: this.values.checked ? "values" : "text",
    });
  }

  submitQuery() {
    this.show({ view: "query", sql: this.sql.value.trim() });
  }

  choose(view) {
    this.show({ view });
    const input = { search: this.pattern, query: this.sql }[view];
    (input ?? this.body).focus();
  }

  /** Show what a state asks for; what `changes` does not name stays as it is. */
  async show(changes) {
    this.state = { ...this.state, ...changes };
    const { state } = this;
    const run = (this.runs += 1);
    this.list?.close();
    this.list = null;
    this.lastCall = null;
    for (const tab of this.tabs) tab.setAttribute("aria-pressed", String(tab.dataset.view === state.view));
    for (const [view, form] of Object.entries(this.forms)) form.hidden = view !== state.view;
    this.format.value = state.format;
    this.path.value = state.path;
    this.where.value = state.where;
    this.fields.value = state.fields;
    // What an address sets can be removed, even where it cannot apply.
    const isUsed = state.path !== "" || state.where !== "" || state.fields !== "";
    for (const selector of this.selectors) selector.hidden = !this.hasPaths && !isUsed;
    this.pattern.value = state.pattern;
    this.regex.checked = state.regex;
    this.ignoreCase.checked = state.ignore_case;
    this.values.checked = state.mode === "values";
    this.sql.value = state.sql;
    this.showCrumbs();
    // While the next page of the same kind is read, who moves the slider by keys stays on it.
    this.foot.hidden ||= state.view !== "read";
    this.copyButton.hidden = true;
    this.body.setAttribute("aria-busy", "true");
    this.onState({ ...state }, true);
    try {
      await { read: () => this.read(run), search: () => this.search(run), query: () => this.query(run) }[state.view]();
    } catch (error) {
      if (run === this.runs) this.showError(error);
    } finally {
      if (run === this.runs) this.body.removeAttribute("aria-busy");
    }
  }

  showCrumbs() {
    const { path, view } = this.state;
    this.crumbs.hidden = view !== "read" || path === "";
    const steps = path.split("/");
    const crumb = (text, target) =>
      el("button", { type: "button", class: "fb-link", onclick: () => this.openPath(target) }, text);
    const first = Math.max(1, steps.length - MAX_CRUMBS + 1);
    this.crumbs.replaceChildren(
      crumb("whole output", ""),
      ...steps
        .slice(first)
        .map((step, index) => crumb(unescapeStep(step), steps.slice(0, first + index + 1).join("/"))),
    );
  }

  openPath(path, changes = {}) {
    this.show({ view: "read", format: "auto", path, where: "", fields: "", offset: 0, ...changes });
    this.body.focus();
  }

  showError(error) {
    const details = error.details ?? {};
    this.foot.hidden = true;
    this.status.textContent = "";
    const tables = Object.entries(details.tables ?? {}).map(([name, columns]) =>
      el("li", {}, el("code", {}, `${name} ${columns}`)),
    );
    this.body.replaceChildren(
      el(
        "div",
        { class: "fb-error", role: "alert" },
        el("p", {}, error.message),
        tables.length > 0 && el("ul", {}, ...tables),
        details.example && el("p", {}, "An example: ", el("code", {}, details.example)),
      ),
    );
  }

  showNote(text, ...more) {
    this.body.append(el("p", { class: "fb-note" }, text, ...more));
  }

  /** Call a tool, and remember the call, so that it can be copied. */
  async request(tool, args) {
    const sent = Object.fromEntries(Object.entries(args).filter(([, value]) => value !== undefined));
    this.lastCall ??= { tool, arguments: sent };
    return this.call(tool, sent);
  }

  async copyCall() {
    if (this.lastCall === null) return;
    const copied = await copyText(JSON.stringify(this.lastCall));
    this.copyButton.textContent = copied ? "Copied" : "Cannot copy here";
    setTimeout(() => (this.copyButton.textContent = "Copy call"), 1500);
  }

  // Read.

  /** Return the format to ask for: of a text, lines have numbers that a person can go to. */
  chooseFormat() {
    const { format, path } = this.state;
    return format === "auto" && path === "" && this.opensAsLines ? "lines" : format;
  }

  readArguments(changes) {
    const { path, where, fields } = this.state;
    const format = this.chooseFormat();
    let conditions;
    try {
      conditions = where === "" ? undefined : JSON.parse(where);
    } catch {
      throw new Error('Where is a JSON object of conditions, such as {"status": "failed", "total": {">": 200}}');
    }
    return {
      output_handle: this.handle,
      format: format === "auto" ? undefined : format,
      path: path === "" ? undefined : path,
      where: conditions,
      fields: fields === "" ? undefined : fields.split(",").map((name) => name.trim()),
      ...changes,
    };
  }

  async read(run) {
    const started = performance.now();
    const { offset } = this.state;
    const limit = PAGE_SIZES[this.chooseFormat()];
    const first = await this.request("output_fetch", this.readArguments({ offset, limit }));
    if (run !== this.runs) return;
    const milliseconds = performance.now() - started;
    this.copyButton.hidden = false;
    this.body.scrollTop = 0;
    if (first.encoding === "json" && first.format !== "items") {
      this.foot.hidden = true;
      this.status.textContent = `a value of ${formatBytes(first.total)}${formatTime(milliseconds)}`;
      this.body.replaceChildren(el("div", { class: "fb-value" }, this.makeTree(first.content, this.state.path)));
      return;
    }
    const renderer = this.makeRenderer(first);
    this.body.replaceChildren(renderer.container);
    const size = PAGE_SIZES[first.format];
    const load = async (start, limit) => {
      const args = this.readArguments({ format: first.format, offset: start, limit });
      return this.makePage(await this.request("output_fetch", args), renderer);
    };
    this.unit = first.unit;
    this.total = Number(first.total);
    this.status.textContent = `${formatCount(this.total, this.unit)}${formatTime(milliseconds)}`;
    this.showPosition();
    this.startList(renderer.container, load, size, this.makePage(first, renderer));
    if (this.total === 0) this.showNote(first.hint ?? "There is nothing here.");
    else if (first.hint) this.body.prepend(el("p", { class: "fb-note" }, first.hint));
  }

  startList(container, load, size, first) {
    this.list = new EndlessList(this.body, container, load, size, {
      onError: (error) => this.showNote(error.message),
      onMove: (start) => this.showPosition(start),
    });
    this.list.add(first);
    this.list.fill();
  }

  makePage(page, renderer) {
    if (page.format === "bytes") alignBytes(page);
    const element = renderer.render(page);
    return { start: Number(page.offset), next: page.next_offset, element };
  }

  makeRenderer(page) {
    if (page.format === "items") return new ItemTable(this, page);
    if (page.format === "lines") return new LineTable(this);
    if (page.format === "bytes") return new HexDump();
    return new PlainText();
  }

  showPosition(start = this.state.offset) {
    const isLong = this.total > 1 && this.state.view === "read";
    this.foot.hidden = !isLong;
    if (!isLong) return;
    this.slider.max = String(this.total - 1);
    this.slider.value = String(start);
    this.goTo.max = String(this.total - 1);
    this.position.textContent = `from ${{ bytes: "byte ", lines: "line " }[this.unit] ?? "#"}${formatNumber(start)}`;
    this.slider.setAttribute("aria-valuetext", `${formatNumber(start)} of ${formatCount(this.total, this.unit)}`);
    if (start !== this.state.offset) {
      this.state = { ...this.state, offset: start };
      this.onState({ ...this.state }, false);
    }
  }

  jump(offset, focused = null) {
    if (Number.isFinite(offset)) this.show({ offset: Math.max(0, Math.min(offset, this.total - 1)) });
    focused?.focus();
  }

  /** Read what was cut because it alone is larger than a page. */
  readCut(readWith) {
    const { path = "", format = "auto", offset = 0 } = readWith;
    this.show({ view: "read", path, format, offset: Number(offset), where: "", fields: "" });
  }

  makeCutNote(cut) {
    const text = `Only the beginning is shown: it takes ${formatBytes(cut.size_bytes)}. `;
    if (!cut.read_with) return el("p", { class: "fb-note" }, text);
    const open = () => this.readCut(cut.read_with);
    return el(
      "p",
      { class: "fb-note" },
      text,
      el("button", { type: "button", class: "fb-small", onclick: open }, "Read all of it"),
    );
  }

  makeRest(page) {
    const paths = page.not_in_items?.paths;
    if (!paths) return null;
    const links = Object.entries(paths).map(([path, size]) =>
      el(
        "button",
        { type: "button", class: "fb-link", onclick: () => this.openPath(path) },
        `${path} (${formatBytes(size)})`,
      ),
    );
    return el("p", { class: "fb-note" }, "Besides the items: ", ...links);
  }

  /** Return a JSON value as a tree of elements, with a button on each inner value that opens it by its path. */
  makeTree(value, path) {
    const budget = { nodes: MAX_TREE_NODES };
    return el("div", { class: "fb-tree" }, ...this.makeNode(value, path, budget, 0, []));
  }

  makeNode(value, path, budget, depth, label) {
    budget.nodes -= 1;
    if (value === null || typeof value !== "object" || value instanceof ExactNumber)
      return [...label, makeScalar(value)];
    const isList = Array.isArray(value);
    const keys = isList ? value.keys() : Object.keys(value);
    const count = isList ? value.length : Object.keys(value).length;
    const [open, close] = isList ? "[]" : "{}";
    if (count === 0) return [...label, el("span", { class: "fb-punct" }, open + close)];
    const rows = [];
    for (const key of keys) {
      if (budget.nodes <= 0) {
        rows.push(el("li", { class: "fb-note" }, "… more than fits here; open it by its path"));
        break;
      }
      const name = el("span", { class: isList ? "fb-punct" : "fb-key" }, String(key));
      const childPath = path === null ? null : `${path}/${escapeStep(String(key))}`;
      rows.push(el("li", {}, ...this.makeNode(value[key], childPath, budget, depth + 1, [name, " "])));
    }
    const attributes = { type: "button", class: "fb-open", "aria-label": `Open ${path}`, title: `Open ${path}` };
    const opener =
      path !== null && depth > 0 && el("button", { ...attributes, onclick: () => this.openPath(path) }, "↗");
    const size = el("span", { class: "fb-punct" }, `${open} ${formatNumber(count)} ${close}`);
    return [opener, el("details", { open: depth < 3 }, el("summary", {}, ...label, size), el("ul", {}, ...rows))];
  }

  // Search.

  async search(run) {
    const { pattern, regex, ignore_case: ignoreCase, mode } = this.state;
    if (pattern === "") {
      this.status.textContent = "";
      this.body.replaceChildren(el("p", { class: "fb-note" }, "Type a text, and press Enter."));
      return;
    }
    const started = performance.now();
    const list = el("ol", { class: "fb-matches" });
    const load = async (offset) => {
      const args = {
        output_handle: this.handle,
        pattern,
        regex: regex || undefined,
        ignore_case: ignoreCase || undefined,
        mode: mode === "text" ? undefined : mode,
        offset: offset || undefined,
        limit: PAGE_SIZES.matches,
      };
      // Without context, an expression says what it matched.
      const wanted = this.request("output_search", { ...args, context: CONTEXT_BYTES });
      const [page, plain] = await Promise.all([
        wanted,
        regex ? this.call("output_search", dropUndefined({ ...args, context: 0 })) : null,
      ]);
      const texts = new Map((plain?.matches ?? []).map((match) => [Number(match.byte_offset), match.match]));
      const rows = page.matches.map((match) =>
        this.makeMatch(match, regex ? texts.get(Number(match.byte_offset)) : pattern, ignoreCase),
      );
      return { page, start: Number(page.offset), next: page.next_offset, elements: rows };
    };
    const wrap = async (offset) => {
      const loaded = await load(offset);
      return { ...loaded, element: el("li", { class: "fb-page" }, el("ol", {}, ...loaded.elements)) };
    };
    const first = await wrap(0);
    if (run !== this.runs) return;
    const total = Number(first.page.total_matches);
    const atLeast = first.page.total_is_lower_bound ? "at least " : "";
    this.status.textContent = `${atLeast}${formatCount(total, "matches")}${formatTime(performance.now() - started)}`;
    this.copyButton.hidden = false;
    this.body.scrollTop = 0;
    this.body.replaceChildren(...(total === 0 ? [] : [list]));
    if (total === 0) this.showNote(`Nothing was found in ${first.page.searched ?? "this output"}.`);
    else this.startList(list, wrap, PAGE_SIZES.matches, first);
  }

  makeMatch(match, needle, ignoreCase) {
    const place = [];
    if (typeof match.item === "number") place.push(`#${formatNumber(match.item)}`);
    if (match.line !== undefined) place.push(`line ${formatNumber(match.line)}`);
    if (match.path !== undefined) place.push(match.path || "/");
    if (place.length === 0) place.push(`byte ${formatNumber(match.byte_offset)}`);
    const text = match.context ?? match.match ?? "";
    return el(
      "li",
      { class: "fb-match fb-row", tabindex: "-1" },
      el("button", { type: "button", class: "fb-link", onclick: () => this.openMatch(match) }, place.join(" · ")),
      text === "" ? el("code", { class: "fb-null" }, "binary") : el("code", {}, ...highlight(text, needle, ignoreCase)),
    );
  }

  openMatch(match) {
    const start = { view: "read", path: "", where: "", fields: "" };
    if (typeof match.item === "number") this.show({ ...start, format: "items", offset: match.item });
    else if (match.line !== undefined) this.show({ ...start, format: "lines", offset: match.line });
    else this.show({ ...start, format: "text", offset: Math.max(0, Number(match.byte_offset) - CONTEXT_BYTES) });
    this.body.focus();
  }

  // Query.

  async query(run) {
    const { sql } = this.state;
    if (sql === "") {
      this.status.textContent = "";
      this.body.replaceChildren(el("p", { class: "fb-note" }, "Type one SELECT, and press Ctrl+Enter."));
      return;
    }
    const result = await this.request("output_query", { output_handle: this.handle, sql });
    if (run !== this.runs) return;
    const count = result.row_count === null ? "many" : formatNumber(result.row_count);
    const shown = result.truncated ? `the first ${formatNumber(result.rows.length)} of ` : "";
    this.status.textContent = `${shown}${count} ${count === "1" ? "row" : "rows"}${formatTime(Number(result.ms))}`;
    this.copyButton.hidden = false;
    this.body.scrollTop = 0;
    const columns = result.columns.map(({ name, type }, index) =>
      makeHead(
        name,
        result.rows.map((row) => row[index]),
        type,
      ),
    );
    const head = el("tr", {}, ...columns, makeFiller());
    const rows = result.rows.map((values) => {
      const row = el("tr", { class: "fb-row", tabindex: "-1" });
      const detail = new RowDetail(row, values.length + 1);
      // A result of a query has no path in the output.
      const open = (value, button) => detail.toggle(button, () => el("div", { class: "fb-detail" }, this.makeTree(value, null)));
      row.append(...values.map((value) => makeCell(value, { open })), makeFiller());
      return row;
    });
    this.body.replaceChildren(el("table", { class: "fb-table" }, el("thead", {}, head), el("tbody", {}, ...rows)));
    if (result.hint) this.showNote(result.hint);
  }

  // Keys.

  handleKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.root.isConnected) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") this.body.focus();
      return;
    }
    const actions = {
      j: () => this.moveRow(1),
      k: () => this.moveRow(-1),
      g: () => !this.foot.hidden && this.goTo.focus(),
      "/": () => this.choose("search"),
      q: () => this.canQuery && this.choose("query"),
      r: () => this.choose("read"),
      c: () => this.copyCall(),
      "?": () => (this.help.hidden = !this.help.hidden),
      Enter: () => event.target.classList?.contains("fb-row") && event.target.querySelector("button")?.click(),
    };
    const action = Object.hasOwn(actions, event.key) ? actions[event.key] : null;
    if (action === null || (event.key === "Enter" && !event.target.classList?.contains("fb-row"))) return;
    event.preventDefault();
    action();
  }

  moveRow(step) {
    const rows = [...this.body.querySelectorAll(".fb-row")];
    if (rows.length === 0) return;
    const current = rows.indexOf(document.activeElement?.closest(".fb-row"));
    const top = this.body.getBoundingClientRect().top;
    const visible = rows.findIndex((row) => row.getBoundingClientRect().bottom > top + 40);
    const row = rows[current < 0 ? Math.max(visible, 0) : Math.max(0, Math.min(current + step, rows.length - 1))];
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }
}

/** A list that loads its next pages while a person scrolls, in either direction, and drops those far away. */
class EndlessList {
  constructor(scroller, container, load, pageSize, { onError, onMove }) {
    Object.assign(this, { scroller, container, load, pageSize, onError, onMove });
    this.pages = [];
    this.starts = [];
    this.isBusy = false;
    this.isClosed = false;
    this.onScroll = () => this.fill();
    scroller.addEventListener("scroll", this.onScroll, { passive: true });
  }

  close() {
    this.isClosed = true;
    this.scroller.removeEventListener("scroll", this.onScroll);
  }

  add(page) {
    this.pages.push(page);
    this.container.append(page.element);
    this.remember(page.start);
  }

  remember(start) {
    if (!this.starts.includes(start)) this.starts.push(start);
  }

  async fill() {
    this.report();
    if (this.isBusy) return;
    this.isBusy = true;
    try {
      while (!this.isClosed && (await this.extend()));
    } catch (error) {
      if (!this.isClosed) this.onError(error);
      this.close();
    } finally {
      this.isBusy = false;
    }
  }

  /** Tell where the first visible row, or else the first visible page, starts. */
  report() {
    if (this.isClosed) return;
    // The head of a table stays above the rows.
    const head = this.container.querySelector("thead th");
    const top = head ? head.getBoundingClientRect().bottom : this.scroller.getBoundingClientRect().top;
    const isVisible = (element) => element.getBoundingClientRect().bottom > top + 1;
    const page = this.pages.find(({ element }) => isVisible(element));
    if (!page) return;
    const row = [...page.element.querySelectorAll("[data-offset]")].find(isVisible);
    this.onMove(row ? Number(row.dataset.offset) : page.start);
  }

  /** Load one page where the view comes near an end. Return whether there may be more to load. */
  async extend() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const first = this.pages[0];
    const last = this.pages.at(-1);
    if (last.next !== null && scrollHeight - scrollTop - clientHeight < clientHeight) {
      const page = await this.load(Number(last.next), this.pageSize);
      if (this.isClosed) return false;
      this.add(page);
      this.dropFirst();
      return true;
    }
    if (first.start > 0 && scrollTop < clientHeight / 2) {
      await this.prepend(first.start);
      return true;
    }
    return false;
  }

  async prepend(end) {
    const known = this.starts.filter((start) => start < end);
    let start = known.length > 0 ? Math.max(...known) : Math.max(0, end - this.pageSize);
    const pages = [];
    while (start < end) {
      const page = await this.load(start, Math.min(this.pageSize, end - start));
      if (this.isClosed) return;
      pages.push(page);
      if (page.next === null || page.next <= start) break;
      start = Number(page.next);
    }
    const before = this.scroller.scrollHeight;
    this.pages[0].element.before(...pages.map(({ element }) => element));
    this.pages.unshift(...pages);
    for (const page of pages) this.remember(page.start);
    this.scroller.scrollTop += this.scroller.scrollHeight - before;
    this.dropLast();
  }

  dropFirst() {
    const view = this.scroller.getBoundingClientRect();
    while (
      this.pages.length > MAX_PAGES &&
      this.pages[0].element.getBoundingClientRect().bottom < view.top - 2 * view.height
    ) {
      const before = this.scroller.scrollHeight;
      this.pages.shift().element.remove();
      this.scroller.scrollTop -= before - this.scroller.scrollHeight;
    }
  }

  dropLast() {
    const view = this.scroller.getBoundingClientRect();
    while (
      this.pages.length > MAX_PAGES &&
      this.pages.at(-1).element.getBoundingClientRect().top > view.bottom + 2 * view.height
    ) {
      this.pages.pop().element.remove();
    }
  }
}

/** Items as rows of a table, with a column for each key of the first ones. */
class ItemTable {
  constructor(viewer, page) {
    this.viewer = viewer;
    this.path = viewer.state.path;
    this.itemsPath = page.items_path ?? "";
    const objects = page.content.filter((item) => isObject(item));
    const keys = [...new Set(objects.flatMap(Object.keys))];
    const hasColumns = keys.length > 0 && keys.length <= MAX_COLUMNS && objects.length * 2 >= page.content.length;
    this.columns = hasColumns ? keys : null;
    const heads = this.columns?.map((name) =>
      makeHead(
        name,
        objects.map((item) => item[name]),
      ),
    ) ?? [makeHead("value", page.content)];
    const head = el("tr", {}, el("th", { scope: "col", class: "fb-numeric" }, "#"), ...heads, makeFiller());
    this.container = el("table", { class: "fb-table" }, el("thead", {}, head));
  }

  render(page) {
    const body = el("tbody", {});
    page.content.forEach((item, index) => {
      const offset = Number(page.offset) + index;
      const number = page.item_numbers?.[index] ?? offset;
      body.append(this.makeRow(item, number, offset));
      const cut = page.truncated?.find((entry) => entry.index === number);
      if (cut) body.append(this.makeWide(this.viewer.makeCutNote(cut)));
    });
    const rest = this.viewer.makeRest(page);
    if (rest) body.append(this.makeWide(rest));
    return body;
  }

  makeRow(item, number, offset) {
    const row = el("tr", { class: "fb-row", tabindex: "-1", "data-offset": String(offset) });
    const detail = new RowDetail(row, (this.columns?.length ?? 1) + 2);
    const path = this.makePath(item, number);
    const openAt = (inner) => (value, opener) => detail.toggle(opener, () => this.makeDetail(value, inner));
    const cells =
      this.columns === null || !isObject(item)
        ? [makeCell(item, { span: this.columns?.length, open: openAt(path) })]
        : this.columns.map((key) =>
            Object.hasOwn(item, key)
              ? makeCell(item[key], { open: openAt(`${path}/${escapeStep(key)}`) })
              : el("td", {}),
          );
    const button = el(
      "button",
      { type: "button", class: "fb-number", "aria-expanded": "false", "aria-label": `Item ${number}` },
      formatNumber(number),
    );
    row.append(el("th", { scope: "row" }, button), ...cells, makeFiller());
    const toggle = () => detail.toggle(button, () => this.makeDetail(item, path));
    button.addEventListener("click", toggle);
    row.addEventListener("click", (event) => {
      if (!event.target.closest("button") && String(getSelection()) === "") toggle();
    });
    return row;
  }

  makePath(item, number) {
    const step = isObject(item) && Object.hasOwn(item, "_key") ? escapeStep(String(item._key)) : String(number);
    return `${this.path}${this.itemsPath}/${step}`;
  }

  /** Return an item, or a value in it, as a tree, with buttons to open it by its path and to copy it. */
  makeDetail(value, path) {
    // With fields, a value has only some of its members, and their paths are not those of the whole value.
    const tree = this.viewer.makeTree(value, this.viewer.state.fields === "" ? path : null);
    const open = el("button", { type: "button", class: "fb-small", onclick: () => this.viewer.openPath(path) }, "Open");
    const copy = el(
      "button",
      { type: "button", class: "fb-small", onclick: () => copyText(stringify(value)) },
      "Copy JSON",
    );
    return el("div", { class: "fb-detail" }, el("p", { class: "fb-actions" }, el("code", {}, path), open, copy), tree);
  }

  makeWide(content) {
    return makeWideRow(content, (this.columns?.length ?? 1) + 2);
  }
}

/** What is open below a row of a table: the whole item, or the value of one cell. */
class RowDetail {
  constructor(row, span) {
    Object.assign(this, { row, span, element: null, button: null });
  }

  /** Show what `make` returns, or hide it if `button` has shown it. */
  toggle(button, make) {
    const isOpen = this.button === button;
    this.element?.remove();
    this.button?.setAttribute("aria-expanded", "false");
    this.button = this.element = null;
    if (isOpen) return;
    this.button = button;
    this.element = makeWideRow(make(), this.span);
    button.setAttribute("aria-expanded", "true");
    this.row.after(this.element);
  }
}

class LineTable {
  constructor(viewer) {
    this.viewer = viewer;
    this.container = el("table", { class: "fb-lines" });
  }

  render(page) {
    const body = el("tbody", {});
    const lines = page.content.split("\n");
    if (lines.at(-1) === "" && lines.length > page.returned) lines.pop();
    lines.forEach((line, index) => {
      const number = Number(page.offset) + index;
      const attributes = { class: "fb-row", tabindex: "-1", "data-offset": String(number) };
      body.append(el("tr", attributes, el("th", { scope: "row" }, formatNumber(number)), el("td", {}, line)));
    });
    for (const cut of page.truncated ?? []) {
      body.append(el("tr", {}, el("td", {}), el("td", {}, this.viewer.makeCutNote(cut))));
    }
    return body;
  }
}

class PlainText {
  container = el("pre", { class: "fb-text" });

  render(page) {
    return el("span", {}, page.content);
  }
}

class HexDump {
  container = el("div", { class: "fb-hex" });

  render(page) {
    const bytes = Uint8Array.from(atob(page.content), (character) => character.charCodeAt(0));
    const rows = [];
    for (let start = 0; start < bytes.length; start += HEX_ROW_BYTES) {
      const row = [...bytes.subarray(start, start + HEX_ROW_BYTES)];
      const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
      const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
      const address = (Number(page.offset) + start).toString(16).padStart(8, "0");
      rows.push(`${address}  ${digits.padEnd(HEX_ROW_BYTES * 3 - 1)}  ${text}`);
    }
    return el("pre", {}, rows.join("\n"));
  }
}

/** Cut a page of bytes after whole rows, so that the next page begins with a row. */
function alignBytes(page) {
  const rest = page.returned % HEX_ROW_BYTES;
  if (page.next_offset === null || rest === page.returned) return;
  page.content = btoa(atob(page.content).slice(0, page.returned - rest));
  page.next_offset -= rest;
}

// Elements and texts.

function el(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function label(text, input, className = "") {
  return el("label", { class: `fb-label ${className}` }, el("span", {}, text), input);
}

function check(text, input) {
  return el("label", { class: "fb-check" }, input, text);
}

function makeScalar(value) {
  if (value === null) return el("span", { class: "fb-null" }, "null");
  if (typeof value === "string") return el("span", { class: "fb-string" }, JSON.stringify(value));
  return el("span", { class: "fb-literal" }, String(value));
}

/** Return the head of a column, at the side where its values are. */
function makeHead(name, values, title) {
  const isNumeric =
    values.some(isNumber) && values.every((value) => isNumber(value) || value === null || value === undefined);
  return el("th", { scope: "col", title, class: isNumeric && "fb-numeric" }, name);
}

/** Return a cell that takes the width that no column needs. */
function makeFiller() {
  return el("td", { class: "fb-filler" });
}

function makeWideRow(content, span) {
  return el("tr", { class: "fb-wide" }, el("td", { colspan: String(span) }, content));
}

/** Return a cell. An object or a list is a button that calls `open` with the value and itself. */
function makeCell(value, { span, open }) {
  const attributes = span === undefined ? {} : { colspan: String(span) };
  if (value === null || value === undefined) return el("td", { class: "fb-null", ...attributes }, "null");
  if (isNumber(value)) return el("td", { class: "fb-numeric", ...attributes }, String(value));
  if (typeof value === "string") return el("td", attributes, cut(value));
  if (typeof value === "boolean") return el("td", { class: "fb-literal", ...attributes }, String(value));
  const summary = summarize(value);
  if (countMembers(value) === 0) return el("td", { class: "fb-nested", ...attributes }, summary);
  const button = el(
    "button",
    { type: "button", class: "fb-nested", "aria-expanded": "false", onclick: () => open(value, button) },
    summary,
  );
  return el("td", attributes, button);
}

function countMembers(value) {
  return Array.isArray(value) ? value.length : Object.keys(value).length;
}

/** Return an object or a list in a few words: its first short members, and the number of the others. */
function summarize(value, maxChars = MAX_NESTED_CHARS) {
  const isList = Array.isArray(value);
  const [before, after] = isList ? "[]" : "{}";
  const members = isList
    ? value.slice(0, maxChars).map((inner) => ["", inner])
    : Object.entries(value).sort((one, other) => rankMember(one[1]) - rankMember(other[1]));
  let text = "";
  let shown = 0;
  for (const [name, inner] of members) {
    const key = isList ? "" : `${cut(name, MAX_NESTED_TEXT_CHARS)}: `;
    const part = `${shown === 0 ? "" : ", "}${key}${writeMember(inner, isList && shown === 0)}`;
    if (shown > 0 && text.length + part.length > maxChars) break;
    text += part;
    shown += 1;
  }
  const rest = countMembers(value) - shown;
  return `${before}${text}${rest > 0 ? `, ${formatNumber(rest)} more` : ""}${after}`;
}

/** Short scalars first, then long texts, objects and lists, and nulls last. */
function rankMember(value) {
  if (value === null) return 3;
  if (isObject(value) || Array.isArray(value)) return 2;
  return typeof value === "string" && value.length > MAX_NESTED_TEXT_CHARS ? 1 : 0;
}

/** Return a member of a summary; the first of many objects says what all of them are. */
function writeMember(value, isFirst) {
  if (typeof value === "string") return JSON.stringify(cut(value, MAX_NESTED_TEXT_CHARS));
  if (isObject(value) && isFirst && countMembers(value) > 0) return summarize(value, MAX_NESTED_TEXT_CHARS);
  if (isObject(value)) return `{${formatNumber(countMembers(value))}}`;
  if (Array.isArray(value)) return `[${formatNumber(value.length)}]`;
  return String(value);
}

function isNumber(value) {
  return typeof value === "number" || value instanceof ExactNumber;
}

function cut(text, maxChars = MAX_CELL_CHARS) {
  return text.length > maxChars ? `${text.slice(0, maxChars)}…` : text;
}

/** Return JSON with the digits that the output has. */
function stringify(value) {
  if (value instanceof ExactNumber) return value.source;
  if (Array.isArray(value)) return `[${value.map(stringify).join(", ")}]`;
  if (!isObject(value)) return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([key, inner]) => `${JSON.stringify(key)}: ${stringify(inner)}`)
    .join(", ")}}`;
}

/** Return a text with every occurrence of another one marked. */
function highlight(text, needle, ignoreCase) {
  if (!needle) return [text];
  const [hay, wanted] = ignoreCase ? [text.toLowerCase(), needle.toLowerCase()] : [text, needle];
  // Some characters change their length with their case; positions would be wrong.
  if (hay.length !== text.length) return [text];
  const parts = [];
  let end = 0;
  for (let at = hay.indexOf(wanted); at >= 0; at = hay.indexOf(wanted, end)) {
    parts.push(text.slice(end, at), el("mark", {}, text.slice(at, at + wanted.length)));
    end = at + wanted.length;
  }
  return [...parts, text.slice(end)];
}

function dropUndefined(object) {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof ExactNumber);
}

function isTyping(target) {
  return target instanceof HTMLInputElement
    ? !["checkbox", "range", "button", "submit"].includes(target.type)
    : target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

function escapeStep(step) {
  return step.replaceAll("~", "~0").replaceAll("/", "~1");
}

function unescapeStep(step) {
  return step.replaceAll("~1", "/").replaceAll("~0", "~");
}

const formatter = new Intl.NumberFormat("en");

function formatNumber(value) {
  return formatter.format(Number(value));
}

function formatCount(count, unit) {
  const singular = { items: "item", lines: "line", bytes: "byte", matches: "match" }[unit] ?? unit;
  return unit === "bytes" ? formatBytes(count) : `${formatNumber(count)} ${count === 1 ? singular : unit}`;
}

/** Return a size as the server's pages do: one decimal, in powers of 1,000. */
export function formatBytes(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let value = Number(bytes);
  let index = 0;
  while (value >= (index === 0 ? 1000 : 999.95) && index < units.length - 1) {
    value /= 1000;
    index += 1;
  }
  return `${value.toFixed(index === 0 ? 0 : 1)} ${units[index]}`;
}

function formatTime(milliseconds) {
  return ` · ${formatNumber(Math.max(1, Math.round(milliseconds)))} ms`;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // There is no clipboard in some frames, nor without https beyond this machine.
    return false;
  }
}

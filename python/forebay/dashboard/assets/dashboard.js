/** What the dashboard adds where there is JavaScript: numbers that stay current, keys, and the viewer. */

import { createViewer, parseResult } from "./viewer.js";

const REFRESH_MILLISECONDS = 5000;
const SAVE_STATE_MILLISECONDS = 300;
const SECTIONS = ["figures", "days", "tools", "outputs", "responses", "refusals", "upstreams"];

const viewerRoot = document.getElementById("viewer");
if (viewerRoot) {
  showViewer(viewerRoot);
} else if (document.getElementById("figures")) {
  keepCurrent();
  document.addEventListener("keydown", moveAmongOutputs);
}

// The page of one output.

function showViewer(root) {
  const { handle, descriptor, state, canQuery } = root.dataset;
  let timer = 0;
  // The first state is that of the address.
  let isRestored = true;
  const viewer = createViewer(root, call, {
    handle,
    descriptor: JSON.parse(descriptor),
    state: JSON.parse(state),
    canQuery: canQuery !== undefined,
    onState: (changed, isStep) => {
      clearTimeout(timer);
      const save = () => history.replaceState(changed, "", makeAddress(changed));
      if (!isStep) {
        // Scrolling changes the state often, and browsers limit how often the address may change.
        timer = setTimeout(save, SAVE_STATE_MILLISECONDS);
      } else if (isRestored) {
        isRestored = false;
        save();
      } else {
        history.pushState(changed, "", makeAddress(changed));
      }
    },
  });
  addEventListener("popstate", (event) => {
    if (event.state === null) return;
    isRestored = true;
    viewer.show(event.state);
  });
}

async function call(tool, args) {
  const response = await fetch(`/dashboard/api/${tool}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(args),
  });
  const text = await response.text();
  let result;
  try {
    result = parseResult(text);
  } catch {
    throw new Error(text || `the server answered ${response.status}`);
  }
  if (!response.ok) {
    const { message, ...details } = result.error ?? {};
    throw Object.assign(new Error(typeof message === "string" ? message : `the server answered ${response.status}`), {
      details,
    });
  }
  return result;
}

/** Return the address that shows a state, as the forms of the page without JavaScript make it. */
function makeAddress(state) {
  const { offset, ...others } = state;
  const entries = Object.entries({ ...others, offset: state.view === "read" ? offset : 0 });
  const set = entries.filter(([, value]) => value !== "" && value !== false && value !== 0);
  const parameters = new URLSearchParams(set.map(([name, value]) => [name, value === true ? "on" : value]));
  return `${location.pathname}?${parameters}`;
}

// The first page.

function keepCurrent() {
  setTimeout(async () => {
    if (!document.hidden) await refresh().catch(() => {});
    keepCurrent();
  }, REFRESH_MILLISECONDS);
}

/** Replace the sections that have changed, as the server has written them. */
async function refresh() {
  const response = await fetch(location.href);
  if (response.status === 401) {
    location.reload();
    return;
  }
  if (!response.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const id of SECTIONS) {
    const current = document.getElementById(id);
    const changed = page.getElementById(id);
    if (!current || !changed || current.isEqualNode(changed)) continue;
    // Somebody is working there.
    if (current.contains(document.activeElement) || current.querySelector("details[open]")) continue;
    const scrolled = current.querySelector(".scroll")?.scrollLeft ?? 0;
    current.replaceWith(document.adoptNode(changed));
    const scroller = changed.querySelector(".scroll");
    if (scroller) scroller.scrollLeft = scrolled;
  }
}

function moveAmongOutputs(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLInputElement) return;
  if (event.key !== "j" && event.key !== "k") return;
  const links = [...document.querySelectorAll("#outputs tbody a")];
  const index = links.indexOf(document.activeElement) + (event.key === "j" ? 1 : -1);
  links[Math.max(0, Math.min(index, links.length - 1))]?.focus();
}

// Follows the event stream, shows whether the page is live, and updates the parts of the page that have changed.

import { StreamSource } from "./stream-source.js";
import { showTime } from "./times.js";

const PAUSE = 250; // between two updates, in milliseconds; a page with data-pause is large and waits longer
const RENEWAL = 15_000; // for parts that also change without an entry in the journal, and those that were not loaded
const KEPT = 3; // windows above and below the visible one in which a part of the fleet keeps its tiles

const indicator = document.getElementById("stream");
const outdated = new Set();
let timer = null;
let pending = 0;

function show(state, text) {
  indicator.dataset.state = state;
  indicator.querySelector(".text").replaceChildren(...text);
}

function regions(selector = "[data-live]") {
  return [...document.querySelectorAll(selector)];
}

// data-live is "all", "inventory" or scopes, such as "scope:web scope:shop".
function matches({ dataset: { live, ignores } }, { record_kind: kind, record_id: id, action }) {
  if (live === "all") {
    return true;
  }
  if (live === "inventory") {
    return action.startsWith("scope-") || action.startsWith("vm-");
  }
  // Entries about the fleet and about campaigns are few, and can concern every scope.
  return kind === "scope" ? live.split(" ").includes(`scope:${id}`) : kind !== ignores;
}

// Parts far from the window wait until the reader scrolls to them.
function isNear(region, windows = 1) {
  const { top, bottom } = region.getBoundingClientRect();
  return bottom > -windows * innerHeight && top < (windows + 1) * innerHeight;
}

// Remove the tiles of far parts, so that the document stays small however far the reader scrolls. Headings and heights
// stay; such a part is outdated, and gets its tiles again when it is near. One with the focus or a selection is kept.
function unloadFarParts() {
  for (const part of regions(".part:not([data-unloaded])")) {
    const isUsed = part.contains(document.activeElement) || getSelection().containsNode(part, true);
    if (!isUsed && !isNear(part, KEPT)) {
      part.style.minHeight = `${part.getBoundingClientRect().height}px`;
      part.querySelectorAll("table").forEach((table) => table.remove());
      part.dataset.unloaded = "";
      outdated.add(part);
    }
  }
}

// Update parts of the page, now or as soon as possible: not while the tab is hidden.
export function update(changed = regions()) {
  for (const region of changed) {
    outdated.add(region);
  }
  continueUpdate();
}

function continueUpdate() {
  if (pending > 0 || timer !== null || document.hidden) {
    return;
  }
  for (const region of outdated) {
    if (!region.isConnected || outdated.has(region.parentElement)) {
      outdated.delete(region); // the update of a part has its blocks
    }
  }
  for (const region of outdated) {
    if (isNear(region)) {
      const before = pending;
      htmx.trigger(region, "refresh");
      if (pending > before) {
        outdated.delete(region); // else htmx does not know it yet, as it has just been loaded
      }
    }
  }
  if (pending > 0) {
    const pause = Number(document.querySelector("[data-pause]")?.dataset.pause ?? 0);
    timer = setTimeout(() => {
      timer = null;
      continueUpdate();
    }, Math.max(PAUSE, pause));
  }
}

function receive(message) {
  switch (message.kind) {
    case "entry":
      update(regions().filter((region) => matches(region, message.entry)));
      break;
    case "state":
      if (message.live) {
        show("live", ["Live"]);
        // What has changed between the page and the stream, or while there was none.
        const place = document.querySelector("[data-position]");
        if (place !== null && Number(place.dataset.position) !== message.position) {
          place.dataset.position = message.position;
          update();
        }
      } else if (indicator.dataset.state !== "stale") {
        show("stale", ["Stale since ", showTime(new Date(message.since), "clock")]);
      }
      break;
    case "ended":
      show("stale", ["Signed out"]);
      location.reload(); // leads to the sign-in page
      break;
  }
}

// Connect by the worker that all tabs share. Without one (Chrome on Android), only the visible tab is connected.
function connect({ url, worker }) {
  if (!("SharedWorker" in window)) {
    const source = new StreamSource(url, receive);
    document.addEventListener("visibilitychange", () => (document.hidden ? source.close() : source.reopen()));
    return;
  }
  const { port } = new SharedWorker(worker, { type: "module", name: "forewarn" });
  port.addEventListener("message", ({ data }) => receive(data));
  port.start();
  const join = () => port.postMessage({ kind: "join", url, session: document.body.dataset.session });
  join();
  window.addEventListener("pagehide", () => port.postMessage({ kind: "leave" }));
  window.addEventListener("pageshow", (event) => event.persisted && join());
}

export function followStream() {
  if (indicator === null) {
    return;
  }
  // Counted by the request itself: htmx reports no end for an element that was removed meanwhile.
  document.body.addEventListener("htmx:beforeRequest", ({ detail: { requestConfig, xhr } }) => {
    const { elt, triggeringEvent } = requestConfig;
    if (!["refresh", "intersect"].includes(triggeringEvent?.type)) {
      return;
    }
    pending += 1;
    xhr.addEventListener("loadend", () => {
      pending -= 1;
      if (xhr.status !== 200) {
        elt.dataset.renew = ""; // until the next version of it is loaded
      }
      continueUpdate();
    });
  });
  document.body.addEventListener("htmx:afterSettle", unloadFarParts);
  document.addEventListener("visibilitychange", continueUpdate);
  document.addEventListener("scroll", continueUpdate, { passive: true });
  setInterval(() => indicator.dataset.state === "live" && update(regions("[data-renew]")), RENEWAL);
  connect(indicator.dataset);
}

// Follows the event stream, shows whether the page is live, and updates the parts of the page that have changed.

import { StreamSource } from "./stream-source.js";
import { showTime } from "./times.js";

const PAUSE = 250; // between two updates, in milliseconds
const MANY = 20; // if more parts than this have changed, the page is loaded again

const indicator = document.getElementById("stream");
let timer = null;
let pending = 0;

function show(state, text) {
  indicator.dataset.state = state;
  indicator.querySelector(".text").replaceChildren(...text);
}

function regions() {
  return [...document.querySelectorAll("[data-live]")];
}

function matches(region, entry) {
  const wanted = region.dataset.live;
  // Entries about the fleet and about campaigns are few, and can concern every scope.
  return wanted === "all" || entry.record_kind !== "scope" || wanted === `scope:${entry.record_id}`;
}

function canUpdate() {
  return pending === 0 && timer === null && !document.hidden && document.querySelector("dialog[open]") === null;
}

// Update the parts of the page, now or as soon as possible: not while a dialog is open or the tab is hidden.
export function update(outdated = regions()) {
  for (const region of outdated) {
    region.dataset.outdated = "";
  }
  continueUpdate();
}

export function continueUpdate() {
  const outdated = regions().filter((region) => "outdated" in region.dataset);
  if (outdated.length === 0 || !canUpdate()) {
    return;
  }
  if (outdated.length > MANY) {
    location.reload();
    return;
  }
  for (const region of outdated) {
    delete region.dataset.outdated;
    pending += 1;
    htmx.trigger(region, "refresh");
  }
  timer = setTimeout(() => {
    timer = null;
    continueUpdate();
  }, PAUSE);
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

export function followStream() {
  if (indicator === null) {
    return;
  }
  document.body.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (detail.requestConfig.triggeringEvent?.type === "refresh") {
      pending = Math.max(0, pending - 1);
    }
    continueUpdate();
  });
  document.addEventListener("visibilitychange", continueUpdate);
  const { url, worker } = indicator.dataset;
  if (!("SharedWorker" in window)) {
    new StreamSource(url, receive);
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

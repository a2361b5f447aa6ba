// Follows the event stream, shows whether the page is live, and updates the parts of the page that have changed.

import { StreamSource } from "./stream-source.js";
import { showTime } from "./times.js";

const PAUSE = 250; // between two updates, in milliseconds

const indicator = document.getElementById("stream");
let timer = null;
let isBusy = false;
let isOutdated = false;

function show(state, text) {
  indicator.dataset.state = state;
  indicator.querySelector(".text").replaceChildren(...text);
}

function matches(region, entry) {
  const wanted = region.dataset.live;
  // Entries about the fleet and about campaigns are few, and can concern every scope.
  return wanted === "all" || entry.record_kind !== "scope" || wanted === `scope:${entry.record_id}`;
}

function canUpdate() {
  return !isBusy && timer === null && !document.hidden && document.querySelector("dialog[open]") === null;
}

export function update() {
  isOutdated = true;
  if (!canUpdate()) {
    return;
  }
  isOutdated = false;
  for (const region of document.querySelectorAll("[data-live]")) {
    isBusy = true;
    htmx.trigger(region, "refresh");
  }
  timer = setTimeout(() => {
    timer = null;
    continueUpdate();
  }, PAUSE);
}

export function continueUpdate() {
  if (isOutdated && canUpdate()) {
    update();
  }
}

function receive(message) {
  switch (message.kind) {
    case "entry":
      if ([...document.querySelectorAll("[data-live]")].some((region) => matches(region, message.entry))) {
        update();
      }
      break;
    case "state":
      if (message.live) {
        show("live", ["Live"]);
        // What has changed between the page and the stream, or while there was none.
        const region = document.querySelector("[data-live]");
        if (region !== null && Number(region.dataset.position) !== message.position) {
          update();
        }
      } else if (indicator.dataset.state !== "stale") {
        show("stale", ["Stale since ", showTime(new Date(message.since), "clock")]);
      }
      break;
    case "ended":
      show("stale", ["Signed out"]);
      update(); // leads to the sign-in page
      break;
  }
}

export function followStream() {
  if (indicator === null) {
    return;
  }
  document.body.addEventListener("htmx:afterRequest", () => {
    isBusy = false;
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

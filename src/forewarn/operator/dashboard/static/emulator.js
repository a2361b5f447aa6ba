// Updates the page every second while a scenario plays or faults count their hits: the journal has no entry for those.
// After a scenario was started, its steps come into view.

import { update } from "./stream.js";

const PAUSE = 1000; // in milliseconds
let isStarted = false;

setInterval(() => {
  const isLive = document.getElementById("stream")?.dataset.state === "live";
  if (isLive && !document.hidden && document.querySelector("[data-busy]") !== null) {
    update();
  }
}, PAUSE);

document.body.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (detail.successful && detail.pathInfo.requestPath.endsWith("/emulator/play")) {
    isStarted = true;
  }
});

document.body.addEventListener("htmx:afterSettle", () => {
  const run = document.getElementById("run");
  if (isStarted && run !== null) {
    isStarted = false;
    run.scrollIntoView();
  }
});

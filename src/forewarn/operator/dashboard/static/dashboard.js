// Starts what every page needs: times, the event stream, dialogs and keyboard shortcuts.

import { continueUpdate, followStream, update } from "./stream.js";
import { keepTimes, setNow, showTimes } from "./times.js";

keepTimes();
followStream();

document.body.addEventListener("htmx:afterSettle", ({ detail }) => {
  const region = document.querySelector("[data-live]");
  if (region?.dataset.now) {
    setNow(region.dataset.now);
  }
  showTimes(document);
  if (detail.requestConfig?.verb === "get") {
    document.getElementById("page-error").textContent = "";
  }
});

// A change was made: close its dialog and show the result.
document.body.addEventListener("changed", () => {
  for (const dialog of document.querySelectorAll("dialog[open]")) {
    dialog.close();
  }
  update();
});

document.addEventListener("click", ({ target }) => {
  const opener = target.closest("[data-dialog]");
  if (opener !== null) {
    const dialog = document.getElementById(opener.dataset.dialog);
    for (const problem of dialog.querySelectorAll(".form-error")) {
      problem.textContent = "";
    }
    dialog.showModal();
  }
  const closer = target.closest("[data-close]");
  closer?.closest("dialog").close();
});

document.addEventListener("close", continueUpdate, true);

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select") !== null;
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") !== null) {
    return;
  }
  const search = document.getElementById("search");
  if (event.key === "/" && search !== null) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "?") {
    event.preventDefault();
    document.getElementById("help")?.showModal();
  }
});

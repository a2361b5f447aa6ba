// Starts what every page needs: times, the event stream, dialogs and keyboard shortcuts.

import { enableMorph } from "./morph.js";
import { followStream, update } from "./stream.js";
import { keepTimes, showTimes } from "./times.js";

document.querySelector(".bar [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
enableMorph();
keepTimes();
followStream();

// A page that updates itself does not prolong the session; what the user does there, does.
document.body.addEventListener("htmx:configRequest", ({ detail }) => {
  if (detail.triggeringEvent?.type === "refresh") {
    detail.headers["forewarn-background"] = "1";
  }
});

document.body.addEventListener("htmx:afterSettle", ({ detail }) => {
  showTimes(document);
  if (detail.requestConfig?.verb === "get") {
    document.getElementById("page-error").textContent = "";
  }
});

// Show an error where it belongs: in the form that was sent, else at the top of the page.
function showError(element, message) {
  const place = element.closest("form")?.querySelector(".form-error") ?? document.getElementById("page-error");
  place.textContent = message;
}

document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.xhr.status >= 400) {
    detail.shouldSwap = false;
    const isText = (detail.xhr.getResponseHeader("content-type") ?? "").startsWith("text/plain");
    const message = isText ? detail.xhr.responseText : `The service answered with status ${detail.xhr.status}.`;
    showError(detail.requestConfig.elt, message);
  }
});

document.body.addEventListener("htmx:sendError", ({ detail }) => {
  if (detail.requestConfig.verb !== "get") {
    const message = "The service cannot be reached. The change may have been made; send the form again when it can.";
    showError(detail.requestConfig.elt, message);
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

// An open dialog was left as it was: its form gets a new request key now.
document.addEventListener("close", () => update(), true);

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

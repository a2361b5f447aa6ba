// The campaign editor: keeps the form and the TOML beside it equal, and shows the plan of what is typed.
//
// The service reads and writes both. The side that was edited last is the source; the other one is locked until it has
// followed, so that no edit is overwritten. A further edit cancels the request for the previous one, and its planning.

import { TimeChart } from "./time-chart.js";
import { setNow, showTimes } from "./times.js";

const PAUSE = 300; // after a key before the input is sent, in milliseconds
const RETRY = 2_000; // until the service is asked again after it could not be reached

const editor = document.getElementById("campaign-editor");
const form = document.getElementById("campaign-form");
const fields = document.getElementById("campaign-fields");
const toml = document.getElementById("toml");
const problem = document.getElementById("input-error");
const plan = document.getElementById("plan");
const content = document.getElementById("plan-content");
const state = document.getElementById("plan-state");
const progress = document.getElementById("plan-progress");

const picture = document.getElementById("plan-chart");
const summary = document.getElementById("editor-summary");

const draft = `campaign ${editor.dataset.clone ?? ""}`; // in the storage of this tab
let timer = null;
let chart = null;
let running = new AbortController();

function edited(source, pause = PAUSE) {
  const body = new URLSearchParams(source === form ? new FormData(form) : undefined);
  body.set("source", source === form ? "form" : "toml");
  body.set("toml", toml.value); // of a form: for its comments
  sessionStorage.setItem(draft, body);
  (source === form ? toml : form).inert = true;
  begin(source, body, pause);
}

// Send an input after a pause. Without a source, neither side has it yet.
function begin(source, body, pause) {
  running.abort();
  clearTimeout(timer);
  running = new AbortController();
  const { signal } = running;
  plan.dataset.state = "outdated";
  for (const button of content.querySelectorAll("[data-dialog]")) {
    button.disabled = true;
  }
  timer = setTimeout(() => send(source, body, signal), pause);
}

async function send(source, body, signal) {
  for await (const line of answer(body, signal)) {
    if (signal.aborted) {
      return;
    }
    receive(source, line);
  }
}

// Yield the lines of the service's answer; send the input again while the service cannot be reached.
async function* answer(body, signal) {
  const headers = { ...JSON.parse(document.body.getAttribute("hx-headers")), "HX-Request": "true" };
  for (;;) {
    try {
      const response = await fetch(editor.dataset.path, { method: "POST", body, headers, signal });
      if (response.status === 401) {
        location.assign(`/ui/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
      } else if (response.ok) {
        yield* lines(response.body);
      } else {
        yield { error: { message: await response.text() } };
      }
      return;
    } catch {
      if (signal.aborted) {
        return;
      }
      state.textContent = "The service cannot be reached. Trying again…";
      await new Promise((resolve) => {
        timer = setTimeout(resolve, RETRY); // the next edit clears it
      });
    }
  }
}

async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    const parts = (text + value).split("\n");
    text = parts.pop();
    yield* parts.map((part) => JSON.parse(part));
  }
}

function receive(source, line) {
  if ("toml" in line) {
    follow(source, line);
    showState("Planning…");
    showProblem(line.error);
  } else if ("plan" in line) {
    showPlan(line);
  } else if ("error" in line) {
    showProblem(line.error);
  } else {
    progress.hidden = line.total === 0;
    progress.max = Math.max(line.total, 1);
    progress.value = line.done;
    if (line.total > 0) {
      state.textContent = `Planning: ${line.done.toLocaleString()} of ${line.total.toLocaleString()} VMs`;
    }
  }
}

// Let the other side have the content of the edited one.
function follow(source, line) {
  if (source !== toml) {
    toml.value = line.toml;
  }
  if (source !== form && line.texts !== null) {
    for (const field of form.elements) {
      if (field.type === "checkbox") {
        field.checked = line.texts[field.name] === "true";
      } else if (field.name !== "") {
        field.value = line.texts[field.name] ?? "";
      }
    }
  }
  fields.disabled = line.texts === null;
  form.inert = toml.inert = false;
}

function showProblem(error) {
  for (const field of form.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
  }
  problem.replaceChildren();
  problem.dataset.kind = error?.is_incomplete ? "incomplete" : "wrong";
  if (!error) {
    return;
  }
  showState(content.querySelector("#plan-summary") === null ? "" : "This plan is older than what you have typed.");
  summary.textContent = error.message;
  const text = document.createElement("p");
  text.textContent = error.message;
  problem.append(text);
  const field = error.key ? form.elements[error.key] : undefined;
  if (field !== undefined && !error.is_incomplete) {
    field.setAttribute("aria-invalid", "true");
  }
  if (field !== undefined && !fields.disabled) {
    problem.append(button("Show the field", () => field.focus()));
  }
  if (error.line) {
    problem.append(button(`Show line ${error.line}`, () => selectLine(error.line)));
  }
  if (fields.disabled) {
    const note = document.createElement("p");
    note.textContent = "The form follows when the file can be read.";
    problem.append(note);
  }
}

function button(text, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "link";
  made.textContent = text;
  made.addEventListener("click", act);
  return made;
}

function selectLine(number) {
  const before = toml.value.split("\n").slice(0, number - 1);
  const start = before.reduce((sum, line) => sum + line.length + 1, 0);
  const end = toml.value.indexOf("\n", start);
  toml.focus();
  toml.setSelectionRange(start, end === -1 ? toml.value.length : end);
}

function showState(text) {
  progress.hidden = true;
  state.textContent = text;
}

function showPlan({ plan: html, chart: data, now }) {
  showState("");
  setNow(now);
  plan.dataset.state = "current";
  const open = [...content.querySelectorAll("details[open]")].map(({ id }) => id);
  content.replaceChildren(document.createRange().createContextualFragment(html)); // escaped by the service
  for (const id of open) {
    document.getElementById(id)?.setAttribute("open", "");
  }
  htmx.process(content);
  showTimes(content);
  summary.replaceChildren(...document.getElementById("plan-summary").cloneNode(true).childNodes);
  document.getElementById("chart-place").append(picture);
  picture.hidden = data.rows.length === 0;
  chart ??= new TimeChart(picture);
  chart.update(data);
}

form.addEventListener("input", () => edited(form));
form.addEventListener("submit", (event) => event.preventDefault());
toml.addEventListener("input", () => edited(toml));

// The campaign was started: its draft is no longer needed.
document.body.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (detail.successful && detail.requestConfig.verb === "post" && content.contains(detail.elt)) {
    sessionStorage.removeItem(draft);
  }
});

const kept = sessionStorage.getItem(draft);
if (kept !== null) {
  begin(null, new URLSearchParams(kept), 0);
} else if (toml.value !== "") {
  edited(toml, 0);
}

// Shows times in the zone of the reader, and how far they are from the time of the service.

const clock = document.getElementById("clock");
const isManual = clock?.hasAttribute("data-manual") ?? false;
let serviceTime = clock === null ? Date.now() : Date.parse(clock.dataset.now);
let readAt = performance.now();

const DAY = 86_400;
const formats = {
  clock: new Intl.DateTimeFormat(undefined, { timeStyle: "medium" }),
  today: new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" }),
  moment: new Intl.DateTimeFormat(undefined, {
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
  }),
  year: new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" }),
  full: new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" }),
};

export function now() {
  return isManual ? serviceTime : serviceTime + performance.now() - readAt;
}

export function setNow(text) {
  serviceTime = Date.parse(text);
  readAt = performance.now();
  showClock();
}

function showClock() {
  const shown = clock?.querySelector("time");
  if (shown) {
    shown.dateTime = new Date(now()).toISOString();
    shown.title = `${shown.dateTime.slice(0, 19).replace("T", " ")} UTC`;
    shown.textContent = text(new Date(now()), "clock");
  }
}

function distance(seconds) {
  const parts = [
    [Math.floor(seconds / DAY), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first === -1) {
    return "0 s";
  }
  return parts
    .slice(first, first + 2)
    .filter(([count], place) => count > 0 || place === 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(" ");
}

function relative(moment) {
  const seconds = Math.round((moment - now()) / 1000);
  return seconds > 0 ? `in ${distance(seconds)}` : seconds === 0 ? "now" : `${distance(-seconds)} ago`;
}

function absolute(moment) {
  const current = new Date(now());
  if (moment.toDateString() === current.toDateString()) {
    return formats.today.format(moment);
  }
  return (moment.getFullYear() === current.getFullYear() ? formats.moment : formats.year).format(moment);
}

function text(moment, kind) {
  switch (kind) {
    case "relative":
      return relative(moment);
    case "countdown": {
      const seconds = Math.ceil((moment - now()) / 1000);
      return seconds > 0 ? distance(seconds) : "now";
    }
    case "clock":
    case "year":
    case "full":
      return formats[kind].format(moment);
    default:
      return absolute(moment);
  }
}

export function showTime(moment, kind) {
  const element = document.createElement("time");
  element.dateTime = moment.toISOString();
  element.title = `${moment.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  element.textContent = text(moment, kind);
  return element;
}

export function showTimes(root, selector = "time[data-kind]") {
  for (const element of root.querySelectorAll(selector)) {
    const shown = text(new Date(element.dateTime), element.dataset.kind);
    if (element.textContent !== shown) {
      element.textContent = shown;
    }
  }
}

function tick() {
  if (document.hidden) {
    return;
  }
  showTimes(document, 'time[data-kind="relative"], time[data-kind="countdown"]');
  showClock();
}

// A field for a time has the reader's zone; its hidden twin, which is sent, has UTC.
function keepField(field) {
  const sent = document.getElementById(field.dataset.utc);
  if (sent.value !== "") {
    const moment = new Date(sent.value);
    field.value = new Date(moment - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  }
  field.addEventListener("change", () => {
    sent.value = field.value === "" ? "" : `${new Date(field.value).toISOString().slice(0, 19)}Z`;
  });
}

export function keepTimes() {
  showTimes(document);
  document.querySelectorAll("input[data-utc]").forEach(keepField);
  if (!isManual) {
    setInterval(tick, 1000);
  }
}

// The timeline page: after the user has moved the range, it is in the address, and what happened in it is loaded.

import "./time-chart.js";

const filters = document.getElementById("timeline-filters");

function setRange(from, to) {
  for (const [name, seconds] of [["from", from], ["to", to]]) {
    const field = filters.elements[name];
    field.disabled = seconds === null;
    field.value = seconds === null ? "" : `${new Date(Math.round(seconds) * 1000).toISOString().slice(0, 19)}Z`;
  }
}

document.addEventListener("chart-range", ({ detail: { from, to, follow } }) => {
  const address = new URL(location.href);
  if (follow) {
    setRange(null, null);
    address.searchParams.delete("from");
    address.searchParams.delete("to");
    address.searchParams.set("hours", Math.max(1, Math.round((to - from) / 3600)));
  } else {
    setRange(from, to);
    address.searchParams.set("from", filters.elements.from.value);
    address.searchParams.set("to", filters.elements.to.value);
  }
  if (address.searchParams.has("table")) {
    address.searchParams.set("table", 1); // another range has other items
  }
  history.replaceState(history.state, "", address);
  htmx.ajax("GET", `${address.pathname}${address.search}`, { source: "#live", target: "#live", select: "#live", swap: "morph" });
});

// A range that is chosen is one around the present.
filters.elements.hours.addEventListener("change", () => setRange(null, null));

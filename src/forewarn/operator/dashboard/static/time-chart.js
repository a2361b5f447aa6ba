// A time chart: rows of bars over a time axis, on a canvas. Only what is visible is drawn, so thousands of bars are fine.
//
// In a template, import the macros of time-chart.html and write `{{ time_chart("plan", chart, "Waves") }}`
// and, for people who cannot see it, `{{ chart_table(chart, "Waves") }}`; `chart` is a `TimeChart` of time_chart.py. The
// page also loads time-chart.css and this module, which finds the charts and follows their data when htmx changes it.
//
// The data, in a JSON element of the page. Times are whole seconds since 1970; the present comes from times.js.
//
//   {
//     from, to,           // the range to show first, and again with new data if the user has not moved it
//     follow,             // whether the range moves with the present
//     rows: [{
//       label, href, note,
//       items: [{         // an event or a wave: what one hovers over, selects and opens
//         label, href,
//         facts: [[name, text]],
//         bars: [[kind, from, to]],  // its phases, one after the other; an end of null is the present
//         mark,           // "done", "failed" or "canceled", after its last bar; or nothing
//         plan,           // true: in a lower lane above the others of the row, to compare plan and reality
//       }],
//     }],
//     backgrounds: [{ kind, from, to, label }],  // "window", "blackout" or "stop"
//   }
//
// Kinds of bars: notice, approval, waiting, impact, stuck, planned, expected, wave (KINDS in chart-drawing.js). Items of a
// row that overlap are put below each other.
//
// From a script: `chartOf(element)`, then `chart.update(data)` and `chart.show(from, to, { follow })`. The element gets the
// event "chart-range" with { from, to, follow } after the user has moved the range.

import { BACKGROUNDS, KINDS, MARKS, Palette, drawBox, drawChart, drawCheck, drawMark, drawTitle, titleHeight } from "./chart-drawing.js";
import { Layout, endOf, itemsBetween } from "./chart-layout.js";
import { now as serviceNow, showTime } from "./times.js";

const LEAST_SPAN = 60;
const LONGEST_SPAN = 92 * 86_400;
const ZOOM = 1.5;
const STEP = 0.25; // of the range, for a press of a key or button
const PAST = 0.25; // the share of the past in a range around the present
const TALLEST = 0.7; // of the window
const CLICK = 5; // pixels by which a pointer may move in a click
const SETTLED = 250; // milliseconds after which a moved range is reported
const PICTURE_HEIGHT = 8_000; // of the rows of a saved picture
const PAGE_HEIGHT = 1_000; // of the rows of a printed page
const PAGE_WIDTH = 900;
const PAGES = 20;
const FRAMES = 600; // of which the times are kept
const BOX = 26; // width of a pattern in the legend
const MARK = 12; // width of a mark there

const HELP = [
  ["Drag, Shift + ← →", "Earlier or later"],
  ["Ctrl + wheel, pinch, + −", "Zoom"],
  ["← → ↑ ↓", "Select an item"],
  ["Enter, click", "Open it"],
  ["N", "The present"],
  ["A", "All that is loaded"],
  ["Esc", "Select nothing"],
];

const charts = new Map();

export function chartOf(element) {
  return charts.get(element);
}

function make(tag, className = "", content = []) {
  const element = document.createElement(tag);
  element.className = className;
  element.append(...content);
  return element;
}

function button(text, title, action) {
  const element = make("button", "", [text]);
  element.type = "button";
  if (title !== text) {
    element.setAttribute("aria-label", title);
    element.title = title;
  }
  element.addEventListener("click", action);
  return element;
}

export class TimeChart {
  constructor(element) {
    this.element = element;
    this.label = element.dataset.label;
    this.view = null; // the visible range
    this.follow = false;
    this.isMoved = false; // by the user
    this.selected = null;
    this.pointers = new Map();
    this.isDrawn = true;
    this.stats = { frames: 0, drawn: 0, examined: 0, items: 0, times: [] };
    this.build();
    this.listen();
    charts.set(element, this);
  }

  now() {
    return serviceNow() / 1000;
  }

  build() {
    const id = this.element.id;
    const tools = make("div", "chart-tools", [
      button("◀", "Earlier", () => this.pan(-STEP)),
      button("▶", "Later", () => this.pan(STEP)),
      button("−", "Zoom out", () => this.zoom(ZOOM)),
      button("+", "Zoom in", () => this.zoom(1 / ZOOM)),
      button("Now", "Now", () => this.showPresent()),
      button("All", "All that is loaded", () => this.showAll()),
      make("span", "chart-space"),
      button("Save as PNG", "Save as PNG", () => this.savePicture()),
      button("Print", "Print", () => print()),
    ]);
    tools.setAttribute("role", "toolbar");
    tools.setAttribute("aria-label", `${this.label}: range and export`);
    this.legend = make("ul", "chart-legend");
    this.canvas = make("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    this.spacer = make("div");
    this.viewport = make("div", "chart-view", [this.canvas, this.spacer]);
    this.viewport.tabIndex = 0;
    this.viewport.setAttribute("role", "application");
    this.viewport.setAttribute("aria-roledescription", "time chart");
    this.viewport.setAttribute("aria-label", this.label);
    this.viewport.setAttribute("aria-describedby", `${id}-help`);
    this.facts = make("div", "chart-facts");
    this.facts.hidden = true;
    this.status = make("p", "visually-hidden");
    this.status.setAttribute("role", "status");
    const keys = make("dl", "keys");
    for (const [key, meaning] of HELP) {
      keys.append(make("dt", "", [make("kbd", "", [key])]), make("dd", "", [meaning]));
    }
    const help = make("details", "chart-help note", [make("summary", "", ["Keys and gestures"]), keys]);
    const hint = make("p", "visually-hidden", [
      "Arrow keys select an item, Enter opens it, plus and minus zoom, Shift with arrow keys moves the range. The same items are in the table below.",
    ]);
    hint.id = `${id}-help`;
    this.pages = make("div", "chart-pages");
    this.element.replaceChildren(tools, this.legend, hint, this.viewport, this.facts, help, this.status, this.pages);
    this.context = this.canvas.getContext("2d", { alpha: false });
    this.palette = new Palette(this.element);
  }

  listen() {
    const view = this.viewport;
    view.addEventListener("scroll", () => this.redraw(), { passive: true });
    view.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    view.addEventListener("keydown", (event) => this.onKey(event));
    view.addEventListener("blur", ({ relatedTarget }) => this.facts.contains(relatedTarget) || this.select(null));
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => this.onPointerDown(event));
    canvas.addEventListener("pointermove", (event) => this.onPointerMove(event));
    canvas.addEventListener("pointerup", (event) => this.onPointerUp(event));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => this.showFacts(this.selected));
    canvas.addEventListener("dblclick", (event) => this.zoom(1 / ZOOM, event.offsetX));
    this.closing = new AbortController();
    const { signal } = this.closing;
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", () => this.renewPalette(), { signal });
    new ResizeObserver(() => this.layOut()).observe(this.element);
    window.addEventListener("resize", () => this.layOut(), { signal });
    window.addEventListener("beforeprint", () => this.makePages(), { signal });
    window.addEventListener("afterprint", () => this.pages.replaceChildren(), { signal });
    const timer = setInterval(() => this.moveOn(), 1000);
    signal.addEventListener("abort", () => clearInterval(timer));
  }

  // The element was removed from the page.
  close() {
    this.closing.abort();
    charts.delete(this.element);
  }

  renewPalette() {
    this.palette = new Palette(this.element);
    this.showLegend();
    this.redraw();
  }

  // New data; the range, the scroll position and the selection stay, if the user has changed them.
  update(data) {
    this.data = data;
    for (const [n, row] of data.rows.entries()) {
      for (const item of row.items) {
        item.row = n;
        item.key = `${row.label}\n${item.href ?? ""}\n${item.label}\n${item.plan ?? ""}`;
      }
    }
    this.stats.items = data.rows.reduce((sum, row) => sum + row.items.length, 0);
    if (this.view === null || !this.isMoved) {
      this.view = { from: data.from, to: data.to };
      this.follow = data.follow ?? false;
      this.followedAt = this.now();
    }
    this.layOut();
    this.showLegend();
  }

  allItems() {
    return this.layout.rows.flatMap((row) => row.lanes.flatMap((lane) => lane.items));
  }

  layOut() {
    if (this.data === undefined) {
      return;
    }
    const width = this.viewport.clientWidth;
    if (width === 0) {
      return;
    }
    this.layout = new Layout(this.data, { width, now: this.now() });
    const all = this.layout.head + this.layout.height + 1;
    const height = Math.round(Math.min(all, Math.max(innerHeight * TALLEST, 240)));
    this.viewport.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(all - height, 0)}px`;
    this.size = { width, height };
    if (this.selected !== null) {
      this.selected = this.allItems().find((item) => item.key === this.selected.key) ?? null;
      this.showFacts(this.selected);
    }
    this.redraw();
  }

  redraw() {
    if (this.isDrawn && this.layout !== undefined) {
      this.isDrawn = false;
      requestAnimationFrame(() => this.draw());
    }
  }

  draw() {
    const began = performance.now();
    this.isDrawn = true;
    const { width, height } = this.size;
    const scale = devicePixelRatio;
    const [pixelWidth, pixelHeight] = [Math.round(width * scale), Math.round(height * scale)];
    if (this.canvas.width !== pixelWidth || this.canvas.height !== pixelHeight) {
      this.canvas.width = pixelWidth;
      this.canvas.height = pixelHeight;
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    const { view, palette, selected } = this;
    const top = this.viewport.scrollTop;
    const counts = drawChart(this.context, this.layout, { view, top, height, now: this.now(), palette, selected });
    Object.assign(this.stats, counts);
    this.stats.frames += 1;
    this.stats.times.push(performance.now() - began);
    this.stats.times.splice(0, this.stats.times.length - FRAMES);
    this.drawnAt = this.now();
  }

  // The present moves, and with it the range that follows it.
  moveOn() {
    const now = this.now();
    if (document.hidden || this.layout === undefined) {
      return;
    }
    if (this.follow && this.pointers.size === 0) {
      const passed = now - this.followedAt;
      this.view = { from: this.view.from + passed, to: this.view.to + passed };
    }
    this.followedAt = now;
    const pixels = ((now - this.drawnAt) / (this.view.to - this.view.from)) * this.size.width;
    if (pixels >= 0.5) {
      this.redraw();
    }
  }

  // The range

  show(from, to, { follow = false } = {}) {
    const span = Math.min(Math.max(to - from, LEAST_SPAN), LONGEST_SPAN);
    const middle = (from + to) / 2;
    this.view = { from: middle - span / 2, to: middle + span / 2 };
    this.follow = follow;
    this.followedAt = this.now();
    this.redraw();
  }

  move(from, to, options) {
    this.isMoved = true;
    this.show(from, to, options);
    clearTimeout(this.settles);
    this.settles = setTimeout(() => {
      const detail = { ...this.view, follow: this.follow };
      this.element.dispatchEvent(new CustomEvent("chart-range", { detail, bubbles: true }));
    }, SETTLED);
  }

  pan(share) {
    const shift = share * (this.view.to - this.view.from);
    this.move(this.view.from + shift, this.view.to + shift);
  }

  // Zoom around a point; without one around the present if it is visible, else around the middle.
  zoom(factor, x = null) {
    const { from, to } = this.view;
    const now = this.now();
    const present = now > from && now < to ? now : (from + to) / 2;
    const fixed = x === null ? present : this.layout.time(this.view, Math.max(x, this.layout.labels));
    const span = Math.min(Math.max((to - from) * factor, LEAST_SPAN), LONGEST_SPAN);
    const start = fixed - ((fixed - from) / (to - from)) * span;
    this.move(start, start + span, { follow: this.follow && x === null });
  }

  showPresent() {
    const span = this.view.to - this.view.from;
    const from = this.now() - PAST * span;
    this.move(from, from + span, { follow: true });
  }

  showAll() {
    const items = this.allItems();
    if (items.length === 0) {
      return;
    }
    const from = items.reduce((least, item) => Math.min(least, item.from), Infinity);
    const to = items.reduce((most, item) => Math.max(most, item.to), -Infinity);
    const margin = Math.max((to - from) * 0.04, LEAST_SPAN);
    this.move(from - margin, to + margin);
  }

  // Pointers

  itemAt(event) {
    const { head } = this.layout;
    return event.offsetY < head
      ? null
      : this.layout.itemAt(this.view, event.offsetX, event.offsetY - head + this.viewport.scrollTop);
  }

  onWheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(Math.min(Math.max(event.deltaY, -60), 60) / 150), event.offsetX);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan((event.deltaX || event.deltaY) / this.size.width);
    }
  }

  onPointerDown(event) {
    if (event.button !== 0 && event.button !== 1) {
      return;
    }
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY, startX: event.offsetX, startY: event.offsetY });
    this.isDrag = this.pointers.size > 1;
    this.canvas.setPointerCapture(event.pointerId);
  }

  onPointerMove(event) {
    const pointer = this.pointers.get(event.pointerId);
    if (pointer === undefined) {
      const item = this.itemAt(event);
      const behind = this.layout.backgroundAt(this.view, event.offsetX, event.offsetY);
      const row = this.rowLabelAt(event);
      this.canvas.title = behind === null ? (row?.label ?? "") : `${BACKGROUNDS[behind.kind].name}: ${behind.label}`;
      this.canvas.classList.toggle("can-open", Boolean(item?.href ?? row?.href));
      this.showFacts(item ?? this.selected, item === null ? null : event);
      return;
    }
    const before = [...this.pointers.values()].map(({ x }) => x);
    pointer.x = event.offsetX;
    pointer.y = event.offsetY;
    this.isDrag ||= Math.hypot(pointer.x - pointer.startX, pointer.y - pointer.startY) > CLICK;
    if (this.isDrag) {
      this.showFacts(null);
      this.drag(before, [...this.pointers.values()].map(({ x }) => x));
    }
  }

  // Keep the times under one or two pointers where they are.
  drag(before, after) {
    const { view, layout } = this;
    const room = this.size.width - layout.labels;
    if (before.length === 1) {
      const shift = ((before[0] - after[0]) / room) * (view.to - view.from);
      this.move(view.from + shift, view.to + shift);
      return;
    }
    const [left, right] = [Math.min(...after), Math.max(...after)];
    const [leftTime, rightTime] = [Math.min(...before), Math.max(...before)].map((x) => layout.time(view, x));
    const span = ((rightTime - leftTime) * room) / Math.max(right - left, 10);
    const from = leftTime - ((left - layout.labels) / room) * span;
    this.move(from, from + span);
  }

  onPointerUp(event) {
    const wasClick = this.pointers.has(event.pointerId) && !this.isDrag;
    this.pointers.delete(event.pointerId);
    if (!wasClick) {
      return;
    }
    const item = this.itemAt(event);
    if (item === null) {
      this.open(this.rowLabelAt(event)?.href, event);
      this.select(null);
    } else if (event.pointerType !== "mouse" && this.selected?.key !== item.key) {
      this.select(item); // the first tap shows the facts, the second opens it
    } else {
      this.open(item.href, event);
    }
  }

  // The row whose label is at a point; long labels are cut.
  rowLabelAt(event) {
    const { head, labels, isNarrow } = this.layout;
    if (event.offsetY < head || (event.offsetX > labels && !isNarrow)) {
      return null;
    }
    const y = event.offsetY - head + this.viewport.scrollTop;
    const row = this.layout.rowAt(y);
    return row !== null && (!isNarrow || y < row.lanes[0].top) ? row : null;
  }

  open(href, event) {
    if (!href) {
      return;
    }
    if (event.ctrlKey || event.metaKey || event.button === 1) {
      window.open(href, "_blank", "noopener");
    } else {
      location.assign(href);
    }
  }

  // Keys

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const actions = {
      "+": () => this.zoom(1 / ZOOM),
      "=": () => this.zoom(1 / ZOOM),
      "-": () => this.zoom(ZOOM),
      n: () => this.showPresent(),
      a: () => this.showAll(),
      Enter: () => this.open(this.selected?.href, event),
      Escape: () => this.select(null),
    };
    if (event.shiftKey && event.key in moves && moves[event.key][1] !== 0) {
      this.pan(moves[event.key][1] * STEP);
    } else if (event.key in moves) {
      this.selectNext(...moves[event.key]);
    } else if (event.key in actions) {
      actions[event.key]();
    } else {
      return;
    }
    event.preventDefault();
  }

  // Select the item beside the selected one, or the nearest one in another row.
  selectNext(rows, columns) {
    if (this.selected === null) {
      this.select(this.firstVisible());
      return;
    }
    const itemsOf = (n) => this.layout.rows[n].lanes.flatMap((lane) => lane.items).sort((a, b) => a.from - b.from || a.to - b.to);
    const own = itemsOf(this.selected.row);
    if (rows === 0) {
      this.select(own[own.findIndex((item) => item.key === this.selected.key) + columns] ?? this.selected);
      return;
    }
    for (let n = this.selected.row + rows; n >= 0 && n < this.layout.rows.length; n += rows) {
      const found = itemsOf(n);
      if (found.length > 0) {
        const distance = (item) => Math.abs(item.from - this.selected.from);
        this.select(found.reduce((best, item) => (distance(item) < distance(best) ? item : best)));
        return;
      }
    }
  }

  firstVisible() {
    const top = this.viewport.scrollTop;
    const [first, last] = this.layout.rowsBetween(top, top + this.size.height - this.layout.head);
    for (const row of this.layout.rows.slice(first, last)) {
      for (const lane of row.lanes) {
        const [item] = itemsBetween(lane, this.view.from, this.view.to);
        if (item !== undefined) {
          return item;
        }
      }
    }
    return this.allItems()[0] ?? null;
  }

  select(item) {
    this.selected = item;
    if (item !== null) {
      this.bringIntoView(item);
      const row = this.data.rows[item.row];
      const facts = item.facts.map(([name, text]) => `${name}: ${text}`);
      const phases = this.phases(item).map(([name, from, to]) => `${name} from ${from.textContent} to ${to.textContent}`);
      this.status.textContent = `${row.label}: ${[item.label, ...phases, ...facts].join(". ")}`;
    }
    this.showFacts(item);
    this.redraw();
  }

  bringIntoView(item) {
    const { lanes } = this.layout.rows[item.row];
    const lane = lanes.find(({ items }) => items.includes(item)) ?? lanes[0];
    const room = this.size.height - this.layout.head;
    const top = this.viewport.scrollTop;
    if (lane.top < top || lane.top + lane.height > top + room) {
      this.viewport.scrollTop = lane.top - room / 2;
    }
    if (item.to < this.view.from || item.from > this.view.to) {
      const span = this.view.to - this.view.from;
      this.move(item.from - span / 3, item.from + (span * 2) / 3);
    }
  }

  // Facts

  phases(item) {
    const time = (seconds) => showTime(new Date(seconds * 1000), "moment");
    return item.bars.map((bar) => [
      KINDS[bar[0]].name,
      time(bar[1]),
      bar[2] === null ? make("span", "", ["now"]) : time(endOf(bar, this.now())),
    ]);
  }

  showFacts(item, event = null) {
    this.facts.hidden = item === null;
    if (item === null) {
      return;
    }
    const list = make("dl", "facts");
    for (const [name, from, to] of this.phases(item)) {
      const isMoment = from.textContent === to.textContent;
      list.append(make("dt", "", [name]), make("dd", "", isMoment ? [from] : [from, " – ", to]));
    }
    for (const [name, text] of item.facts) {
      list.append(make("dt", "", [name]), make("dd", "", [text]));
    }
    const title = make("p", "", [make("strong", "", [item.label]), ` ${this.data.rows[item.row].label}`]);
    this.facts.replaceChildren(title, list);
    if (item.href && event === null) {
      const link = make("a", "", ["Open"]);
      link.href = item.href;
      link.tabIndex = -1; // Enter opens it
      this.facts.append(link);
    }
    this.placeFacts(item, event);
  }

  placeFacts(item, event) {
    const lane = this.layout.rows[item.row].lanes.find(({ items }) => items.includes(item));
    const itemX = Math.max(this.layout.x(this.view, item.from), this.layout.labels);
    const itemY = this.layout.head + (lane?.top ?? 0) - this.viewport.scrollTop;
    const x = event?.offsetX ?? Math.min(itemX, this.size.width - 40);
    const y = event?.offsetY ?? itemY + 8;
    const { offsetWidth: width, offsetHeight: height } = this.facts;
    const box = this.viewport.getBoundingClientRect();
    const left = Math.min(Math.max(x + 12, 0), this.element.clientWidth - width);
    const below = y + 18;
    const isBelow = box.top + below + height < innerHeight || y < height + 10;
    this.facts.style.left = `${Math.max(left, 0)}px`;
    this.facts.style.top = `${this.viewport.offsetTop + (isBelow ? below : y - height - 10)}px`;
  }

  // Legend and pictures

  // The kinds that occur, each with its name, and the width of its pattern and a function that draws it.
  legendEntries(palette) {
    const kinds = new Set();
    const marks = new Set();
    for (const { items } of this.data.rows) {
      for (const item of items) {
        item.bars.forEach(([kind]) => kinds.add(kind));
        marks.add(item.mark);
      }
    }
    const backgrounds = new Set(this.data.backgrounds.map(({ kind }) => kind));
    const box = (kind) => (context) => drawBox(context, kind, [0, 0, BOX, 12], palette);
    const entries = Object.entries(KINDS).filter(([kind]) => kinds.has(kind)).map(([name, kind]) => [kind.name, BOX, (context) => {
      box(kind)(context);
      if (name === "approval") {
        drawCheck(context, BOX / 2, 6, palette);
      }
    }]);
    for (const [mark, { name }] of Object.entries(MARKS).filter(([each]) => marks.has(each))) {
      entries.push([name, MARK, (context) => drawMark(context, mark, MARK / 2, 6, palette)]);
    }
    for (const [, kind] of Object.entries(BACKGROUNDS).filter(([each]) => backgrounds.has(each))) {
      entries.push([kind.name, BOX, box(kind)]);
    }
    entries.push(["Now", MARK, (context) => {
      context.fillStyle = palette.colours.text;
      context.fillRect(MARK / 2 - 1, 0, 2, 12);
    }]);
    return entries;
  }

  showLegend() {
    this.legend.replaceChildren(...this.legendEntries(this.palette).map(([name, width, draw]) => {
      const canvas = make("canvas");
      canvas.style.width = `${width}px`;
      canvas.width = Math.round(width * devicePixelRatio);
      canvas.height = Math.round(12 * devicePixelRatio);
      canvas.setAttribute("aria-hidden", "true");
      const context = canvas.getContext("2d");
      context.scale(devicePixelRatio, devicePixelRatio);
      draw(context);
      return make("li", "", [canvas, name]);
    }));
  }

  // Draw the rows between two numbers as a picture with a title; returns the canvas.
  picture(layout, { first, last, scheme = "" }) {
    const { width } = layout;
    const scale = 2;
    const palette = new Palette(this.element, { scheme, scale });
    const canvas = make("canvas");
    const context = canvas.getContext("2d", { alpha: false });
    const entries = this.legendEntries(palette);
    const above = titleHeight(context, entries, { width, palette });
    const { top } = layout.rows[first] ?? { top: 0 };
    const height = layout.head + Math.min(heightOf(layout, first, last), PICTURE_HEIGHT) + 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round((above + height) * scale);
    context.scale(scale, scale);
    const time = (seconds) => showTime(new Date(seconds * 1000), "year").textContent;
    const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
    const all = layout.rows.length;
    const rows = last - first < all ? `, rows ${(first + 1).toLocaleString()} to ${last.toLocaleString()} of ${all.toLocaleString()}` : "";
    const title = `${this.label}, ${time(this.view.from)} – ${time(this.view.to)} (${timeZone})${rows}`;
    drawTitle(context, title, entries, { width, palette });
    context.translate(0, above);
    drawChart(context, layout, { view: this.view, top, height, now: this.now(), palette });
    return canvas;
  }

  savePicture() {
    const { layout } = this;
    this.picture(layout, { first: 0, last: rowsWithin(layout, 0, PICTURE_HEIGHT) }).toBlob((blob) => {
      const link = make("a");
      link.href = URL.createObjectURL(blob);
      link.download = `${this.element.dataset.file}-${new Date(this.view.from * 1000).toISOString().slice(0, 10)}.png`;
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }

  // Pages to print, in the light theme, each with its title and axis.
  makePages() {
    const layout = new Layout(this.data, { width: PAGE_WIDTH, now: this.now() });
    const pages = [];
    let n = 0;
    while (n < layout.rows.length && pages.length < PAGES) {
      const last = rowsWithin(layout, n, PAGE_HEIGHT);
      pages.push(this.picture(layout, { first: n, last, scheme: "light" }));
      n = last;
    }
    if (n < layout.rows.length) {
      pages.push(make("p", "", [`${layout.rows.length - n} more rows are not printed: choose a filter for them.`]));
    }
    this.pages.replaceChildren(...pages);
  }
}

// The rows from a number on that fit into a height, at least one: the number of the next row.
function rowsWithin(layout, first, height) {
  let last = Math.min(first + 1, layout.rows.length);
  while (last < layout.rows.length && heightOf(layout, first, last + 1) <= height) {
    last += 1;
  }
  return last;
}

function heightOf({ rows }, first, last) {
  return last > first ? rows[last - 1].top + rows[last - 1].height - rows[first].top : 0;
}

function readAll() {
  for (const element of document.querySelectorAll(".time-chart[data-source]")) {
    const source = document.getElementById(element.dataset.source);
    const chart = charts.get(element) ?? new TimeChart(element);
    const text = source?.textContent ?? "";
    if (text !== "" && text !== chart.source) {
      chart.source = text;
      chart.update(JSON.parse(text));
    } else {
      chart.redraw(); // the present may have moved
    }
  }
  for (const [element, chart] of charts) {
    if (!element.isConnected) {
      chart.close();
    }
  }
}

readAll();
document.body.addEventListener("htmx:afterSettle", readAll);

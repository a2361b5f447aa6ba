// Draws a time chart on a canvas: every kind of bar has a colour and a pattern, so that it is readable without colour.

import { AXIS, STRIP, days, endOf, itemsBetween, ticks } from "./chart-layout.js";

// `paint` is a custom property of the style sheet, and `paint`-surface the one for areas.
export const KINDS = {
  notice: { name: "Notice", paint: "scheduled", pattern: "plain" },
  approval: { name: "Approved", paint: "approved", pattern: "rows" },
  waiting: { name: "Due, but it waits", paint: "held", pattern: "dots" },
  impact: { name: "Impact", paint: "impact", pattern: "solid" },
  stuck: { name: "Stuck", paint: "failed", pattern: "cross" },
  planned: { name: "Planned notice", paint: "quiet", pattern: "plain", dashed: true },
  expected: { name: "Expected impact", paint: "impact", pattern: "slopes", dashed: true },
  wave: { name: "Wave", paint: "done", pattern: "slopes" },
};
export const MARKS = {
  done: { name: "Completed", paint: "done" },
  failed: { name: "Failed", paint: "failed" },
  canceled: { name: "Canceled", paint: "quiet" },
};
export const BACKGROUNDS = {
  window: { name: "Window", paint: "done", pattern: "plain" },
  blackout: { name: "Black-out", paint: "failed", pattern: "slopes" },
  stop: { name: "Stop", paint: "held", pattern: "dots" },
};

const PAINTS = ["text", "muted", "line", "surface", "raised", "accent", "quiet", "scheduled", "approved", "impact", "held"];
const ALL_PAINTS = PAINTS.concat(["failed", "done"]);
const AREAS = ["quiet", "scheduled", "approved", "impact", "held", "failed", "done"];
const TILE = 8; // the size of a pattern
const LEAST_WIDTH = 4; // of a bar
const CHECK_WIDTH = 13; // of a bar with a check mark
const INSET = { notice: 3, planned: 3, approval: 3 }; // above and below a bar: the impact is higher, so that shapes differ

const formats = {
  day: new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" }),
  time: new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" }),
  second: new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" }),
};

// The colours of an element's theme, and the patterns made of them.
export class Palette {
  constructor(element, { scheme = "", scale = devicePixelRatio } = {}) {
    const probe = document.createElement("span");
    probe.style.colorScheme = scheme;
    element.append(probe);
    const read = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    this.colours = Object.fromEntries(ALL_PAINTS.map((name) => [name, read(name)]));
    this.areas = Object.fromEntries(AREAS.map((name) => [name, read(`${name}-surface`)]));
    this.font = getComputedStyle(element).fontFamily;
    this.scale = scale;
    this.patterns = new Map();
    probe.remove();
  }

  fill(context, { paint, pattern }) {
    if (pattern === "solid") {
      return this.colours[paint];
    }
    if (pattern === "plain") {
      return this.areas[paint];
    }
    const key = `${paint} ${pattern}`;
    if (!this.patterns.has(key)) {
      const made = context.createPattern(this.tile(paint, pattern), "repeat");
      made.setTransform(new DOMMatrix().scale(1 / this.scale));
      this.patterns.set(key, made);
    }
    return this.patterns.get(key);
  }

  tile(paint, pattern) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = Math.round(TILE * this.scale);
    const context = canvas.getContext("2d");
    context.scale(canvas.width / TILE, canvas.width / TILE);
    context.fillStyle = this.areas[paint];
    context.fillRect(0, 0, TILE, TILE);
    context.strokeStyle = context.fillStyle = this.colours[paint];
    context.lineWidth = 1.3;
    context.beginPath();
    switch (pattern) {
      case "rows":
        context.moveTo(0, 2);
        context.lineTo(TILE, 2);
        context.moveTo(0, 6);
        context.lineTo(TILE, 6);
        break;
      case "dots":
        context.fillRect(1, 1, 2, 2);
        context.fillRect(5, 5, 2, 2);
        break;
      case "cross":
        context.moveTo(-1, -1);
        context.lineTo(TILE + 1, TILE + 1);
      // falls through: a second set of lines
      default:
        for (const shift of [-TILE, 0, TILE]) {
          context.moveTo(shift - 1, TILE + 1);
          context.lineTo(shift + TILE + 1, -1);
        }
    }
    context.stroke();
    return canvas;
  }
}

// Draw a title and the meaning of the patterns, for a picture; `entries` are a name, a width and a function that draws.
export function drawTitle(context, title, entries, { width, palette }) {
  context.fillStyle = palette.colours.surface;
  context.fillRect(0, 0, width, titleHeight(context, entries, { width, palette }));
  setFont(context, palette, 13, 600);
  context.fillStyle = palette.colours.text;
  context.fillText(shortened(context, title, width - 16), 8, 14);
  for (const { name, size, draw, x, y } of placeEntries(context, entries, { width, palette })) {
    context.save();
    context.translate(x, y);
    draw(context);
    context.restore();
    setFont(context, palette, 11);
    context.fillStyle = palette.colours.text;
    context.fillText(name, x + size + 6, y + 6);
  }
}

export function titleHeight(context, entries, { width, palette }) {
  return placeEntries(context, entries, { width, palette }).reduce((most, { y }) => Math.max(most, y + 24), 30);
}

function placeEntries(context, entries, { width, palette }) {
  setFont(context, palette, 11);
  let [x, y] = [8, 30];
  return entries.map(([name, size, draw]) => {
    const room = size + 22 + context.measureText(name).width;
    if (x + room > width) {
      [x, y] = [8, y + 20];
    }
    const place = { name, size, draw, x, y };
    x += room;
    return place;
  });
}

// Draw the part of a chart between two heights. Returns how many items were drawn, and how many lanes and items
// were looked at.
export function drawChart(context, layout, { view, top, height, now, palette, selected = null }) {
  const { width, labels, head } = layout;
  const { colours } = palette;
  const counts = { drawn: 0, examined: 0 };
  context.clearRect(0, 0, width, height);
  context.fillStyle = colours.surface;
  context.fillRect(0, 0, width, height);
  const place = { context, layout, view, top, height, now, palette, selected, counts };
  context.save();
  context.beginPath();
  context.rect(0, head, width, height - head);
  context.clip();
  const [first, last] = layout.rowsBetween(top, top + height - head);
  drawRowAreas(place, first, last);
  drawBackgroundAreas(place);
  drawGrid(place);
  drawPresent(place);
  for (const row of layout.rows.slice(first, last)) {
    drawBars(place, row);
  }
  context.globalAlpha = 0.4; // over the bars, but labels stay readable
  drawPresent(place);
  context.globalAlpha = 1;
  for (const row of layout.rows.slice(first, last)) {
    drawLabel(place, row);
  }
  context.restore();
  drawHead(place);
  if (labels > 0) {
    line(context, labels, 0, labels, height, colours.line);
  }
  return counts;
}

function drawRowAreas({ context, layout, top, palette }, first, last) {
  for (let n = first; n < last; n += 1) {
    const row = layout.rows[n];
    const y = layout.head + row.top - top;
    if (n % 2 === 1) {
      context.globalAlpha = 0.45;
      context.fillStyle = palette.colours.raised;
      context.fillRect(0, y, layout.width, row.height);
      context.globalAlpha = 1;
    }
  }
}

function drawBackgroundAreas({ context, layout, view, height, palette }) {
  for (const each of layout.areas) {
    const [left, right] = clipped(layout, view, each.from, each.to);
    if (right > left) {
      context.globalAlpha = each.kind === "window" ? 0.4 : 0.3;
      context.fillStyle = palette.fill(context, BACKGROUNDS[each.kind]);
      context.fillRect(left, layout.head, right - left, height);
      context.globalAlpha = 1;
    }
  }
}

function drawGrid({ context, layout, view, height, palette }) {
  for (const time of ticks(view, layout.width - layout.labels).times) {
    const x = layout.x(view, time);
    line(context, x, layout.head, x, height, palette.colours.line);
  }
}

function drawBars(place, row) {
  const { context, layout, view, top, height, counts } = place;
  for (const lane of row.lanes) {
    counts.examined += 1;
    const y = layout.head + lane.top - top;
    if (y + lane.height < layout.head || y > height) {
      continue;
    }
    context.save();
    context.beginPath();
    context.rect(layout.labels, y, layout.width - layout.labels, lane.height);
    context.clip();
    let drawnTo = -Infinity;
    let next = null;
    for (const item of itemsBetween(lane, view.from, view.to)) {
      counts.examined += 1;
      const right = Math.max(layout.x(view, item.to), layout.x(view, item.from) + LEAST_WIDTH);
      if (right <= drawnTo + 1 && item.key !== place.selected?.key) {
        continue; // it would hide behind the ones before it
      }
      if (next !== null) {
        drawItem(place, next, lane, y, layout.x(view, item.from));
      }
      next = item;
      drawnTo = right;
    }
    if (next !== null) {
      drawItem(place, next, lane, y, Infinity);
    }
    context.restore();
  }
}

// Draw an item; its label may use the space up to the next one.
function drawItem(place, item, lane, y, until) {
  const { context, layout, view, now, palette, selected, counts } = place;
  counts.drawn += 1;
  let right = layout.x(view, item.from) + LEAST_WIDTH;
  for (const bar of item.bars) {
    right = Math.max(right, drawBar(context, bar, { layout, view, now, palette, y, height: lane.height }));
  }
  const left = layout.x(view, item.from);
  if (item.mark) {
    drawMark(context, item.mark, right + 7, y + lane.height / 2, palette);
  }
  if (!item.plan) {
    drawItemLabel(place, item, { left, right, y: y + lane.height / 2, until });
  }
  if (selected !== null && selected.key === item.key) {
    context.strokeStyle = palette.colours.accent;
    context.lineWidth = 2;
    context.strokeRect(left - 1, y + 1, right - left + 2, lane.height - 2);
  }
}

// Draw one phase of an item; returns its right end.
function drawBar(context, bar, { layout, view, now, palette, y, height }) {
  const kind = KINDS[bar[0]];
  let left = layout.x(view, bar[1]);
  const right = Math.max(layout.x(view, endOf(bar, now)), left + LEAST_WIDTH);
  if (bar[0] === "approval") {
    left = Math.min(left, right - CHECK_WIDTH); // often the impact follows at once
  }
  if (right < layout.labels || left > layout.width) {
    return right;
  }
  const inset = Math.round((height / 20) * (INSET[bar[0]] ?? 1));
  drawBox(context, kind, [left, y + inset, right - left, height - 2 * inset], palette);
  if (bar[0] === "approval") {
    drawCheck(context, left + CHECK_WIDTH / 2, y + height / 2, palette);
  }
  return right;
}

export function drawBox(context, kind, [left, top, width, height], palette) {
  context.fillStyle = palette.fill(context, kind);
  context.fillRect(left, top, width, height);
  context.strokeStyle = palette.colours[kind.paint];
  context.lineWidth = 1;
  context.setLineDash(kind.dashed ? [3, 2] : []);
  context.strokeRect(left + 0.5, top + 0.5, Math.max(width - 1, 0), height - 1);
  context.setLineDash([]);
}

export function drawCheck(context, x, y, palette) {
  context.fillStyle = palette.areas.approved;
  context.fillRect(x - 5.5, y - 5.5, 11, 11);
  context.strokeStyle = palette.colours.approved;
  context.lineWidth = 1.8;
  context.beginPath();
  context.moveTo(x - 4, y);
  context.lineTo(x - 1, y + 3);
  context.lineTo(x + 4, y - 3.5);
  context.stroke();
}

// The label is in the first bar if that is wide enough, else behind the item if there is space.
function drawItemLabel({ context, layout, view, now, palette }, item, { left, right, y, until }) {
  setFont(context, palette, 11);
  const width = context.measureText(item.label).width;
  const [bar] = item.bars;
  const from = Math.max(left, layout.labels) + 6;
  const firstEnd = layout.x(view, endOf(bar, now));
  const behind = right + (item.mark ? 16 : 6);
  if (KINDS[bar[0]].pattern === "plain" && firstEnd - from > width + 6) {
    context.fillStyle = palette.colours.text;
    context.fillText(item.label, from, y + 0.5);
  } else if (behind >= layout.labels && behind + width < Math.min(until - 4, layout.width)) {
    context.fillStyle = palette.colours.text;
    context.fillText(item.label, behind, y + 0.5);
  }
}

export function drawMark(context, mark, x, y, palette) {
  context.fillStyle = context.strokeStyle = palette.colours[MARKS[mark].paint];
  context.lineWidth = 1.8;
  context.beginPath();
  if (mark === "failed") {
    context.moveTo(x - 4, y - 4);
    context.lineTo(x + 4, y + 4);
    context.moveTo(x - 4, y + 4);
    context.lineTo(x + 4, y - 4);
    context.stroke();
    return;
  }
  context.arc(x, y, 4, 0, 2 * Math.PI);
  if (mark === "done") {
    context.fill();
  } else {
    context.moveTo(x - 3, y + 3);
    context.lineTo(x + 3, y - 3);
    context.stroke();
  }
}

function drawPresent({ context, layout, view, height, now, palette }) {
  const x = layout.x(view, now);
  if (x >= layout.labels && x <= layout.width) {
    line(context, x, layout.head, x, height, palette.colours.text, 1.5);
  }
}

function drawLabel({ context, layout, top, palette }, row) {
  const { labels, head, isNarrow, width } = layout;
  const y = head + row.top - top;
  line(context, 0, y + row.height, width, y + row.height, palette.colours.line);
  if (!isNarrow) {
    context.fillStyle = palette.colours.surface;
    context.fillRect(0, y, labels, row.height);
    line(context, 0, y + row.height, labels, y + row.height, palette.colours.line);
  }
  // The label of a tall row stays visible while a part of the row is.
  const middle = isNarrow ? y + 12 : Math.min(Math.max(y, head) + 15, y + row.height - 14);
  setFont(context, palette, 12, row.href ? 600 : 400);
  context.fillStyle = row.href ? palette.colours.accent : palette.colours.text;
  const room = (isNarrow ? width : labels) - 16;
  const label = shortened(context, row.label, room);
  context.fillText(label, 8, middle);
  const used = context.measureText(label).width + 8;
  setFont(context, palette, 11);
  if (row.note && room - used > 20) {
    context.fillStyle = palette.colours.muted;
    context.fillText(shortened(context, row.note, room - used), 8 + used, middle);
  }
}

function drawHead({ context, layout, view, now, palette }) {
  const { width, labels, head } = layout;
  const { colours } = palette;
  context.fillStyle = colours.surface;
  context.fillRect(0, 0, width, head);
  context.save();
  context.beginPath();
  context.rect(labels, 0, width - labels, head);
  context.clip();
  const { step, times } = ticks(view, width - labels);
  setFont(context, palette, 11);
  for (const time of times) {
    const x = layout.x(view, time);
    line(context, x, AXIS - 6, x, AXIS, colours.line);
    if (step < 86_400 && x > labels + 20 && x < width - 20) {
      context.fillStyle = colours.muted;
      context.textAlign = "center";
      context.fillText((step < 60 ? formats.second : formats.time).format(time * 1000), x, AXIS - 13);
    }
  }
  context.textAlign = "left";
  setFont(context, palette, 11, 600);
  const starts = days(view);
  let free = -Infinity;
  starts.forEach((start, n) => {
    const x = Math.max(layout.x(view, start), labels);
    const end = n + 1 < starts.length ? layout.x(view, starts[n + 1]) : Infinity;
    const text = formats.day.format(start * 1000);
    const length = context.measureText(text).width;
    if (x + length + 10 < end && x > free) {
      context.fillStyle = colours.text;
      context.fillText(text, x + 5, 12);
      free = x + length + 10;
    }
    line(context, x, 2, x, step < 86_400 ? 20 : AXIS, colours.line);
  });
  drawStrips({ context, layout, view, palette });
  const x = layout.x(view, now);
  context.fillStyle = colours.text;
  context.beginPath();
  context.moveTo(x - 5, head - 8);
  context.lineTo(x + 5, head - 8);
  context.lineTo(x, head);
  context.fill();
  context.restore();
  line(context, 0, head, width, head, colours.line);
}

function drawStrips({ context, layout, view, palette }) {
  setFont(context, palette, 11);
  for (const each of layout.backgrounds) {
    const kind = BACKGROUNDS[each.kind];
    const [left, right] = clipped(layout, view, each.from, each.to);
    if (right <= left) {
      continue;
    }
    const top = AXIS + STRIP * each.strip + 2;
    drawBox(context, kind, [left, top, right - left, STRIP - 4], palette);
    const beside = Math.min(layout.x(view, each.next), layout.width) - right - 10;
    const isBeside = context.measureText(each.label).width > right - left - 10 && beside > right - left - 10;
    const text = shortened(context, each.label, isBeside ? beside : right - left - 10);
    const start = isBeside ? right : left;
    if (text.length > 1) {
      if (!isBeside && kind.pattern !== "plain") {
        context.fillStyle = palette.colours.surface;
        context.fillRect(start + 3, top + 2, context.measureText(text).width + 6, STRIP - 8);
      }
      context.fillStyle = palette.colours.text;
      context.fillText(text, start + 6, top + STRIP / 2 - 1.5);
    }
  }
  if (layout.hiddenStrips > 0) {
    context.fillStyle = palette.colours.muted;
    context.fillText(`and ${layout.hiddenStrips} more; the table has all`, layout.labels + 6, AXIS + STRIP * (layout.strips + 0.5));
  }
}

function clipped(layout, view, from, to) {
  return [Math.max(layout.x(view, from), layout.labels), Math.min(layout.x(view, to), layout.width)];
}

function setFont(context, palette, size, weight = 400) {
  context.font = `${weight} ${size}px ${palette.font}`;
  context.textBaseline = "middle";
}

function line(context, x1, y1, x2, y2, colour, width = 1) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  context.moveTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
  context.lineTo(Math.round(x2) + 0.5, Math.round(y2) + 0.5);
  context.stroke();
}

function shortened(context, text, room) {
  if (context.measureText(text).width <= room) {
    return text;
  }
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= room) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low > 0 ? `${text.slice(0, low)}…` : "";
}

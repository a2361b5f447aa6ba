// The geometry of a time chart, without a canvas: which lane an item is in, where the ticks are, what is at a point.

export const AXIS = 42; // height of the time axis
export const STRIP = 20; // height of a line of backgrounds, below the axis
const LANE = 20;
const PLAN_LANE = 12;
const PADDING = 5; // above and below the lanes of a row
const TITLE = 17; // height of a row's label, where it is above its bars
const NARROW = 560;
const LABEL_SHARE = 0.2;
const LONGEST_LABEL = 210;
const MARK_SHARE = 0.015; // of the range, for the mark at the end of an item
const MOST_STRIPS = 3; // lines of backgrounds; below them is how many more there are

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
const STEPS = [1, 5, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE]
  .concat([1, 2, 3, 6, 12].map((hours) => hours * HOUR))
  .concat([1, 2, 7, 14, 28].map((days) => days * DAY));
const TICK_SPACE = 78; // the least number of pixels between two ticks

// An end of null is the present.
export function endOf(bar, now) {
  return bar[2] ?? Math.max(bar[1], now);
}

function extentOf(item, now) {
  return {
    ...item,
    from: Math.min(...item.bars.map((bar) => bar[1])),
    to: Math.max(...item.bars.map((bar) => endOf(bar, now))),
  };
}

// Put each item into the first lane in which it overlaps no other, and leaves room for the mark behind another.
function pack(items, height, margin = 0) {
  const lanes = [];
  for (const item of items.sort((a, b) => a.from - b.from || a.to - b.to)) {
    let lane = lanes.find(({ to }) => to + margin <= item.from);
    if (lane === undefined) {
      lane = { height, items: [], to: 0 };
      lanes.push(lane);
    }
    lane.items.push(item);
    lane.to = item.to;
  }
  return lanes;
}

// The strips of the backgrounds: those that overlap are below each other, what stops a campaign above its windows.
function packBackgrounds(backgrounds) {
  const isWindow = ({ kind }) => kind === "window";
  const strips = [
    ...pack(backgrounds.filter((each) => !isWindow(each)), STRIP),
    ...pack(backgrounds.filter(isWindow), STRIP),
  ];
  return strips.flatMap(({ items }, n) =>
    items.map((each, place) => ({ ...each, strip: n, next: items[place + 1]?.from ?? Infinity })),
  );
}

// The areas of the backgrounds: of each kind, those that overlap are one.
function uniteBackgrounds(backgrounds) {
  const areas = [];
  for (const { kind, from, to } of [...backgrounds].sort((a, b) => a.from - b.from)) {
    const before = areas.findLast((area) => area.kind === kind);
    if (before !== undefined && before.to >= from) {
      before.to = Math.max(before.to, to);
    } else {
      areas.push({ kind, from, to });
    }
  }
  return areas;
}

export class Layout {
  constructor(data, { width, now }) {
    this.isNarrow = width < NARROW;
    this.width = width;
    this.labels = this.isNarrow ? 0 : Math.min(LONGEST_LABEL, Math.round(width * LABEL_SHARE));
    const backgrounds = packBackgrounds(data.backgrounds);
    this.areas = uniteBackgrounds(backgrounds);
    this.backgrounds = backgrounds.filter(({ strip }) => strip < MOST_STRIPS);
    this.hiddenStrips = backgrounds.length - this.backgrounds.length;
    this.strips = this.backgrounds.reduce((most, { strip }) => Math.max(most, strip + 1), 0);
    this.head = AXIS + STRIP * (this.strips + (this.hiddenStrips > 0 ? 1 : 0));
    const margin = MARK_SHARE * (data.to - data.from);
    this.rows = [];
    let top = 0;
    for (const row of data.rows) {
      const items = row.items.filter((item) => item.bars.length > 0).map((item) => extentOf(item, now));
      const plan = pack(items.filter((item) => item.plan), PLAN_LANE);
      const real = pack(items.filter((item) => !item.plan), LANE, margin);
      const lanes = [...plan, ...real];
      if (lanes.length === 0) {
        lanes.push({ height: LANE, items: [], to: 0 });
      }
      const title = this.isNarrow ? TITLE : 0;
      let laneTop = top + PADDING + title;
      for (const lane of lanes) {
        lane.top = laneTop;
        laneTop += lane.height;
      }
      const height = laneTop + PADDING - top;
      this.rows.push({ label: row.label, note: row.note ?? "", href: row.href, top, height, lanes });
      top += height;
    }
    this.height = top; // of all rows, without the head
  }

  x(view, time) {
    return this.labels + ((time - view.from) / (view.to - view.from)) * (this.width - this.labels);
  }

  time(view, x) {
    return view.from + ((x - this.labels) / (this.width - this.labels)) * (view.to - view.from);
  }

  // The rows between two heights, by their numbers: [first, last).
  rowsBetween(top, bottom) {
    const first = firstIndex(this.rows, (row) => row.top + row.height > top);
    let last = first;
    while (last < this.rows.length && this.rows[last].top < bottom) {
      last += 1;
    }
    return [first, last];
  }

  rowAt(y) {
    const row = this.rows[firstIndex(this.rows, (each) => each.top + each.height > y)];
    return row !== undefined && row.top <= y ? row : null;
  }

  // The background whose strip is at a point of the head.
  backgroundAt(view, x, y) {
    const strip = Math.floor((y - AXIS) / STRIP);
    const time = this.time(view, x);
    return this.backgrounds.find((each) => each.strip === strip && each.from <= time && time < each.to) ?? null;
  }

  // The item at a point, or the nearest one within a few pixels: many are short.
  itemAt(view, x, y, tolerance = 6) {
    const lane = this.rowAt(y)?.lanes.find(({ top, height }) => top <= y && y < top + height);
    if (lane === undefined || x < this.labels) {
      return null;
    }
    const distances = itemsBetween(lane, this.time(view, x - 12), this.time(view, x + 12)).map((item) => {
      const [left, right] = [this.x(view, item.from), this.x(view, item.to)];
      return { item, distance: Math.max(left - x, x - right, 0) };
    });
    const nearest = distances.reduce((best, each) => (best === null || each.distance < best.distance ? each : best), null);
    return nearest !== null && nearest.distance <= tolerance ? nearest.item : null;
  }
}

// The items of a lane that overlap a range. They are in order and do not overlap each other.
export function itemsBetween(lane, from, to) {
  const first = firstIndex(lane.items, (item) => item.to >= from);
  let last = first;
  while (last < lane.items.length && lane.items[last].from <= to) {
    last += 1;
  }
  return lane.items.slice(first, last);
}

// The first index at which a condition holds that holds for all later ones, too.
export function firstIndex(list, holds) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(list[middle])) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Times of a chart are seconds since 1970; ticks are at round times in the zone of the reader.
function zoneOffset(time) {
  return -60 * new Date(time * 1000).getTimezoneOffset();
}

export function ticks(view, width) {
  const step = STEPS.find((each) => (each / (view.to - view.from)) * width >= TICK_SPACE) ?? STEPS.at(-1);
  const found = [];
  const offset = zoneOffset(view.from);
  for (let local = Math.ceil((view.from + offset) / step) * step; ; local += step) {
    const time = local - zoneOffset(local - offset);
    if (time > view.to) {
      return { step, times: found };
    }
    found.push(time);
  }
}

// The beginnings of the days in a range.
export function days(view) {
  const found = [];
  const day = new Date(view.from * 1000);
  day.setHours(0, 0, 0, 0);
  while (day.getTime() / 1000 <= view.to) {
    found.push(day.getTime() / 1000);
    day.setDate(day.getDate() + 1);
  }
  return found;
}

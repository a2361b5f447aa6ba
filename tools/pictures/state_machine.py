"""Layout of a state machine: its states in a row, the transitions that skip or go back as rails above and below."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from tools.pictures.svg import LINE, MUTED, Box, Canvas, Colour, Point, text_width

MARGIN, HEIGHT, RAIL, STUB, LABEL = 20, 46, 34, 11, 12

Edges = Mapping[tuple[str, str], Sequence[str]]
"""Source and target of each transition, with its triggers."""


def draw_states(states: Sequence[str], edges: Edges, *, title: str, colours: Mapping[str, Colour]) -> str:
    """Draw the states in their order."""
    order = {state: number for number, state in enumerate(states)}
    rails = _rails(edges, order)
    steps = {
        edge: [each for each in triggers if edge[0] not in rails.get((edge[1], each), ())]
        for edge, triggers in edges.items()
    }
    labels = {edge: _wrap(triggers) for edge, triggers in steps.items()}
    gaps = [_gap(labels.get(pair, ())) for pair in pairwise(states)]
    below = [rail for rail in rails if order[rail[0]] < max(order[source] for source in rails[rail])]
    above = [rail for rail in rails if rail not in below]
    # The rail to the nearest target is the innermost one.
    above.sort(key=lambda rail: order[rail[0]] - min(order[source] for source in rails[rail]))
    below.sort(key=lambda rail: max(order[source] for source in rails[rail]) - order[rail[0]])
    top = MARGIN + RAIL * len(above) + 12
    loops = {state: triggers for state in states if (triggers := steps.get((state, state)))}
    loop_height = max((LABEL * 1.4 * len(triggers) + 44 for triggers in loops.values()), default=0)
    height = top + HEIGHT + max(RAIL * len(below) + 16, loop_height) + MARGIN
    width = max(text_width(state, 14) for state in states) + 20
    canvas = Canvas(2 * MARGIN + width * len(states) + sum(gaps), height, title=title)

    boxes: dict[str, Box] = {}
    x: float = MARGIN
    for number, state in enumerate(states):
        boxes[state] = canvas.box(x, top, width, HEIGHT, state, colour=colours[state])
        x += width + (gaps[number] if number < len(gaps) else 0)
    for left, right in pairwise(states):
        _draw_step(canvas, boxes[left], boxes[right], labels.get((left, right), ()))
    _draw_rails(canvas, boxes, [(rail, rails[rail]) for rail in above], top - RAIL, up=True)
    _draw_rails(canvas, boxes, [(rail, rails[rail]) for rail in below], top + HEIGHT + RAIL, up=False)
    for state, triggers in loops.items():
        _draw_loop(canvas, boxes[state], triggers)
    return canvas.render()


def _wrap(triggers: Sequence[str]) -> Sequence[str]:
    """Return the lines of a label: each word of a single trigger, or each of several triggers."""
    return triggers[0].split() if len(triggers) == 1 else triggers


def _gap(lines: Sequence[str]) -> float:
    return max([40.0, *(text_width(line, LABEL) + 16 for line in lines)])


def _rails(edges: Edges, order: Mapping[str, int]) -> dict[tuple[str, str], list[str]]:
    """Return the sources of each rail, by target and trigger.

    Transitions that skip a state or go back have a rail. The others of a trigger that goes back join its rail.
    """
    rails: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    back = {
        (target, each) for (source, target), some in edges.items() if order[target] < order[source] for each in some
    }
    for (source, target), triggers in edges.items():
        is_step = order[target] - order[source] in (0, 1)
        for trigger in triggers:
            if not is_step or (target, trigger) in back:
                rails[target, trigger].append(source)
    return dict(rails)


def _draw_step(canvas: Canvas, left: Box, right: Box, lines: Sequence[str]) -> None:
    if not lines:
        return
    canvas.arrow(left.right(), right.left())
    middle = (left.right()[0] + right.left()[0]) / 2
    y = left.right()[1] - 8 - (len(lines) - 1) * LABEL * 1.3
    for number, line in enumerate(lines):
        canvas.text(middle, y + number * LABEL * 1.3, line, size=LABEL, colour=MUTED)


def _draw_rails(
    canvas: Canvas,
    boxes: Mapping[str, Box],
    rails: Sequence[tuple[tuple[str, str], Sequence[str]]],
    y: float,
    *,
    up: bool,
) -> None:
    """Draw rails, the innermost first. They leave a box on one half and arrive on the other, each at its own place."""
    edge = Box.top if up else Box.bottom
    places: list[tuple[str, list[Point], Point, float]] = []
    for level, ((target, trigger), sources) in enumerate(rails):
        shift = (level + 1) * STUB / boxes[target].width
        starts = [edge(boxes[source], 0.5 + shift if up else 0.5 - shift) for source in sources]
        places.append((trigger, starts, edge(boxes[target], 0.5 - shift if up else 0.5 + shift), y))
        y += -RAIL if up else RAIL
    for level, (trigger, starts, end, y) in enumerate(places):
        xs = sorted([*(x for x, _ in starts), end[0]])
        for x, start_y in starts:
            canvas.line((x, start_y), (x, y), colour=LINE, width=1.6)
            canvas.dot(x, y, colour=LINE, radius=2.5)
        canvas.line((xs[0], y), (xs[-1], y), colour=LINE, width=1.6)
        canvas.arrow((end[0], y), end, colour=LINE)
        # The label is where no line of an outer rail crosses it.
        outer = [x for _, ends, last, _ in places[level + 1 :] for x, _ in (*ends, last) if xs[0] < x < xs[-1]]
        left, right = max(pairwise(sorted([*xs, *outer])), key=lambda gap: gap[1] - gap[0])
        canvas.text((left + right) / 2, y - 7, trigger, size=LABEL, colour=MUTED, halo=True)


def _draw_loop(canvas: Canvas, box: Box, triggers: Sequence[str]) -> None:
    left, right, y = box.bottom(0.25), box.bottom(0.75), box.bottom()[1] + 26
    canvas.arrow(left, (left[0], y), (right[0], y), right)
    for number, trigger in enumerate(triggers):
        canvas.text(box.bottom()[0], y + 18 + number * LABEL * 1.4, trigger, size=LABEL, colour=MUTED)

"""GET per second, one process and one VM, against nginx with a constant answer of the same size."""

from statistics import median

import msgspec

from bench import nginx, wrk
from bench.figures import thousands
from bench.finding import Finding, per_second
from bench.fleets import Shape
from bench.guest import TARGET
from bench.served import UNREACHED, Served, serving
from bench.service import Task
from bench.workplace import Workplace

TARGET_RATIO = 0.75
ONE_VM = Shape(scopes=1, vms_each=1)


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How long to measure."""

    rounds: int = 5
    seconds: int = 3
    connections: int = 32


FULL = Size()
QUICK = Size(rounds=1, seconds=1)


class Rates(msgspec.Struct):
    """Answers per second, round by round."""

    ours: list[float] = []
    theirs: list[float] = []

    @property
    def ratio(self) -> float:
        """Our median in terms of theirs."""
        return median(self.ours) / median(self.theirs)


def measure(place: Workplace, size: Size = FULL) -> Finding:
    """Let wrk ask both in turn."""
    task = Task(data=str(place.fleet(ONE_VM)), requests_per_second=UNREACHED)
    with serving(task) as served:
        answer = nginx.sample(served.port)
        with nginx.serving(place.empty_directory(), answer) as nginx_port:
            theirs = nginx.sample(nginx_port)
            if (theirs.size, len(theirs.headers)) != (answer.size, len(answer.headers)):
                raise ValueError(f"nginx answers {theirs.size} bytes, Forewarn {answer.size}")
            rates = _alternate(place, size, served, nginx_port, answer.size)
    return Finding(
        what="GET/s, one process, one VM, against nginx",
        measured=f"{rates.ratio:.2f} × nginx ({thousands(median(rates.ours))}/s : {thousands(median(rates.theirs))}/s)",
        target=f"≥ {TARGET_RATIO} × nginx",
        met=rates.ratio >= TARGET_RATIO,
        figures={
            "ratio": round(rates.ratio, 3),
            "forewarn_per_second": per_second(rates.ours),
            "nginx_per_second": per_second(rates.theirs),
            "answer_bytes": answer.size,
        },
        note=(
            f"wrk -t1 -c{size.connections} -d{size.seconds}s against both in turn, median of {size.rounds}; answers of "
            f"{answer.size} bytes with {len(answer.headers)} headers; production limits, but for a rate limit "
            f"that is on and set so high that it refuses nothing"
        ),
    )


def _alternate(place: Workplace, size: Size, served: Served, nginx_port: int, answer_bytes: int) -> Rates:
    rates = Rates()
    before = served.look().answers[200]
    counted = 0
    for number in range(1, size.rounds + 1):
        theirs = _ask(nginx_port, size, answer_bytes)
        ours = _ask(served.port, size, answer_bytes)
        rates.theirs.append(theirs.per_second)
        rates.ours.append(ours.per_second)
        counted += ours.requests
        place.say(
            f"    round {number} of {size.rounds}: nginx {thousands(theirs.per_second)}/s, "
            f"Forewarn {thousands(ours.per_second)}/s"
        )
    if served.look().answers[200] - before < counted:
        raise ValueError("Forewarn has counted fewer answers than wrk")
    return rates


def _ask(port: int, size: Size, answer_bytes: int) -> wrk.Summary:
    summary = wrk.run(wrk.command(port, connections=size.connections, seconds=size.seconds, target=TARGET))
    wrk.check(summary, answer_bytes=answer_bytes, connections=size.connections)
    return summary

"""Property test: random scenarios give the same facts on the core and in a service."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from forewarn.testing.scenario import CoreBackend, LiveBackend, parse, run_script
from forewarn.testing.service import Forewarn
from tests.support.examples import examples
from tests.testing.scenario.backends import NO_FLEET, render, without_reasons

# A service that has run other scenarios may remember their hosts, so this scenario has all of them.
WORLD = """
platform automatic
scope web availability-set terminate-notice 5m priority low
vm web-0 web-1 domain 0 host hv-0
vm web-2 domain 1 host hv-1
vm web-3 domain 1
vm web-4 domain 2 host hv-2
schedule Freeze web-3 in 1h →
schedule Reboot web-0 web-2 →
"""

VMS = st.sampled_from(["web-0", "web-1", "web-2", "web-3"])
EVENTS = st.sampled_from(["E1", "E2", "E3"])
TIMES = st.sampled_from(["1s", "30s", "59s", "1m", "5m", "9m59s", "10m", "15m", "1h"])

COMMANDS = st.one_of(
    st.builds("schedule {} {} in {}".format, st.sampled_from(["Freeze", "Reboot", "Redeploy", "Preempt"]), VMS, TIMES),
    st.builds("schedule Freeze {} lasting {}".format, VMS, TIMES),
    st.builds("schedule Reboot {} {}".format, VMS, VMS),
    st.builds("restart {}".format, VMS),
    st.builds("redeploy {}".format, VMS),
    st.builds("delete {}".format, VMS),
    st.builds("evict {}".format, VMS),
    st.builds("fail {}".format, VMS),
    st.builds("predict {} in {}".format, VMS, TIMES),
    st.builds("cancel {}".format, EVENTS),
    st.builds("approve {} by {}".format, EVENTS, VMS),
    st.builds("approve {} {} by {}".format, EVENTS, EVENTS, VMS),
    st.builds("move {} to {}".format, VMS, st.sampled_from(["hv-0", "hv-1", "hv-2"])),
    st.builds("remove vm {} force".format, VMS),
    st.builds("change scope web approval {}".format, st.sampled_from(["any", "all"])),
    st.just('hold web "works"'),
    st.just("release web"),
    st.builds("wait {}".format, TIMES),
    st.builds("expect {} {} within {}".format, EVENTS, st.sampled_from(["Started", "Completed", "Canceled"]), TIMES),
    st.builds("expect nothing within {}".format, TIMES),
)


@pytest.fixture(scope="module")
def service() -> Iterator[Forewarn]:
    with Forewarn(NO_FLEET) as running:
        yield running


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(COMMANDS, min_size=1, max_size=15))
@example(["redeploy web-0", "remove vm web-2 force", "wait 15m"])  # redeploy to a host that has become empty
@example(["approve E2 by web-0", "wait 30s", "evict web-0", "wait 30s"])  # an event is due when other work ends
def test_core_and_service_give_the_same_facts(service: Forewarn, commands: list[str]) -> None:
    script = parse(WORLD + "\n".join(f"{command} →" for command in commands))
    by_core = list(run_script(script, CoreBackend()))
    with LiveBackend(service.api) as backend:
        by_service = list(run_script(script, backend))
    assert without_reasons(render(script, by_service)) == without_reasons(render(script, by_core))
    met = [(each.step.text, each.is_as_expected) for each in by_core if each.step.text.startswith("expect")]
    assert [(each.step.text, each.is_as_expected) for each in by_service if each.step.text.startswith("expect")] == met

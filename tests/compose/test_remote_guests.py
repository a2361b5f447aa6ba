"""Guest endpoints of a control node: the URLs come from the records of hosts."""

from forewarn.compose.remote_guests import RemoteGuests
from forewarn.guest.counters import Counters
from forewarn.operator.state import GuestEndpoints
from tests.core.sample_scopes import scope, vm
from tests.fleet.fleets import run_fleet


async def test_url_is_the_port_on_the_host() -> None:
    async with run_fleet(scope("web", vm("web-0", host="hv-0"), vm("web-1"))) as fleet:
        guests: GuestEndpoints = RemoteGuests(fleet.cluster.hosts, Counters())
        web_0, web_1 = fleet.replica.scope("web").roster
        assert guests.url("web", web_0) is None
        await fleet.cluster.hosts.claim("hv-0", "p", "a test", {})
        await fleet.cluster.hosts.assign_ports("hv-0", "p", "127.0.0.1", {"web/web-0": 20_000})
        assert [guests.url("web", each) for each in (web_0, web_1)] == ["http://127.0.0.1:20000", None]
        assert (guests.preview("web", web_0), guests.port_problem("web", web_0)) == (None, None)

"""Fleet page: blocks of scopes and hosts, filters in the URL, further parts, and what a limited token sees."""

import re

import pytest

from forewarn.core.access import Role
from forewarn.core.scope import Scope
from forewarn.fleet.replica import Replica
from forewarn.operator.dashboard.fleet_page import BLOCKS_PER_PART, NAMED_TILES, VMS_PER_CELL, short_name
from tests.operator.dashboard.signed_in import SignedIn, sign_in
from tests.operator.running_api import run_api, schedule_event


async def tiles(browser: SignedIn, path: str) -> list[str]:
    """Return name and state of each VM on the page."""
    answer = await browser.get(path)
    assert answer.status == 200, answer.body.decode()
    return re.findall(r'<a class="tile [^>]* title="([^,"]*), on ', answer.body.decode())


async def test_page_has_every_scope_with_its_vms_by_domain() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        text = await browser.text("/ui/fleet")
        assert "web availability-set · 6 VMs FD 0 FD 1 FD 2 UD 0 web-0 scheduled web-3 not polling UD 1 web-1" in text
        assert len(await tiles(browser, "/ui/fleet")) == 15


async def test_filters_are_in_the_url() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        assert await tiles(browser, "/ui/fleet?q=WEB-0&state=&view=scopes") == ["web-0: scheduled"]
        assert await tiles(browser, "/ui/fleet?state=scheduled") == ["web-0: scheduled"]
        assert await tiles(browser, "/ui/fleet?q=10.20.1.4") == ["web-0: scheduled"]
        assert len(await tiles(browser, "/ui/fleet?q=shop")) == 4
        assert "No VM matches." in await browser.text("/ui/fleet?q=nothing")
        wrong = await browser.get("/ui/fleet?state=red")
        assert (wrong.status, b"State is one of failed, in impact" in wrong.body) == (400, True)


async def test_hosts_have_the_vms_of_all_scopes() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        hosts = {vm.host for vm in service.fleet.replica.scope("web").roster}
        text = await browser.text("/ui/fleet?view=hosts")
        assert all(f"{host} host · " in text for host in hosts)
        assert len(await tiles(browser, "/ui/fleet?view=hosts")) == 15
        assert await tiles(browser, "/ui/fleet?view=hosts&q=web-0") == ["web-0: not polling"]
        page = (await browser.get("/ui/fleet?view=hosts&q=web-0")).body.decode()
        assert '<a href="/ui/fleet?scope=web" title="web">web</a>' in page


async def test_large_fleet_is_sent_in_parts() -> None:
    count = BLOCKS_PER_PART * 2 + 5
    fleet = "".join(
        f'[[scopes]]\nname = "s{n:03}"\nkind = "standalone"\nhosts = ["h{n % 7}"]\nvms = [{{ name = "vm-{n:03}" }}]\n'
        for n in range(count)
    )
    async with run_api(fleet_file=fleet) as service:
        browser = await sign_in(service)
        path: str | None = "/ui/fleet"
        names: list[str] = []
        parts = 0
        while path is not None:
            page = (await browser.get(path)).body.decode()
            assert ("<html" in page) is (parts == 0)
            names += re.findall(r'title="(vm-\d+):', page)
            following = re.search(r'class="more" hx-get="([^"]*)"', page)
            path = following[1].replace("&amp;", "&") if following else None
            parts += 1
        assert (names, parts) == ([f"vm-{n:03}" for n in range(count)], 3)


async def test_part_ends_with_a_full_row_of_blocks() -> None:
    fleet = "".join(
        f'[[scopes]]\nname = "s{n:02}"\nkind = "availability-set"\nhosts = ["h"]\n'
        f'vms = [{{ name = "vm{n}-{{n}}", count = 20 }}]\n'
        for n in range(40)
    )
    async with run_api(fleet_file=fleet) as service:
        browser = await sign_in(service)
        for path, first, last in (("fleet", "s00", "s23"), ("fleet/part?after=s23", "s24", "s39")):
            blocks = re.findall(r'id="block-(s\d+)"', (await browser.get(f"/ui/{path}")).body.decode())
            assert (blocks[0], blocks[-1]) == (first, last)


async def test_parts_of_hosts_have_a_limited_number_of_vms() -> None:
    fleet = "".join(
        f'[[scopes]]\nname = "s{n}"\nkind = "availability-set"\nhosts = ["h{n}"]\n'
        f'vms = [{{ name = "vm{n}-{{n}}", count = 400 }}]\n'
        for n in range(4)
    )
    async with run_api(fleet_file=fleet) as service:
        browser = await sign_in(service)
        page = (await browser.get("/ui/fleet?view=hosts")).body.decode()
        assert re.findall(r'id="block-(h\d)"', page) == ["h0", "h1"]
        following = await browser.get("/ui/fleet/part?view=hosts&after=h1")
        assert re.findall(r'id="block-(h\d)"', following.body.decode()) == ["h2", "h3"]


async def test_filter_of_hosts_finds_the_last_one_at_once() -> None:
    count = BLOCKS_PER_PART * 2 + 5
    fleet = "".join(
        f'[[scopes]]\nname = "s{n:03}"\nkind = "standalone"\nhosts = ["h{n:03}"]\nvms = [{{ name = "vm-{n:03}" }}]\n'
        for n in range(count)
    )
    async with run_api(fleet_file=fleet) as service:
        browser = await sign_in(service)
        page = (await browser.get(f"/ui/fleet?view=hosts&q=h{count - 1:03}")).body.decode()
        assert (re.findall(r'id="block-(h\d+)"', page), "Loading more" in page) == ([f"h{count - 1:03}"], False)
        assert "No VM matches." in await browser.text("/ui/fleet?view=hosts&q=nothing")


async def test_large_scope_is_shortened() -> None:
    fleet = (
        '[[scopes]]\nname = "big"\nkind = "availability-set"\nhosts = ["h"]\n'
        f'vms = [{{ name = "vm-{{n}}", count = {VMS_PER_CELL + 7}, update_domain = 0 }}]\n'
    )
    async with run_api(fleet_file=fleet) as service:
        browser = await sign_in(service)
        assert "and 7 VMs more" in await browser.text("/ui/fleet")


async def test_block_of_a_scope_is_updated_alone() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert len(await tiles(browser, "/ui/fleet/scopes/web?q=&state=")) == 6
        assert len(await tiles(browser, "/ui/fleet/hosts/hv-0?view=hosts&q=web")) == 2
        for gone in ("scopes/nothing", "hosts/nothing", "scopes/web?state=failed"):
            answer = await browser.get(f"/ui/fleet/{gone}")
            assert (answer.status, answer.body.strip()) == (200, b"")


async def test_part_is_updated_up_to_its_last_block() -> None:
    """A part that has grown keeps its end, and does not announce the next part again."""
    async with run_api() as service:
        browser = await sign_in(service)
        page = (await browser.get("/ui/fleet/part?after=batch&until=shop")).body.decode()
        assert (re.findall(r'id="block-([^"]*)"', page), "Loading more" in page) == (["db-0", "shop"], False)
        page = (await browser.get("/ui/fleet/part?view=hosts&after=hv-0&until=hv-2")).body.decode()
        assert re.findall(r'id="block-([^"]*)"', page) == ["hv-1", "hv-2"]


async def test_part_that_has_grown_too_much_ends_earlier_and_announces_the_rest() -> None:
    count = BLOCKS_PER_PART + 5
    fleet = "".join(
        f'[[scopes]]\nname = "s{n:03}"\nkind = "standalone"\nhosts = ["h{n:03}"]\nvms = [{{ name = "vm-{n:03}" }}]\n'
        for n in range(count)
    )
    async with run_api(fleet_file=fleet) as service:
        browser = await sign_in(service)
        for view, prefix in (("scopes", "s"), ("hosts", "h")):
            page = (await browser.get(f"/ui/fleet/part?view={view}&until=zzz")).body.decode()
            paths = [
                path.replace("&amp;", "&") for path in re.findall(r'class="(?:part|more)".*? hx-get="([^"]*)"', page)
            ]
            assert paths == [
                f"/ui/fleet/part?view={view}&until={prefix}059",
                f"/ui/fleet/part?view={view}&after={prefix}059&until=zzz",
            ]
            rest = (await browser.get(paths[1])).body.decode()
            blocks = [re.findall(r'id="block-([^"]*)"', text) for text in (page, rest)]
            assert [(found[0], found[-1]) for found in blocks] == [
                (f"{prefix}000", f"{prefix}059"),
                (f"{prefix}060", f"{prefix}064"),
            ]
            assert "Loading more" not in rest


async def test_filter_of_hosts_examines_each_scope_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts of several parts that do not match are not a reason to examine the fleet several times."""
    count = BLOCKS_PER_PART * 2 + 5
    fleet = "".join(
        f'[[scopes]]\nname = "s{n:03}"\nkind = "standalone"\nhosts = ["h{n:03}"]\nvms = [{{ name = "vm-{n:03}" }}]\n'
        for n in range(count)
    )
    async with run_api(fleet_file=fleet) as service:
        browser = await sign_in(service)
        examined: list[str] = []
        newest = Replica.newest

        def record(replica: Replica, id_: str) -> tuple[Scope | None, int | None]:
            examined.append(id_)
            return newest(replica, id_)

        monkeypatch.setattr(Replica, "newest", record)
        assert await tiles(browser, "/ui/fleet/part?view=hosts&state=failed") == []
        assert examined == [f"s{n:03}" for n in range(count)]


async def test_states_are_counted_and_lead_to_their_vms() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("team", Role.VIEWER, "web", "shop"))
        await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        page = (await browser.get("/ui/fleet/states?q=web")).body.decode()
        assert re.findall(r'href="([^"]*)"[^>]*>([^<]*)<', page)[5:7] == [
            ("/ui/fleet?q=web&amp;state=scheduled&amp;view=scopes", "Scheduled 1"),
            ("/ui/fleet?q=web&amp;state=not+polling&amp;view=scopes", "Not polling 9"),
        ]


async def test_scopes_and_hosts_have_links_that_show_them_alone() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert {tile[:3] for tile in await tiles(browser, "/ui/fleet?scope=web")} == {"web"}
        assert await tiles(browser, "/ui/fleet?scope=w") == []
        page = (await browser.get("/ui/fleet?view=hosts&host=hv-0")).body.decode()
        assert re.findall(r'id="block-([^"]*)"', page) == ["hv-0"]


async def test_large_block_has_marks_without_names() -> None:
    fleet = (
        '[[scopes]]\nname = "big"\nkind = "availability-set"\nhosts = ["h"]\n'
        f'vms = [{{ name = "vm-{{n}}", count = {NAMED_TILES + 1} }}]\n'
    )
    async with run_api(fleet_file=fleet) as service:
        browser = await sign_in(service)
        assert '<section class="card block marks"' in (await browser.get("/ui/fleet")).body.decode()


def test_long_names_are_shortened_at_their_beginning() -> None:
    assert [short_name("web-0"), short_name("virtual-machine-scale-set-0001")] == ["web-0", "…ne-scale-set-0001"]


async def test_limited_token_sees_only_its_scopes() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("team", Role.VIEWER, "web"))
        for path in ("/ui/fleet", "/ui/fleet?view=hosts"):
            assert {tile.partition("-")[0] for tile in await tiles(browser, path)} == {"web"}
        assert (await browser.get("/ui/fleet/scopes/shop")).status == 403
        assert (await browser.get("/ui/fleet?scope=shop")).body.count(b'class="tile') == 0


async def test_viewing_the_fleet_enables_no_scope() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        before = await service.stored_state()
        for path in ("/ui/fleet", "/ui/fleet?view=hosts", "/ui/fleet/scopes/web", "/ui/vms/web/web-0"):
            assert (await browser.get(path)).status == 200
        assert await service.stored_state() == before

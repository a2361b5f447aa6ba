"""Names in a scenario: labels of events, ordinals of epochs, short times."""

from datetime import timedelta

from forewarn.testing.scenario.render import FIRST_DAY, Names

ONE, OTHER = "602D9444-D2CD-49C7-8624-8643E7171297", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"
TEN = FIRST_DAY + timedelta(hours=10)


def test_events_are_labelled_in_the_order_of_their_appearance() -> None:
    names = Names()
    assert [names.label(id_) for id_ in (ONE, OTHER, ONE)] == ["E1", "E2", "E1"]
    assert (names.event("E2"), names.event("E3"), names.has_event(ONE), names.has_event("x")) == (
        OTHER,
        None,
        True,
        False,
    )


def test_epochs_are_counted_within_their_scope() -> None:
    names = Names()
    assert [names.epoch("web", "a"), names.epoch("web", "b"), names.epoch("web", "a"), names.epoch("db", "c")] == [
        1,
        2,
        1,
        1,
    ]
    assert (names.newest_epoch("web"), names.newest_epoch("unknown")) == (2, 1)


def test_times_are_offsets_from_the_first_day_at_the_speed_of_the_scenario() -> None:
    names = Names(speed=60.0)
    moment = names.moment(timedelta(hours=10))
    assert moment == FIRST_DAY + timedelta(minutes=10)
    assert (names.time(moment), names.duration("15.000s")) == ("10:00", "15m")


def test_times_of_a_live_service_are_rounded() -> None:
    names = Names(precision=timedelta(seconds=1))
    assert names.time(TEN + timedelta(seconds=1.4)) == "10:00:01"
    assert names.duration("59.700s") == "1m"
    assert Names().time(TEN + timedelta(seconds=1.5)) == "10:00:01.5"


def test_ids_and_dates_in_a_text_are_replaced() -> None:
    names = Names()
    names.label(ONE)
    assert (
        names.replace_ids(f"{ONE} waits for {OTHER} until 2030-01-07T10:15:00Z") == f"E1 waits for {OTHER} until 10:15"
    )

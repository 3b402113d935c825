"""Retries, parking, disabling, leases: what becomes of events that do not arrive."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from gateway.relay import database, delivery_worker, pull, subscriptions
from gateway.relay.delivery_worker import WINDOW_BYTES
from gateway.relay.relay import Relay
from gateway.relay.targets.contract import SEND_TIMEOUT_S, WHY_CHARS_MAX, Failed
from gateway.relay.targets.webhook import WebhookTarget
from tests.relay.conftest import Bench, until
from tests.relay.receivers import SECRET, Answer, WebReceiver, web_receiver
from tests.support.accounts import SPEC
from tests.support.calls import appended, new_id

DAY_S = 86_400.0
MACHINE_S = 10.0
"""By so much, what is due may be late on a busy machine whose disk stalls."""


class Clock:
    """Unix seconds that stand still unless a test moves them on."""

    def __init__(self) -> None:
        self.begun, self.moved = time.time(), 0.0

    def __call__(self) -> float:
        return self.begun + self.moved

    def move(self, relay: Relay, by_s: float) -> None:
        self.moved += by_s
        for each in relay._couriers:  # they sleep by the machine's
            each._wake.set()


def to(receiver: WebReceiver, **more: object) -> dict[str, object]:
    return {"type": "webhook", "url": receiver.url, "secret": SECRET, **more}


async def holds(bench: Bench, name: str, **wanted: object) -> None:
    async def so() -> bool:
        stands = await bench.stands(name)
        return all(stands[key] == value for key, value in wanted.items())

    await until(so)


# ---- the schedule ----


async def test_attempts_follow_the_schedule_within_its_jitter_and_never_early(
    bench: Bench, receiver: WebReceiver
) -> None:
    schedule = [0.3, 0.6, 0.9]
    receiver.answer = lambda _: Answer(500)
    await bench.put("all", to(receiver, retry_s=schedule))
    async with bench.relaying(chance=lambda: 1.0):
        await bench.append([new_id()])
        await holds(bench, "all", parked=1)
    times = [each.at for each in receiver.deliveries]
    waits = [later - before for before, later in itertools.pairwise(times)]
    assert len(waits) == len(schedule)
    for waited, scheduled in zip(waits, schedule, strict=True):
        assert scheduled * 1.1 - 0.001 <= waited < scheduled * 1.1 + MACHINE_S, waits
    stamps = [int(each.headers["webhook-timestamp"]) for each in receiver.deliveries]
    assert stamps == sorted(stamps) and len({each.id for each in receiver.deliveries}) == 1


async def test_the_whole_of_the_usual_schedule_by_a_clock_that_a_test_moves(
    bench: Bench, receiver: WebReceiver
) -> None:
    clock = Clock()
    receiver.answer = lambda _: Answer(503)
    await bench.put("all", to(receiver))
    async with bench.relaying(clock=clock, chance=lambda: 0.0) as relay:
        await bench.append([new_id()])
        for attempt, wait_s in enumerate((5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400), 1):
            await holds(bench, "all", retrying=1)
            await until(lambda done=attempt: len(receiver.deliveries) == done)
            waiting = await _waiting(bench, attempt)
            assert waiting["due_at"] - clock() == pytest.approx(wait_s, abs=0.01)
            clock.move(relay, wait_s - 1)  # not yet
            await asyncio.sleep(0.05)
            assert len(receiver.deliveries) == attempt
            clock.move(relay, 2)
        await holds(bench, "all", parked=1, retrying=0)
    assert len(receiver.deliveries) == 10


async def _waiting(bench: Bench, attempts: int) -> dict[str, float]:
    found: list[dict[str, float]] = []

    async def noted() -> bool:
        found[:] = await bench.subscriptions.waiting(bench.tenant, "all", "retrying", 10) or []
        return bool(found) and found[0]["attempts"] == attempts

    await until(noted)
    return found[0]


async def test_retry_after_is_obeyed_where_it_asks_for_more(bench: Bench, receiver: WebReceiver) -> None:
    receiver.answer = lambda _: (
        Answer(429, {"retry-after": "1"}) if len(receiver.deliveries) == 0 else Answer()
    )
    await bench.put("all", to(receiver, retry_s=[0.05] * 5))
    async with bench.relaying():
        await bench.append([new_id()])
        await until(lambda: len(receiver.deliveries) == 2)
    first, second = receiver.deliveries
    assert second.at - first.at >= 1.0


async def test_a_retry_after_that_is_none_is_passed_over(bench: Bench, receiver: WebReceiver) -> None:
    receiver.answer = lambda _: (
        Answer(503, {"retry-after": "Mon, 01 Jan 99999999999 00:00:00 GMT"})
        if len(receiver.deliveries) == 0
        else Answer()
    )
    await bench.put("all", to(receiver, retry_s=[0.05] * 5))
    async with bench.relaying():
        await bench.append([new_id()])
        await until(lambda: len(receiver.accepted) == 1)


@pytest.mark.bug
async def test_a_bug_in_a_target_is_a_failed_attempt(
    bench: Bench, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(WebhookTarget, "_post", broken)
    await bench.put("all", to(receiver, retry_s=[0.05]))
    async with bench.relaying():
        await bench.append([new_id()])
        await holds(bench, "all", parked=1)
    attempts = await bench.subscriptions.attempts(bench.tenant, "all", None, 10)
    assert attempts is not None
    assert [(each["attempt"], each["outcome"]) for each in attempts] == [(2, "failed"), (1, "failed")]
    assert "ZeroDivisionError" in attempts[0]["error"]
    assert sum(each.message == "delivery_error" for each in caplog.records) == 2


@pytest.mark.bug
async def test_a_subscription_that_can_not_be_started_says_so_and_keeps_no_other_from_it(
    bench: Bench, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("gateway.relay.targets.table.RedisStreamTarget", broken)
    redis = {"type": "redis_stream", "url": "redis://127.0.0.1:1/0", "stream": "x"}
    await bench.put("first", redis)
    await bench.put("second", to(receiver))
    async with bench.relaying():
        await bench.append([new_id()])
        await until(lambda: len(receiver.accepted) == 1)
        assert "ZeroDivisionError" in (await bench.stands("first"))["why"]


async def test_what_a_receiver_says_of_a_failure_is_kept_as_far_as_it_can_be(
    bench: Bench, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_: Any) -> Failed:
        return Failed("No\0, \ud800! " + "x" * 3_000_000)

    monkeypatch.setattr(WebhookTarget, "_post", refuses)
    await bench.put("all", to(receiver, retry_s=[]))
    async with bench.relaying():
        await bench.append([new_id()])
        await holds(bench, "all", parked=1, lag_events=0)
    (parked,) = await bench.subscriptions.waiting(bench.tenant, "all", "parked", 10) or []
    (attempt,) = await bench.subscriptions.attempts(bench.tenant, "all", None, 10) or []
    assert parked["error"] == attempt["error"]
    assert parked["error"].startswith("No\ufffd, \ufffd! xxx")
    assert len(parked["error"]) == WHY_CHARS_MAX


async def _replays(bench: Bench) -> None:
    assert await bench.subscriptions.replay(bench.tenant, "all") == 0


async def _pauses_and_resumes(bench: Bench) -> None:
    assert await bench.subscriptions.pause(bench.tenant, "all")
    assert await bench.subscriptions.resume(bench.tenant, "all")


@pytest.mark.parametrize("admin", [_replays, _pauses_and_resumes])
@pytest.mark.parametrize("under_way", [False, True])
async def test_what_became_of_deliveries_outlives_what_an_admin_does_beside_them(
    bench: Bench, receiver: WebReceiver, admin: Callable[[Bench], Awaitable[None]], under_way: bool
) -> None:
    async def attempts() -> list[dict[str, Any]]:
        return await bench.subscriptions.attempts(bench.tenant, "all", None, 10) or []

    async def noted() -> bool:
        return len(await attempts()) == 1

    receiver.answer = lambda _: Answer(503, {"retry-after": "60"})
    await bench.put("all", to(receiver, retry_s=[60]))
    async with bench.relaying():
        await until(lambda: _delivered_by_any(bench))
        if under_way:
            await bench.append([new_id()])
            await until(lambda: len(receiver.deliveries) == 1)
            await admin(bench)
        else:
            await admin(bench)
            await bench.append([new_id()])
        await until(noted)
        await until(lambda: _delivered_by_any(bench))
        await holds(bench, "all", retrying=1)
    assert len(receiver.deliveries) == 1
    assert [(each["attempt"], each["status"]) for each in await attempts()] == [(1, 503)]


async def _delivered_by_any(bench: Bench) -> bool:
    return bool(await bench.pool.fetchval("SELECT lease_until > now() FROM subscription"))


async def test_a_delivery_that_hangs_as_an_admin_acts_is_made_again_no_earlier_than_it_is_over(
    bench: Bench, receiver: WebReceiver
) -> None:
    receiver.answer = lambda _: Answer(hang=True)
    await bench.put("all", to(receiver, retry_s=[60]))
    async with bench.relaying():
        earliest = time.time()
        await bench.append([new_id()])
        await until(lambda: len(receiver.deliveries) == 1)
        latest = time.time()
        await _replays(bench)
        waiting = await _waiting(bench, 0)
    assert len(receiver.deliveries) == 1
    assert earliest - 0.001 <= waiting["due_at"] - SEND_TIMEOUT_S <= latest + 0.001


async def test_events_that_another_filter_does_not_take_are_not_sent_any_more(
    bench: Bench, receiver: WebReceiver
) -> None:
    receiver.answer = lambda _: Answer(500)
    await bench.put("all", to(receiver, retry_s=[0.5] * 40), types=["order"])
    key = new_id()
    async with bench.relaying():
        await bench.append([key], 2)
        await holds(bench, "all", retrying=1)
        await bench.put("all", to(receiver, retry_s=[0.5] * 40), types=["cart"])
        await holds(bench, "all", retrying=0, lag_events=0)
        receiver.answer = lambda _: Answer()
        await bench.append([key])
        await until(lambda: _stands_at_the_head(bench))
    assert receiver.accepted == []


async def _stands_at_the_head(bench: Bench) -> bool:
    return await bench.pool.fetchval("SELECT seq FROM subscription") == await bench.head()


async def test_however_many_are_due_at_once_they_get_on_and_the_lease_is_kept(
    bench: Bench, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a relay takes over what waits, with a Postgres that is some way off."""
    answered = database.next_of_aggregate

    async def farther(*given: Any) -> Any:
        await asyncio.sleep(0.01)
        return await answered(*given)

    monkeypatch.setattr(database, "next_of_aggregate", farther)
    await bench.put("all", to(receiver, retry_s=[0.05]))
    count = await bench.append([new_id() for _ in range(300)])
    await _straggle(bench, "retrying")
    await bench.pool.execute(
        """UPDATE subscription s SET seq = o.seq, mark = substr(o.digest, 1, 4)
        FROM outbox o WHERE o.p = s.p AND o.seq = $1""",
        await bench.head(),
    )
    async with bench.relaying(lease_s=2.0):
        await holds(bench, "all", retrying=0, lag_events=0)
    assert len(receiver.deliveries) == count


async def _straggle(bench: Bench, state: str, key: str | None = None) -> None:
    """Each event of the tenant, one an aggregate, or one aggregate's, as another relay has left it."""
    await bench.pool.execute(
        """INSERT INTO straggler (subscription, aggregate_type, aggregate_id, version, event, state, attempts,
            due_at, since)
        SELECT s.id, o.aggregate_type, o.aggregate_id, o.version, o.id, $1, 0, now(), now()
        FROM subscription s JOIN outbox o ON o.tenant = s.tenant
        WHERE left(o.aggregate_type, 1) <> '_' AND ($2::text IS NULL OR o.aggregate_id = $2)""",
        state,
        key,
    )


async def test_subscriptions_that_can_not_be_started_keep_no_other_from_being_taken(
    bench: Bench, receiver: WebReceiver
) -> None:
    await bench.put("bad", to(receiver))
    await bench.pool.execute(
        """UPDATE subscription
        SET document = convert_to(replace(convert_from(document, 'UTF8'), $1, $2), 'UTF8')""",
        SECRET,
        "env:SLUICE_SECRET_NOT_THERE",
    )
    await bench.pool.execute(
        """INSERT INTO subscription (tenant, name, kind, declared, document, types, event_types, p, seq, mark)
        SELECT tenant, name || n, kind, declared, document, types, event_types, p, seq, mark
        FROM subscription, generate_series(1, 190) n"""
    )
    await bench.put("good", to(receiver))
    await bench.append([new_id()])
    async with bench.relaying(lease_s=0.5):
        await until(lambda: len(receiver.deliveries) == 1)


async def test_why_nothing_was_delivered_is_told_no_more_once_something_is(
    bench: Bench, receiver: WebReceiver
) -> None:
    await bench.put("all", to(receiver))
    await bench.pool.execute("UPDATE subscription SET why = 'its secret is not there'")
    async with bench.relaying():
        await bench.append([new_id()])
        await holds(bench, "all", lag_events=0, why=None)


# ---- parked ----


async def test_a_parked_event_keeps_its_aggregate_behind_it_until_it_is_replayed(
    bench: Bench, receiver: WebReceiver
) -> None:
    bad, good = new_id(), new_id()
    receiver.answer = lambda each: Answer(500, body=b"x" * 9000) if each.aggregate[1] == bad else Answer()
    await bench.put("all", to(receiver, retry_s=[0.05]))
    async with bench.relaying():
        await bench.append([bad, good], 5)
        await holds(bench, "all", parked=1, retrying=0, lag_events=0)
        assert [each.event["version"] for each in receiver.accepted] == [1, 2, 3, 4, 5]
        (parked,) = await bench.subscriptions.waiting(bench.tenant, "all", "parked", 10) or []
        assert (parked["key"], parked["version"], parked["attempts"], parked["due_at"]) == (bad, 1, 2, None)
        attempts = await bench.subscriptions.attempts(bench.tenant, "all", UUID(parked["event_id"]), 10)
        assert attempts is not None
        assert [(each["attempt"], each["status"], len(each["response"])) for each in attempts] == [
            (2, 500, 4096),
            (1, 500, 4096),
        ]
        receiver.answer = lambda _: Answer()
        assert await bench.subscriptions.replay(bench.tenant, "all") == 1
        await until(lambda: len(receiver.accepted) == 10)
        await holds(bench, "all", parked=0, retrying=0)
    versions = [each.event["version"] for each in receiver.accepted if each.aggregate[1] == bad]
    assert versions == [1, 2, 3, 4, 5]


async def test_a_parked_event_that_is_skipped_lets_the_rest_of_its_aggregate_go_on(
    bench: Bench, receiver: WebReceiver
) -> None:
    key = new_id()
    receiver.answer = lambda each: Answer(422) if each.event["version"] == 2 else Answer()
    await bench.put("all", to(receiver, retry_s=[]))
    async with bench.relaying():
        await bench.append([key], 4)
        await holds(bench, "all", parked=1)
        (parked,) = await bench.subscriptions.waiting(bench.tenant, "all", "parked", 10) or []
        assert await bench.subscriptions.skip(bench.tenant, "all", UUID(parked["event_id"]))
        await holds(bench, "all", parked=0, retrying=0, lag_events=0)
        await until(lambda: len(receiver.accepted) == 3)
    assert [each.event["version"] for each in receiver.accepted] == [1, 3, 4]
    assert await bench.subscriptions.skip(bench.tenant, "all", UUID(parked["event_id"])) is False


async def test_a_subscription_fails_no_longer_once_all_that_failed_is_skipped(
    bench: Bench, receiver: WebReceiver
) -> None:
    receiver.answer = lambda _: Answer(422)
    await bench.put("all", to(receiver, retry_s=[]))
    async with bench.relaying():
        await bench.append([new_id(), new_id()])
        await holds(bench, "all", parked=2)
        one, two = await bench.subscriptions.waiting(bench.tenant, "all", "parked", 10) or []
        assert await bench.subscriptions.skip(bench.tenant, "all", UUID(one["event_id"]))
        await holds(bench, "all", parked=1)
        assert (await bench.stands("all"))["failing_since"] is not None
        assert await bench.subscriptions.skip(bench.tenant, "all", UUID(two["event_id"]))
        await holds(bench, "all", parked=0, retrying=0, lag_events=0, failing_since=None)


async def test_a_skipped_event_that_the_cursor_has_not_come_to_stays_skipped(
    bench: Bench, receiver: WebReceiver
) -> None:
    """As where another relay takes over while the cursor lags behind what was parked."""
    await bench.put("all", to(receiver))
    await bench.append([new_id() for _ in range(700)])
    key = new_id()
    await bench.append([key])
    await _straggle(bench, "parked", key)
    (parked,) = await bench.subscriptions.waiting(bench.tenant, "all", "parked", 10) or []
    assert await bench.subscriptions.skip(bench.tenant, "all", UUID(parked["event_id"]))
    async with bench.relaying():
        await holds(bench, "all", lag_events=0, retrying=0)
    assert len(receiver.accepted) == 700
    assert key not in {each.aggregate[1] for each in receiver.accepted}


# ---- disabled ----


async def test_410_disables_and_resuming_continues_where_it_stopped(
    bench: Bench, receiver: WebReceiver
) -> None:
    receiver.answer = lambda _: Answer(410)
    await bench.put("all", to(receiver))
    async with bench.relaying():
        await bench.append([new_id()], 3)
        await holds(bench, "all", state="disabled")
        assert "410" in (await bench.stands("all"))["why"]
        assert len(receiver.deliveries) == 1
        receiver.answer = lambda _: Answer()
        assert await bench.subscriptions.resume(bench.tenant, "all")
        await until(lambda: len(receiver.accepted) == 3)
    assert [each.event["version"] for each in receiver.accepted] == [1, 2, 3]


async def test_a_lost_position_disables_with_a_code_that_repair_goes_by(
    bench: Bench, receiver: WebReceiver
) -> None:
    await bench.put("all", to(receiver))
    await bench.append([new_id()])
    await bench.pool.execute("ALTER TABLE subscription DISABLE TRIGGER code_of_why")  # of earlier releases
    await bench.pool.execute("UPDATE subscription SET seq = 1, mark = '\\x01020304'")
    async with bench.relaying():
        await holds(bench, "all", state="disabled")
    assert (await bench.stands("all"))["why"].startswith("Its position is lost: ")
    assert await bench.pool.fetchval("SELECT why_code FROM subscription") == "position_lost"


async def test_an_endpoint_that_fails_for_five_days_is_disabled_and_says_so(
    bench: Bench, receiver: WebReceiver
) -> None:
    clock = Clock()
    receiver.answer = lambda _: Answer(500)
    await bench.put("all", to(receiver, retry_s=[DAY_S] * 10))
    async with bench.relaying(clock=clock, chance=lambda: 0.0) as relay:
        await bench.append([new_id()])
        for day in range(1, 6):
            await until(lambda done=day: len(receiver.deliveries) == done)
            await _waiting(bench, day)
            assert (await bench.stands("all"))["state"] == "active"
            clock.move(relay, DAY_S + 1)
        await holds(bench, "all", state="disabled")
    stands = await bench.stands("all")
    assert stands["why"] == "Every delivery has failed for 5 days."
    assert stands["failing_since"] is not None


async def test_a_clock_of_the_machine_that_steps_back_holds_up_no_delivery(
    bench: Bench, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ahead_s = time.time, 40 * DAY_S
    monkeypatch.setattr(time, "time", lambda: real() + ahead_s)
    receiver.answer = lambda _: Answer(500) if len(receiver.deliveries) < 2 else Answer()
    await bench.put("all", to(receiver, retry_s=[0.05] * 5))
    async with bench.relaying():
        await bench.append([new_id()])
        await until(lambda: len(receiver.deliveries) == 1)
        ahead_s = 0
        await until(lambda: len(receiver.accepted) == 1)
    assert (await bench.stands("all"))["state"] == "active"


async def test_one_success_begins_the_five_days_again(bench: Bench, receiver: WebReceiver) -> None:
    clock, bad = Clock(), new_id()
    receiver.answer = lambda each: Answer(500) if each.aggregate[1] == bad else Answer()
    await bench.put("all", to(receiver, retry_s=[4 * DAY_S] * 4))
    async with bench.relaying(clock=clock, chance=lambda: 0.0) as relay:
        await bench.append([bad])
        await _waiting(bench, 1)
        await bench.append([new_id()])
        await holds(bench, "all", failing_since=None)
        clock.move(relay, 4 * DAY_S + 1)
        await _waiting(bench, 2)
        clock.move(relay, 4 * DAY_S + 1)
        await _waiting(bench, 3)
        assert (await bench.stands("all"))["state"] == "active"


# ---- where it may not go ----


async def test_a_redirect_is_a_failure_and_is_not_followed(bench: Bench, receiver: WebReceiver) -> None:
    async with web_receiver() as elsewhere:
        receiver.answer = lambda _: Answer(307, {"location": elsewhere.url})
        await bench.put("all", to(receiver, retry_s=[]))
        async with bench.relaying():
            await bench.append([new_id()])
            await holds(bench, "all", parked=1)
        assert elsewhere.deliveries == []
    (parked,) = await bench.subscriptions.waiting(bench.tenant, "all", "parked", 10) or []
    assert "redirect" in parked["error"]


async def test_a_private_address_is_refused_by_a_relay_that_does_not_allow_it(
    bench: Bench, receiver: WebReceiver
) -> None:
    await bench.put("all", to(receiver, retry_s=[]))
    async with bench.relaying(private=False):
        await bench.append([new_id()])
        await holds(bench, "all", parked=1)
    assert receiver.deliveries == []


# ---- others go on ----


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that hangs does so for longer than what is done beside it takes on a busy machine."""
    monkeypatch.setitem(WebhookTarget.__init__.__kwdefaults__, "timeout_s", 60.0)


async def test_a_receiver_that_hangs_for_one_aggregate_holds_up_no_other(
    bench: Bench, receiver: WebReceiver, hanging: None
) -> None:
    slow = new_id()
    receiver.answer = lambda each: Answer(hang=each.aggregate[1] == slow)
    await bench.put("all", to(receiver))
    async with bench.relaying():
        keys = [slow, *(new_id() for _ in range(5))]
        await bench.append(keys, 3)
        await until(lambda: len(receiver.accepted) == 15)
        await bench.append(keys[1:], 3)
        await until(lambda: len(receiver.accepted) == 30)
        await holds(bench, "all", lag_events=3)  # the slow one's own: the cursor is past them


async def test_receivers_that_hang_for_more_aggregates_than_go_at_once_hold_up_no_other(
    bench: Bench, receiver: WebReceiver, hanging: None
) -> None:
    slow, good = [new_id() for _ in range(8)], new_id()
    receiver.answer = lambda each: Answer(hang=each.aggregate[1] in slow)
    await bench.put("all", to(receiver))
    async with bench.relaying(inflight=4):
        await bench.append(slow)
        await until(lambda: len(receiver.deliveries) >= 4)
        await bench.append([good])
        await until(lambda: len(receiver.accepted) == 1)


async def test_of_large_events_no_more_are_held_than_a_window_has_room_for(
    bench: Bench, receiver: WebReceiver
) -> None:
    receiver.answer = lambda _: Answer(hang=True)
    actor = {"actor": {"type": "user", "id": "global"}}
    for _ in range(20):
        body = {"events": [{"type": "was_noted", "data": "x" * 100_000}] * 9, "metadata": actor}
        assert (await bench.client.post(f"/order/{new_id()}", json=body)).status_code == 201
    await bench.put("all", to(receiver))
    async with bench.relaying() as relay:
        most = 0

        def held() -> bool:
            nonlocal most
            most = max([most, *(courier._held_bytes() for courier in relay._couriers)])
            return len(receiver.deliveries) == 20

        await until(held)
    assert 0 < most <= WINDOW_BYTES


async def test_lag_counts_what_is_tried_again_with_all_behind_it_and_not_what_is_parked(
    bench: Bench, receiver: WebReceiver
) -> None:
    receiver.answer = lambda _: Answer(500)
    many, one = new_id(), new_id()
    await bench.put("all", to(receiver, retry_s=[3600]))
    await bench.put("noted", to(receiver, retry_s=[3600]), event_types=["was_noted"])
    await bench.append([many], 9)
    await bench.append([many, one], 1, "was_cleared")
    oldest = await bench.pool.fetchval(
        "SELECT extract(epoch FROM min(recorded_at))::float8 FROM outbox WHERE tenant = $1", bench.tenant
    )
    async with bench.relaying():
        await holds(bench, "all", retrying=2, lag_events=11)
        await holds(bench, "noted", retrying=1, lag_events=9)
        asked = time.time()
        lag_s = (await bench.stands("all"))["lag_s"]
        assert asked - oldest - 0.01 <= lag_s <= time.time() - oldest + 0.01
    await bench.put("all", to(receiver, retry_s=[]))
    await bench.pool.execute("UPDATE straggler SET due_at = now()")
    async with bench.relaying():
        await holds(bench, "all", parked=2, lag_events=0, lag_s=0.0)


async def test_lag_looks_at_so_much_of_a_partition_and_no_more(
    bench: Bench, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.put("all", to(receiver), start="now")
    await bench.append([new_id()], 10)
    assert (await bench.stands("all"))["lag_events"] == 10
    monkeypatch.setattr("gateway.relay.standing.LOOKED_AT_MAX", 3)
    assert (await bench.stands("all"))["lag_events"] == 3


async def test_lag_leaves_out_what_the_gateway_itself_records(bench: Bench, receiver: WebReceiver) -> None:
    spec = {**SPEC, "public_ids": {"key": "VNO", "types": ["order"]}}
    assert (await bench.client.put("/_/spec", json=spec)).status_code == 200
    await appended(bench.client, "order", new_id(), "was_placed", headers={"prefer": "wait"})
    recorded = (await bench.client.get("/_/feed?types=_names")).json()["events"]
    assert len(recorded) > 0
    await bench.put("all", to(receiver))
    assert (await bench.stands("all"))["lag_events"] == 1
    await bench.put("names", to(receiver), types=["_names"])
    assert (await bench.stands("names"))["lag_events"] == len(recorded)


async def test_paused_means_that_nothing_is_sent(bench: Bench, receiver: WebReceiver) -> None:
    await bench.put("all", to(receiver))
    async with bench.relaying() as relay:
        await bench.append([new_id()])
        await until(lambda: len(receiver.deliveries) == 1)
        await holds(bench, "all", lag_events=0)  # or it would be sent once more
        assert await bench.subscriptions.pause(bench.tenant, "all")
        await holds(bench, "all", state="paused")
        await until(lambda: not relay._couriers)  # within a second
        await bench.append([new_id()])
        await asyncio.sleep(1.2)
        assert len(receiver.deliveries) == 1
        assert await bench.subscriptions.resume(bench.tenant, "all")
        await until(lambda: len(receiver.deliveries) == 2)


async def test_two_relays_share_the_work_and_neither_sends_what_the_other_has(
    bench: Bench, receiver: WebReceiver
) -> None:
    for name in ("one", "two", "three"):
        await bench.put(name, to(receiver))
    keys = [new_id() for _ in range(10)]
    async with bench.relaying(lease_s=30), bench.relaying(lease_s=30):
        await bench.append(keys, 10)
        await until(lambda: len(receiver.deliveries) >= 300)
        await asyncio.sleep(0.3)
    assert len(receiver.deliveries) == 300


async def test_a_relay_that_was_overtaken_moves_no_cursor(bench: Bench, receiver: WebReceiver) -> None:
    await bench.put("all", to(receiver))
    async with bench.relaying() as relay:
        await bench.append([new_id()])
        await until(lambda: len(receiver.deliveries) == 1)
        await holds(bench, "all", lag_events=0)
        row = await bench.pool.fetchrow("SELECT moves, seq FROM subscription WHERE name = 'all'")
        # Another relay thinks that the lease is over, and takes it.
        await bench.pool.execute(
            "UPDATE subscription SET moves = moves + 1, owner = 'another', seq = seq - 1"
        )
        await bench.append([new_id()])
        await until(lambda: not relay._couriers)
        seq = await bench.pool.fetchval("SELECT seq FROM subscription WHERE name = 'all'")
        assert seq == row["seq"] - 1


async def test_events_of_an_endpoint_that_is_down_come_in_order_when_it_is_back(
    bench: Bench, receiver: WebReceiver
) -> None:
    receiver.answer = lambda _: Answer(502)
    keys = [new_id() for _ in range(80)]
    await bench.put("all", to(receiver, retry_s=[0.3] * 50))
    async with bench.relaying():
        await bench.append(keys, 3)
        await until(lambda: len(receiver.deliveries) >= 60)
        receiver.answer = lambda _: Answer()
        await until(lambda: len(receiver.accepted) == 240)
    lanes: dict[str, list[int]] = {}
    for each in receiver.accepted:
        lanes.setdefault(each.aggregate[1], []).append(each.event["version"])
    assert len(lanes) == 80
    assert all(lane == [1, 2, 3] for lane in lanes.values())


async def test_a_postgres_that_fails_now_and_then_ends_no_retry(
    bench: Bench, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at what waits fails once: for what is due, and for what comes behind what arrived."""
    answered, failed = database.next_of_aggregate, set[tuple[str, int]]()

    async def failing_once(conn: Any, of: Any, aggregate: tuple[str, str], version: int, *more: Any) -> Any:
        if (aggregate[1], version) not in failed:
            failed.add((aggregate[1], version))
            raise ConnectionResetError
        return await answered(conn, of, aggregate, version, *more)

    monkeypatch.setattr(database, "next_of_aggregate", failing_once)
    receiver.answer = lambda _: Answer(500)
    keys = [new_id() for _ in range(3)]
    await bench.put("all", to(receiver, retry_s=[0.05] * 50))
    async with bench.relaying():
        await bench.append(keys)
        await holds(bench, "all", retrying=3)
        receiver.answer = lambda _: Answer()
        await until(lambda: len(receiver.accepted) == 3)
        await holds(bench, "all", retrying=0, lag_events=0)
    assert {version for _, version in failed} == {1, 2}


# ---- many that are parked ----


async def test_aggregates_that_are_parked_stop_no_other_however_many(
    bench: Bench, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_worker, "STRAGGLERS_MAX", 3)
    bad = {new_id() for _ in range(4)}
    receiver.answer = lambda each: Answer(500) if each.aggregate[1] in bad else Answer()
    await bench.put("all", to(receiver, retry_s=[]))
    async with bench.relaying():
        await bench.append([*bad])
        await holds(bench, "all", parked=4)
        await bench.append([new_id() for _ in range(3)])
        await until(lambda: len(receiver.accepted) == 3)
        await holds(bench, "all", state="active", parked=4, lag_events=0)


async def test_a_subscription_with_too_many_parked_is_disabled_and_says_what_to_do(
    bench: Bench, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "PARKED_MAX", 3)
    receiver.answer = lambda _: Answer(500)
    await bench.put("all", to(receiver, retry_s=[]))
    async with bench.relaying():
        await bench.append([new_id() for _ in range(3)])
        await holds(bench, "all", state="disabled", parked=3)
    assert (await bench.stands("all"))["why"] == "3 aggregates are parked: replay or skip them, then resume."


async def test_what_is_parked_of_a_pulled_one_keeps_no_other_from_being_claimed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "OUT_MAX", 3)
    monkeypatch.setattr(subscriptions, "PARKED_MAX", 5)
    await bench.put("all", {"type": "pull", "lease_s": 0.01, "attempts_max": 1})

    async def all_parked(parked: int) -> bool:
        await bench.pull.claim(bench.tenant, "all", 10)
        return bool((await bench.stands("all"))["parked"] == parked)

    await bench.append([new_id() for _ in range(3)])
    await until(lambda: all_parked(3))
    await bench.append([new_id()])
    claimed = await bench.pull.claim(bench.tenant, "all", 10)
    assert isinstance(claimed, pull.Claim) and len(claimed.events) == 1
    await until(lambda: all_parked(4))
    assert (await bench.stands("all"))["state"] == "active"
    await bench.append([new_id()])
    await until(lambda: all_parked(5))
    stands = await bench.stands("all")
    assert stands["state"] == "disabled" and stands["why"].startswith("5 aggregates are parked")

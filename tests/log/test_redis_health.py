"""When Redis counts as lost, and when as steady: by looks at it, on a clock that the test moves."""

from __future__ import annotations

from gateway.log.epoch.redis_health import RedisHealth


def test_redis_is_lost_once_looks_have_failed_for_long_enough() -> None:
    reach = RedisHealth(1.0, 2.0, now=0.0)
    reach.failed()
    assert reach.failing
    assert not reach.lost(0.5)
    reach.failed()
    assert not reach.lost(0.9)
    assert reach.lost(1.0)
    reach.answered(1.1)
    assert not reach.failing
    assert not reach.lost(9.0)


def test_a_gateway_that_stood_still_takes_no_single_late_look_for_a_loss() -> None:
    reach = RedisHealth(1.0, 2.0, now=0.0)
    reach.answered(0.1)
    reach.refused(0.2)
    reach.failed()
    assert not reach.lost(60.0)


def test_redis_is_steady_once_it_has_answered_for_long_enough_without_a_miss() -> None:
    reach = RedisHealth(1.0, 2.0, now=0.0)
    reach.heard(())
    assert not reach.steady(9.0), "it has not answered yet"
    reach.answered(10.0)
    reach.answered(11.0)
    assert not reach.steady(11.9)
    assert reach.steady(12.0)
    reach.failed()
    reach.answered(13.0)
    assert not reach.steady(14.9)
    assert reach.steady(15.0)


def test_redis_has_to_be_steady_from_when_appends_have_left_it() -> None:
    reach = RedisHealth(1.0, 2.0, now=0.0)
    reach.begin_again(5.0)
    assert not reach.steady(9.0)
    reach.answered(10.0)
    reach.begin_again(20.0)
    reach.heard(())
    assert not reach.steady(21.9)
    assert reach.steady(22.0)


def test_redis_is_not_steady_while_another_gateway_misses_it() -> None:
    reach = RedisHealth(1.0, 2.0, now=0.0)
    reach.answered(0.0)
    reach.heard(("host:1:a",))
    assert not reach.steady(60.0)
    reach.heard(())
    assert reach.steady(60.0)


def test_a_gateway_that_stood_still_hears_the_others_before_it_finds_redis_steady() -> None:
    reach = RedisHealth(1.0, 2.0, now=0.0)
    reach.answered(0.0)
    reach.heard(())
    reach.begin_again(5.0)
    assert not reach.steady(60.0)
    reach.heard(())
    assert reach.steady(60.0)


def test_an_unanswered_call_makes_it_suspect_until_the_next_answer() -> None:
    reach = RedisHealth(1.0, 2.0, now=0.0)
    reach.answered(0.0)
    reach.heard(())
    reach.refused(0.2)
    assert reach.failing
    assert reach.steady(5.0), "that alone sends nobody away"
    reach.answered(0.1)
    assert not reach.failing


def test_redis_is_lost_once_it_has_refused_many_calls_whatever_looks_say() -> None:
    reach = RedisHealth(1.0, 2.0, now=0.0)
    for call in range(10):
        reach.refused(1.0 + call / 10)
        reach.answered(1.05 + call / 10)
    assert not reach.lost(1.9)
    assert reach.lost(2.0)
    reach.carried_out()
    assert not reach.lost(2.0)


def test_refusals_count_no_more_once_appends_have_left_redis() -> None:
    reach = RedisHealth(1.0, 2.0, now=0.0)
    for _ in range(10):
        reach.refused(1.0)
    reach.begin_again(2.0)
    assert not reach.lost(2.5)

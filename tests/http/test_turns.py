"""Requests that are read in one turn of the event loop are taken together at its end (decision 60)."""

from __future__ import annotations

import asyncio

import pytest

from gateway import together
from gateway.together import Together
from tests.http.peers import Peer, post


async def turn() -> None:
    await asyncio.sleep(0)


async def test_requests_of_a_turn_are_taken_at_its_end_in_the_order_in_which_they_were_read() -> None:
    peer = Peer()
    others = [peer.connect()[0] for _ in range(3)]
    for n, protocol in enumerate([peer.protocol, *others]):
        protocol.data_received(post(b"/a/%d" % n, b"{}"))
    assert peer.fast_path.asked == []
    await turn()
    assert [target for target, _, _ in peer.fast_path.asked] == [b"/a/%d" % n for n in range(4)]


async def test_others_have_their_turn_between_requests_that_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(together, "AT_A_TIME_S", -1.0)
    peer, told = Peer(), list[int]()
    for n in range(3):
        protocol, _ = peer.connect()
        protocol.data_received(post(b"/a/%d" % n, b"{}"))
    for _ in range(3):
        asyncio.get_running_loop().call_soon(lambda: told.append(len(peer.fast_path.asked)))
        await turn()
    assert told == [1, 2, 3]


async def test_requests_in_line_on_one_connection_keep_their_order() -> None:
    peer = Peer()
    await peer.send(post(b"/a/no", b"1") + post(b"/b", b"2") + post(b"/c/no", b"3"))
    while len(peer.application) < 3:
        await turn()
    assert [target for target, _ in peer.application] == [b"/a/no", b"/b", b"/c/no"]
    assert [target for target, _, _ in peer.fast_path.asked] == [b"/a/no"]
    assert peer.transport.written.count(b"HTTP/1.1 200") == 3


async def test_an_ordinary_request_whose_client_is_gone_behind_it_is_heard() -> None:
    peer = Peer()
    peer.protocol.data_received(post(b"/a", b"{}"))
    peer.protocol.connection_lost(ConnectionResetError())
    await turn()
    assert [target for target, _, _ in peer.fast_path.asked] == [b"/a"]
    assert peer.transport.written == b""


@pytest.mark.bug
async def test_after_a_bug_the_application_answers_and_only_it() -> None:
    peer = Peer()
    await peer.send(post(b"/a/bug", b"{}"))
    await turn()
    assert peer.application == [(b"/a/bug", b"{}")]
    assert peer.transport.written.count(b"HTTP/1.1") == 1


async def test_what_fails_for_a_bug_keeps_none_of_the_others_waiting() -> None:
    done, told, loop = list[int](), list[object](), asyncio.get_running_loop()

    def do(item: int) -> None:
        done.append(1 // item)

    turns = Together(do)
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    try:
        for item in (1, 0, 1, 1):
            turns.add(item, loop)
        await turn()
        await turn()
        turns.add(1, loop)
        await turn()
    finally:
        loop.set_exception_handler(None)
    assert done == [1, 1, 1, 1]
    assert [type(each) for each in told] == [ZeroDivisionError]

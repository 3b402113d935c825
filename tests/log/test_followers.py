"""Followers of a stream look for other gateways' commits: those of one tenant together so often a second."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from gateway.log.read.followers import Followers
from tests.support.drive import new_stream


def test_the_more_followers_a_tenant_has_the_later_each_looks() -> None:
    followers, theirs, other = Followers(lambda _: None), new_stream(), new_stream()
    assert theirs.tenant != other.tenant
    with ExitStack() as ends:
        seen = []
        for count in (100, 900, 3096, 3000):
            for number in range(count):
                ends.enter_context(followers.follow(replace(theirs, key=f"{number % 7}")))
            seen.append(followers.look_every_s(theirs.tenant))
        assert seen == pytest.approx([0.1, 1.0, 4.096, 5.0])
        assert followers.look_every_s(other.tenant) == 0.1
    assert followers.look_every_s(theirs.tenant) == 0.1
    assert not followers._of and not followers._count

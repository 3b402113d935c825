"""Who is signed in: a key, exchanged for a random text that a cookie holds.

Owns: the table console_session. Postgres has the text's digest, and the key sealed by the text: what is read
there opens nothing. A session's requests go to the API with its key: it may what the key may, and ends with
it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import asyncpg
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.postgres.connection_errors import UNANSWERED
from gateway.postgres.statements import statement_of

SESSION_S: Final = 12 * 3600
"""A working day: then a person signs in once more."""
TICKET_S: Final = 600
"""How long a link that signs in once may lie in a terminal."""
ANSWER_S: Final = 2.0
"""For a look-up by primary key."""
SESSIONS_OF_KEY_MAX: Final = 20
"""Sessions and links of one key: the next one ends the oldest."""
SEEN_S: Final = 3600
"""For how long after its last check a session is remembered here, for while Postgres does not answer: as long
as the figures that it may see then."""
SEEN_MAX: Final = 1000
"""Sessions that are remembered; the one checked longest ago is forgotten."""
_SECRET_BYTES: Final = 32
_NONCE_BYTES: Final = 12

_statement: Final = partial(statement_of, "console")


class Session(NamedTuple):
    """`secret` is the cookie's, `key` what it was exchanged for."""

    secret: str
    key: str

    @property
    def csrf(self) -> str:
        """Which every act sends back: no other site can know it."""
        return hashlib.sha256(b"csrf " + self.secret.encode()).hexdigest()

    def sent_by_a_page(self, csrf: str) -> bool:
        return hmac.compare_digest(csrf.encode(), self.csrf.encode())


class Sessions:
    def __init__(self, pool: asyncpg.Pool, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._clock = clock
        self._seen: dict[str, tuple[Session, float]] = {}

    async def begin(self, key: str, handle: str, lifetime_s: float = SESSION_S) -> str:
        """The secret of a new session, or of a ticket that is exchanged for one. `handle` is the key's."""
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + AESGCM(_sealing(secret)).encrypt(nonce, key.encode(), None)
        before_max = SESSIONS_OF_KEY_MAX - 1
        await self._run("begin_session", _digest(secret), sealed, lifetime_s, handle, before_max)
        return secret

    async def find(self, secret: str) -> Session | None:
        """None where it never began, or has ended."""
        found = self._opened(secret, await self._run("find_session", _digest(secret)))
        self._seen.pop(secret, None)
        if found is not None:
            if len(self._seen) >= SEEN_MAX:
                del self._seen[next(iter(self._seen))]
            self._seen[secret] = found, self._clock()
        return found

    async def end(self, secret: str) -> Session | None:
        """As `find`, for the last time."""
        self._seen.pop(secret, None)
        return self._opened(secret, await self._run("end_session", _digest(secret)))

    async def continues(self, secret: str) -> bool:
        """Whether a session that was found has not ended since, as far as Postgres tells."""
        try:
            return await self.find(secret) is not None
        except UNANSWERED:
            return True

    def seen(self, secret: str) -> Session | None:
        """A session that was found in the last hour, from memory only. It may have ended since: it opens no
        data and no act."""
        found, at = self._seen.get(secret, (None, 0.0))
        return found if self._clock() < at + SEEN_S else None

    def _opened(self, secret: str, sealed: bytes | None) -> Session | None:
        if sealed is None:
            return None
        try:
            key = AESGCM(_sealing(secret)).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
        except InvalidTag:
            return None
        return Session(secret, key.decode())

    async def _run(self, name: str, *arguments: object) -> Any:
        async with self._pool.acquire(timeout=ANSWER_S) as conn:
            return await conn.fetchval(_statement(name), *arguments, timeout=ANSWER_S)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(b"find " + secret.encode()).digest()


def _sealing(secret: str) -> bytes:
    return hashlib.sha256(b"seal " + secret.encode()).digest()

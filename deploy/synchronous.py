"""Generates the client without asyncio from the one with it, so that neither is written twice.

    python deploy/synchronous.py [--check]

Each module below is its asynchronous one with the words of WORDS replaced, and formatted. With --check it
only says by its status whether they are up to date.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parents[1] / "gateway/client"
MODULES = {
    "asynchronous.py": "synchronous.py",
    "async_caller.py": "sync_caller.py",
    "async_feed.py": "sync_feed.py",
    "async_pool.py": "sync_pool.py",
}
HEAD = "# Made by deploy/synchronous.py from {source}: change that one.\n"
WORDS = (
    (r"The client with asyncio\.", "The client with plain calls."),
    (r"\bThe feed as the client with asyncio reads it", "The feed as the client with plain calls reads it"),
    (r"How the client with asyncio carries", "How the client with plain calls carries"),
    (r"A client's connections with asyncio", "A client's connections, for any threads"),
    (r"\bimport asyncio\n", "import threading\nimport time\n"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\basyncio\.Semaphore\b", "threading.Semaphore"),
    (r"\basync_(caller|feed|network|pool)\b", r"sync_\1"),
    (r"\bAsyncClient\b", "Client"),
    (r"\bAsync(Caller|FeedReader)\b", r"\1"),
    (r"\bAsyncGenerator\[([^\]]+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\bAsync(Iterator|Iterable)\b", r"\1"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\baclos(e|ing)\b", r"clos\1"),
    (r"\banext\b", "next"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
)


def made(source: str, text: str) -> str:
    """The plain module, formatted as the rest of the project."""
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    for command in (["check", "--select", "I,F401", "--fix-only", "--quiet"], ["format", "--quiet"]):
        ruff = [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--stdin-filename",
            str(CLIENT / "synchronous.py"),
            "-",
        ]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603
    return HEAD.format(source=source) + text


def main(check: bool) -> int:
    stale = []
    for source, target in MODULES.items():
        text = made(source, (CLIENT / source).read_text())
        if not (CLIENT / target).exists() or (CLIENT / target).read_text() != text:
            stale.append(target)
            if not check:
                (CLIENT / target).write_text(text)
    for name in stale:
        print(f"gateway/client/{name} {'is out of date' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))

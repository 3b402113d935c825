"""Forks gateways whose code passes the points of points.py: any can end or stand still at any of them.

    python -m tests.failpoints.nursery

reads an order a line, and answers each with the pid. Gateways end with it. Importing the gateway once and
forking it takes a tenth of starting it.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import signal
import sys
from collections.abc import Awaitable
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.failpoints.points import AWAIT, ENTER, first_numbers, rewritten
from tests.support.warm import IMPORTED

SHARED_BYTES = 16 * 1024
ARMED, FIRED, PASSED = 0, 1, 2
"""Places in the memory that a gateway shares with its parent. PASSED and after: a byte a point."""


class _Here:
    """What this process is to do at points. Set in the child."""

    shared: mmap.mmap | bytearray = bytearray(SHARED_BYTES)
    target = -1
    signal = signal.SIGKILL


def _reached(number: int) -> None:
    shared = _Here.shared
    if not shared[ARMED]:
        return
    shared[PASSED + number] = 1
    if number == _Here.target and not shared[FIRED]:
        shared[FIRED] = 1
        os.kill(os.getpid(), _Here.signal)


async def _awaited(number: int, awaitable: Awaitable[Any]) -> Any:
    _reached(number)
    try:
        result = await awaitable
    except Exception:
        _reached(number + 1)
        raise
    _reached(number + 1)
    return result


class _Around:
    def __init__(self, number: int, context: Any) -> None:
        self._number = number
        self._context = context

    async def __aenter__(self) -> Any:
        _reached(self._number)
        entered = await self._context.__aenter__()
        _reached(self._number + 1)
        return entered

    async def __aexit__(self, *fault: Any) -> Any:
        _reached(self._number + 2)
        left = await self._context.__aexit__(*fault)
        _reached(self._number + 3)
        return left


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, first: int) -> None:
        super().__init__(name, path)
        self._first = first

    def get_code(self, fullname: str) -> CodeType:
        tree = rewritten(self.get_data(self.path).decode(), self._first)
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update({AWAIT: _awaited, ENTER: _Around})
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self) -> None:
        self._firsts = first_numbers()

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        first = self._firsts.get(fullname)
        spec = None if first is None else PathFinder.find_spec(fullname, path, target)
        if spec is not None and first is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, first)
        return spec


def _serve(order: dict[str, Any]) -> None:
    """In the child: becomes a gateway. Never returns normally."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with Path(order["shared"]).open("r+b") as file:
        _Here.shared = mmap.mmap(file.fileno(), SHARED_BYTES)
    _Here.target = order["target"]
    _Here.signal = signal.Signals(order["signal"])
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDWR)
    for there, here in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(there, here)
    os.environ.update(order["env"])
    from gateway.__main__ import main

    sys.argv = ["sluice", "serve"]
    main()


def main() -> None:
    sys.meta_path.insert(0, _Finder())
    for name in IMPORTED:  # once, for all that are forked
        import_module(name)
    gc.freeze()  # a collection in a gateway would copy all of it

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries them
    try:
        for line in sys.stdin:
            pid = os.fork()
            if pid == 0:
                try:
                    _serve(json.loads(line))
                finally:
                    os._exit(1)
            print(pid, flush=True)
    finally:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()

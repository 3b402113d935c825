"""The standard streams of a command: one that is missing, and an output that can't be written.

Imports nothing of the command line.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Final, NoReturn

UNWRITTEN: Final = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Why an output could not be written. EPIPE, a reader that has gone, is Typer's to handle."""
_NOTHING: Final = Path(os.devnull)


def open_missing() -> None:
    """A process that was started without a stream has the null device in its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, _NOTHING.open(mode))


def end_unwritten(fault: OSError) -> NoReturn:
    """Exits with a sentence; what is left of the output would fail once more at the end."""
    sys.stdout = _NOTHING.open("w")
    sys.exit(f"sluice: the output can't be written: {fault.strerror}; the command itself may have been done")

"""Becomes Node with emmett.mjs: the stand starts Python."""

from __future__ import annotations

import os
from pathlib import Path

if __name__ == "__main__":
    node = os.environ["PEER_NODE"]
    os.execv(node, [node, str(Path(__file__).with_suffix(".mjs"))])

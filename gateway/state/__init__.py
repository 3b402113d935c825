"""Events to state, by the spec's handlers. Pure."""

from gateway.state.budget import STATE_BYTES_MAX, Budget, TakesLong
from gateway.state.fold import (
    AT_ONCE_LOOKS,
    EMPTY,
    FOLD_REVISION,
    Folded,
    Folding,
    HandlerError,
    fold,
    fold_within,
    is_light,
    is_simple,
    merged,
    merged_joined,
)
from gateway.state.upcast import Present, declared_in, is_old, presenting, upcast

__all__ = [
    "AT_ONCE_LOOKS",
    "EMPTY",
    "FOLD_REVISION",
    "STATE_BYTES_MAX",
    "Budget",
    "Folded",
    "Folding",
    "HandlerError",
    "Present",
    "TakesLong",
    "declared_in",
    "fold",
    "fold_within",
    "is_light",
    "is_old",
    "is_simple",
    "merged",
    "merged_joined",
    "presenting",
    "upcast",
]

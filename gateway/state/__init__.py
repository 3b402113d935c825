"""Events to state, by the spec's handlers. Pure."""

from gateway.state.budget import STATE_BYTES_MAX, TakesLong
from gateway.state.fold import AT_ONCE_LOOKS, EMPTY, Folded, HandlerError, fold, is_light

__all__ = [
    "AT_ONCE_LOOKS",
    "EMPTY",
    "STATE_BYTES_MAX",
    "Folded",
    "HandlerError",
    "TakesLong",
    "fold",
    "is_light",
]

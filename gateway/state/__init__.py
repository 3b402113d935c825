"""Events to state, by the spec's handlers. Pure."""

from gateway.state.fold import EMPTY, Folded, HandlerError, fold, is_light

__all__ = ["EMPTY", "Folded", "HandlerError", "fold", "is_light"]

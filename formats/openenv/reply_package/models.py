"""What is sent to the server and what it answers."""

from .server.models import Call, ReplyAction, ReplyObservation, ReplyState

__all__ = ["Call", "ReplyAction", "ReplyObservation", "ReplyState"]

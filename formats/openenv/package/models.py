"""What is sent to the server and what it answers."""

from .server.models import ContainerAction, ContainerObservation, ContainerState

__all__ = ["ContainerAction", "ContainerObservation", "ContainerState"]

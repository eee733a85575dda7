"""What Gym starts, as a script in this folder: the resources server of the task folders. Made by envconvert."""

from taskset_server.server import TasksetServer

__all__ = ["TasksetServer"]

if __name__ == "__main__":
    TasksetServer.run_webserver()

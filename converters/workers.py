"""Work on the parts of a taskset in processes of their own; what they find comes back in order."""

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from envconvert.formats.taskset import Divisible, Taskset

T = TypeVar("T")
R = TypeVar("R")

_LARGE = 256
"""Tasks from which on processes are worth starting."""
_PART = 64
"""Tasks that a process works on before it reports."""
_AHEAD = 4
"""Parts, for each process, that may be done before the oldest one that is awaited."""


class WorkerLostError(Exception):
    """A process ended before its work was done: it was killed, or there was no memory left."""


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parts(taskset: Taskset, jobs: int | None) -> list[Taskset]:
    """`taskset` cut up for `jobs` processes; one part, itself, where this process does it all.

    None: as many as there are processors where there are tasks enough.
    """
    count = len(taskset.ids)
    if jobs is None:
        jobs = processors() if count >= _LARGE else 1
    tasks = taskset.tasks
    if jobs == 1 or count == 1 or not isinstance(tasks, Divisible):
        return [taskset]
    size = min(_PART, -(-count // (jobs * _AHEAD)))
    return [taskset.of(tasks.between(start, start + size)) for start in range(0, count, size)]


def in_order(work: Callable[[T], R], items: Sequence[T], jobs: int | None) -> Generator[R, None, None]:
    """`work` of each item, in their order, as the items are done; `jobs` at once, None: as many as processors.

    A single item is worked on here. Close the iterator to end the processes. Raises what `work` raises, and
    `WorkerLostError`.
    """
    if len(items) == 1:
        yield work(items[0])
        return
    crew = _Crew(work, items, min(jobs or processors(), len(items)))
    try:
        yield from crew.results()
    finally:
        crew.dismiss()


class _Crew:
    """Processes forked from this one, so that neither `work` nor the items need be sent: numbers go out, results come.

    All hold the reading end of a pipe into which nothing is written. It closes when this process ends, however it
    ends, or dismisses them, and each then leaves at once: no process writes on to a folder that is being removed.
    """

    def __init__(self, work: Callable[[T], R], items: Sequence[T], count: int) -> None:
        self._count = len(items)
        lifeline, self._lifeline = os.pipe()
        self._workers: dict[Connection[Any, Any], BaseProcess] = {}
        try:
            self._start(work, items, count, lifeline)
        except BaseException:
            self.dismiss()
            raise
        finally:
            os.close(lifeline)

    def _start(self, work: Callable[[T], R], items: Sequence[T], count: int, lifeline: int) -> None:
        fork = multiprocessing.get_context("fork")
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Python drops one that it meets as it forks
        try:
            for _ in range(count):
                ours, theirs = fork.Pipe()
                foreign = [ours, *self._workers]
                process = fork.Process(
                    target=_serve, args=(work, items, theirs, lifeline, self._lifeline, foreign), daemon=True
                )
                process.start()
                theirs.close()
                self._workers[ours] = process
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def results(self) -> Iterator[Any]:
        """The results in order."""
        waiting = deque(range(self._count))
        busy = dict.fromkeys(self._workers, 0)
        done: dict[int, Any] = {}
        for number in range(self._count):
            while number not in done:
                for worker in busy:
                    # two each: one at work, and one that awaits it
                    while busy[worker] < 2 and waiting and waiting[0] < number + _AHEAD * len(busy):
                        self._send(worker, waiting.popleft())
                        busy[worker] += 1
                for ready in wait([worker for worker in busy if busy[worker]]):
                    assert isinstance(ready, Connection)
                    finished, result = self._receive(ready)
                    done[finished] = result
                    busy[ready] -= 1
            yield done.pop(number)

    def _send(self, worker: "Connection[Any, Any]", number: int) -> None:
        try:
            worker.send(number)
        except OSError:
            raise self._lost(worker) from None

    def _receive(self, worker: "Connection[Any, Any]") -> tuple[int, Any]:
        try:
            number, result, error = pickle.loads(worker.recv_bytes())
        except (EOFError, OSError):
            raise self._lost(worker) from None
        if error is not None:
            raise error
        return number, result

    def _lost(self, worker: "Connection[Any, Any]") -> WorkerLostError:
        process = self._workers[worker]
        process.join(1)
        return WorkerLostError(
            f"process {process.pid} ended before its work was done (exit code {process.exitcode}); "
            "was it killed, or is there too little memory? --jobs 1 needs the least"
        )

    def dismiss(self) -> None:
        """End the processes, whatever they are at, and wait until they are gone."""
        os.close(self._lifeline)
        for connection, process in self._workers.items():
            process.join()
            connection.close()


def _serve(
    work: Callable[[T], R],
    items: Sequence[T],
    connection: "Connection[Any, Any]",
    lifeline: int,
    end: int,
    foreign: Sequence["Connection[Any, Any]"],
) -> None:
    """What a process does: work on the items whose numbers it is sent, until the lifeline closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the first process says what becomes of it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(end)
    for other in foreign:
        other.close()
    threading.Thread(target=_leave_with, args=(lifeline,), daemon=True).start()
    while True:
        try:
            number = connection.recv()
        except EOFError:
            return
        try:
            answer = pickle.dumps((number, work(items[number]), None))
        except Exception as error:
            answer = _failure(number, error)
        connection.send_bytes(answer)


def _leave_with(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(0)


def _failure(number: int, error: Exception) -> bytes:
    """`error` for the first process, with where it was raised; as text alone where it cannot be sent."""
    where = "".join(traceback.format_exception(error))
    error.add_note(where)
    try:
        answer = pickle.dumps((number, None, error))
        pickle.loads(answer)
    except Exception:
        return pickle.dumps((number, None, RuntimeError(where)))
    return answer

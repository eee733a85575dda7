"""How fast Harbor folders are read and converted, and how much memory it takes, beside peers on the same files.

Run by hand: `python tests/benchmarks/speed.py --help`. Reading is compared with Harbor's own loader, which needs
Harbor's environment (`envconvert check` makes it); converting with `cp -r`. The two run in turn, warm, and the medians
of several runs are compared. Nothing is asserted: what a figure should be is in the design.
"""

import argparse
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

TASK_TOML = """\
schema_version = "1.1"

[task]
name = "bench/task-{number}"
description = "Repair service number {number} so that its tests pass again"
keywords = ["debugging", "python", "services"]

[[task.authors]]
name = "Bench Author"
email = "author@example.org"

[metadata]
difficulty = "medium"
category = "debugging"
tags = ["python", "networking", "{number}"]
expert_time_estimate_min = 45.0

[verifier]
timeout_sec = 900.0

[agent]
timeout_sec = 1800.0

[environment]
build_timeout_sec = 600.0
cpus = 1
memory_mb = 2048
storage_mb = 10240
"""

HARBOR = """
import os, sys, time
from pathlib import Path
from harbor.models.task.task import Task
folders = [Path(sys.argv[1]) / name for name in sorted(os.listdir(sys.argv[1]))]
start = time.perf_counter()
for folder in folders:
    Task(folder)
print(time.perf_counter() - start)
"""

READ = """
import sys, time
from pathlib import Path
from envconvert import read
from envconvert.inspection import inspect
jobs = int(sys.argv[2]) or None
start = time.perf_counter()
taskset = read(sys.argv[1], format="harbor")
found = inspect(taskset, jobs=jobs)
print(time.perf_counter() - start)
"""


def main() -> None:
    """Measure what the options ask for, and print tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tasks", type=int, default=14_600, help="folders to read and convert; 7 files each")
    options.add_argument("--runs", type=int, default=5, help="runs of which the median is taken")
    options.add_argument("--jobs", type=int, default=0, help="processes of envconvert; 0: its own choice")
    options.add_argument("--memory", type=int, nargs="*", default=[100, 1_000, 10_000], help="tasks to convert for it")
    options.add_argument("--only", choices=["read", "convert", "memory"], help="one of the three")
    options.add_argument("--harbor", type=Path, default=_harbor(), help="interpreter of Harbor's environment")
    options.add_argument("--work", type=Path, help="folder to work in, on the file system to measure")
    given = options.parse_args()
    print(f"{os.cpu_count()} processors, Python {platform.python_version()}, {platform.system()} {platform.release()}")
    with tempfile.TemporaryDirectory(dir=given.work, prefix="envconvert-speed-") as work:
        if given.only != "memory":
            source = make_tasks(Path(work) / "source", given.tasks)
            if given.only in (None, "read"):
                measure_reading(source, given.harbor, given.runs, given.jobs)
            if given.only in (None, "convert"):
                measure_converting(source, Path(work), given.runs, given.jobs)
            shutil.rmtree(source)
        if given.only in (None, "memory"):
            measure_memory(Path(work), given.memory, given.jobs)


def _harbor() -> Path:
    cache = Path(os.environ.get("ENVCONVERT_CACHE") or Path.home() / ".cache" / "envconvert")
    return cache / "environments" / "harbor-0.25.0" / "bin" / "python"


def make_tasks(root: Path, count: int) -> Path:
    """`count` folders of a shape that is common: 7 files of 0.2 to 8 kB."""
    numbers = random.Random(0)
    texts = [_text(numbers, numbers.randint(200, 8_000)) for _ in range(400)]
    for number in range(count):
        folder = root / f"task-{number:05}"
        for name in ("environment", "tests", "solution"):
            (folder / name).mkdir(parents=True)
        files = {
            "task.toml": TASK_TOML.format(number=number),
            "instruction.md": numbers.choice(texts),
            "environment/Dockerfile": f"FROM python:3.12-slim\nWORKDIR /app\nCOPY app.py .\nENV NUMBER={number}\n" * 3,
            "environment/app.py": numbers.choice(texts),
            "tests/test.sh": f"#!/bin/bash\n# {number}\npytest /tests && echo 1 > /logs/verifier/reward.txt\n" * 3,
            "tests/test_app.py": numbers.choice(texts),
            "solution/solve.sh": f"#!/bin/bash\n{numbers.choice(texts)}",
        }
        for name, content in files.items():
            (folder / name).write_text(content)
    return root


def _text(numbers: random.Random, size: int) -> str:
    words = [f"word{number}" for number in range(500)]
    return " ".join(numbers.choice(words) for _ in range(size // 7))


def measure_reading(source: Path, harbor: Path, runs: int, jobs: int) -> None:
    """Reading beside Harbor's loader: its import, and the start of Python, are not counted on either side."""
    if not harbor.exists():
        print(f"reading: {harbor} is not there; --harbor says where Harbor is")
        return
    count = len(os.listdir(source))
    programs = {
        "harbor.models.task.task.Task": [str(harbor), "-c", HARBOR, str(source)],
        "envconvert, one process": [sys.executable, "-c", READ, str(source), "1"],
        f"envconvert, --jobs {jobs or 'default'}": [sys.executable, "-c", READ, str(source), str(jobs)],
    }
    seconds = in_turn({name: partial(_printed, command) for name, command in programs.items()}, runs)
    print(f"\nreading {count} tasks, medians of {runs}")
    peer = seconds["harbor.models.task.task.Task"]
    for name, taken in seconds.items():
        print(f"  {name:30} {taken:7.2f} s  {count / taken:8.0f} tasks/s  {peer / taken:5.1f} x")


def _printed(command: list[str]) -> float:
    environment = {**os.environ, "HARBOR_TELEMETRY": "0"}
    return float(subprocess.run(command, capture_output=True, check=True, text=True, env=environment).stdout)


def measure_converting(source: Path, work: Path, runs: int, jobs: int) -> None:
    """Converting, the start of Python included, beside `cp -r`."""
    target = work / "target"

    def timed(*command: str) -> float:
        start = time.perf_counter()
        subprocess.run([*command, str(source), str(target)], check=True, capture_output=True)
        taken = time.perf_counter() - start
        shutil.rmtree(target)
        return taken

    convert = [sys.executable, "-m", "envconvert", *(["--jobs", str(jobs)] if jobs else [])]
    convert[3:3] = ["convert", "--from", "harbor"]
    seconds = in_turn(
        {
            "cp -r": lambda: timed("cp", "-r"),
            "convert --to verifiers": lambda: timed(*convert, "--to", "verifiers"),
            "convert --to harbor": lambda: timed(*convert, "--to", "harbor"),
        },
        runs,
    )
    print(f"\nconverting {len(os.listdir(source))} tasks, medians of {runs}")
    for name, taken in seconds.items():
        print(f"  {name:30} {taken:7.2f} s  {taken / seconds['cp -r']:5.2f} x")


def in_turn(programs: dict[str, Callable[[], float]], runs: int) -> dict[str, float]:
    """The median seconds of each. They take turns, so that all see the same noise; the first is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(runs + 1):
        for name, run in programs.items():
            seconds = run()
            if number:
                taken[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def measure_memory(work: Path, counts: list[int], jobs: int) -> None:
    """The greatest sum of resident memory of a conversion's processes, and that of the largest one."""
    print("\nmemory of convert --to harbor")
    for count in counts:
        source = make_tasks(work / "source", count)
        command = [sys.executable, "-m", "envconvert", "convert", str(source), str(work / "target"), "--to", "harbor"]
        command += ["--jobs", str(jobs)] if jobs else []
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        total = max(_resident_until_end(process), default=0)
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"  {count:7} tasks  {total:6.1f} MB in all, {largest:6.1f} MB the largest process so far")
        shutil.rmtree(source)
        shutil.rmtree(work / "target")


def _resident_until_end(process: "subprocess.Popen[bytes]") -> Iterator[float]:
    """MB of the process and its children together; pages that they share are counted for each."""
    while process.poll() is None:
        yield sum(_resident(number) for number in [process.pid, *_children(process.pid)]) / 1024
        time.sleep(0.01)


def _children(process: int) -> list[int]:
    try:
        return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def _resident(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)


if __name__ == "__main__":
    main()

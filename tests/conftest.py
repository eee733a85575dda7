"""What tests share: small task folders, the command line, a walk of their own, gates for what may be missing."""

import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow
import pytest
from pyarrow import parquet

from envconvert import cache
from envconvert.formats.catalogue import FORMATS

ROOT = Path(__file__).parent.parent
IMAGE = "debian:bookworm-slim"

NAMED = '[task]\nname = "org/task"\n'
ENVIRONMENT = f'[environment]\ndocker_image = "{IMAGE}"\n'
TOML = NAMED + ENVIRONMENT
"""The shortest task.toml about which nothing is noteworthy. Root keys go before it, keys of [environment] after it."""

Files = Mapping[str, str | bytes | None]
"""Contents by path below a folder; a path that ends in `/` is an empty folder, None leaves a default file out."""

_TASK: Files = {
    "instruction.md": "Write 42 to answer.txt.\n",
    "tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/bash\necho 42 > answer.txt\n",
}


def make_task(folder: Path, toml: str | bytes | None = TOML, files: Files | None = None) -> Path:
    """A task folder that Harbor runs: `toml`, an instruction, a test and a solution, and `files` over them."""
    return make_files(folder, {**_TASK, "task.toml": toml, **(files or {})})


def make_files(folder: Path, files: Files) -> Path:
    """`files` below `folder`, with modes 644 and 755 whatever the umask."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        place = folder / name
        if content is None:
            continue
        (place if name.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            place.write_bytes(content.encode() if isinstance(content, str) else content)
            place.chmod(0o644)
    for place_, folders, _ in os.walk(folder):
        for name in folders:
            if not os.path.islink(os.path.join(place_, name)):
                os.chmod(os.path.join(place_, name), 0o755)
    folder.chmod(0o755)
    return folder


Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, content: bytes = b"", **said: object) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in said.items():
        setattr(info, key, value)
    return info, content


def archived(*members: Member) -> bytes:
    """A task, and `members` after its files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        files = {"task.toml": TOML, "instruction.md": "Do.", "tests/test.sh": "", "solution/solve.sh": ""}
        for info, data in [*(member(name, text.encode()) for name, text in files.items()), *members]:
            tar.addfile(info, io.BytesIO(data))
    return content.getvalue()


def make_rows(file: Path, rows: Mapping[str, bytes | None] | Sequence[tuple[str, bytes]], **columns: list[str]) -> Path:
    items = list(rows.items()) if isinstance(rows, Mapping) else list(rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    table = {"path": [path for path, _ in items], "task_binary": [content for _, content in items], **columns}
    parquet.write_table(pyarrow.table(table), file, row_group_size=3)
    return file


def snapshot(folder: Path) -> dict[bytes, tuple[int, bytes]]:
    """Everything below `folder`: its mode with the file type, and its bytes, or where a link points."""
    found: dict[bytes, tuple[int, bytes]] = {}
    root = os.fsencode(folder)
    for place, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = os.path.join(place, name)
            mode = os.lstat(path).st_mode
            content = b""
            if stat.S_ISLNK(mode):
                content = os.readlink(path)
            elif stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, root)] = (mode, content)
    return found


def run(
    *arguments: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    command: Sequence[str] = (sys.executable, "-m", "envconvert"),
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """`envconvert` with `arguments`, in a process of its own, not at a terminal."""
    return subprocess.run(
        [*command, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
    )


def run_json(*arguments: str | Path, code: int = 0, cwd: Path | None = None) -> Any:
    """What `envconvert … --json` prints; the whole of standard output must be one document."""
    done = run(*arguments, "--json", cwd=cwd)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def heed_ctrl_c() -> None:
    """For `preexec_fn`: a shell lets what it runs in the background ignore SIGINT, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def gate(needed: str, reason: str) -> NoReturn:
    """Skip, or fail where ENVCONVERT_REQUIRE says that `needed` must be there."""
    if needed in os.environ.get("ENVCONVERT_REQUIRE", "").replace(",", " ").split():
        pytest.fail(f"{reason} (ENVCONVERT_REQUIRE asks for {needed})")
    pytest.skip(reason)


def interpreter_of(format: str) -> Path:
    """The interpreter of a format's real framework."""
    framework = FORMATS[format].probe.framework
    python = cache.cache_folder("environments") / f"{framework.name}-{framework.release}" / "bin" / "python"
    if not python.exists():
        gate("frameworks", f"{FORMATS[format].title} is not installed; .ci/frameworks installs it")
    return python


@pytest.fixture(scope="session")
def harbor_python() -> Path:
    """The interpreter of the real Harbor."""
    return interpreter_of("harbor")


@pytest.fixture(scope="session")
def verifiers_python() -> Path:
    """The interpreter of the real Verifiers."""
    return interpreter_of("verifiers")


@pytest.fixture(scope="session")
def docker() -> str:
    """The docker command, with an engine that answers and the base image at hand."""
    command = shutil.which("docker")
    if command is None:
        gate("docker", "there is no docker command")
    done = subprocess.run([command, "image", "inspect", IMAGE], capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        gate("docker", f"no Docker engine answers that holds {IMAGE}")
    return command


def ask(python: Path, script: str, value: object) -> Any:
    """Run `script` in a framework's environment: it reads `value` from standard input as JSON, and prints JSON."""
    done = subprocess.run(
        [python, "-c", script],
        input=json.dumps(value),
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "HARBOR_TELEMETRY": "0"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


_BEFORE = pytest.StashKey[frozenset[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remember which containers are there: once, in the process that starts the workers where there are any."""
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_BEFORE] = _containers()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that leaves containers behind: looked at when all has ended, since files use Docker side by side."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    before = session.config.stash.get(_BEFORE, None)
    if before is None or terminal is None:
        return
    ran = [report for reports in terminal.stats.values() for report in reports]
    used_docker = any("docker" in getattr(report, "keywords", ()) for report in ran)
    if used_docker and (left := _containers() - before):
        terminal.write_line(f"\nThese containers were left behind: {', '.join(sorted(left))}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _containers() -> frozenset[str]:
    command = shutil.which("docker")
    if command is None:
        return frozenset()
    done = subprocess.run([command, "ps", "-a", "--format", "{{.ID}} {{.Image}}"], capture_output=True, text=True)
    return frozenset(done.stdout.splitlines())

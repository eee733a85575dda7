"""The Verifiers package: its name, what stands in it, and what a wheel of it lacks."""

import json
import keyword
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, TOML, make_files, make_task, snapshot

import envconvert
from envconvert.formats.losses import Ledger
from envconvert.formats.names import module_name
from envconvert.formats.taskset import ContainerTask

PACKAGE = ROOT / "formats" / "verifiers" / "package"
RUNNER = ROOT / "formats" / "harbor" / "runner"


def written(source: Path, target: Path, **options: Any) -> Path:
    [report] = envconvert.convert(source, target, to="verifiers", **options)
    assert report.tasks.written > 0
    return target


@pytest.fixture
def source(tmp_path: Path) -> Path:
    make_task(tmp_path / "src" / "one")
    make_task(tmp_path / "src" / "two")
    return tmp_path / "src"


# The module's name: lower case with `_`, prefixed where it is taken or no identifier.


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("org/plain", "plain"),
        ("org/Terminal-Bench-2.1", "terminal_bench_2_1"),
        ("ORG/UPPER", "upper"),
        ("org/a.b-c_d", "a_b_c_d"),
        ("org/2048", "env_2048"),
        ("org/9to5", "env_9to5"),
        ("org/class", "env_class"),
        ("org/None", "none"),
        ("org/import", "env_import"),
        ("org/Lambda", "env_lambda"),
        ("org/async", "env_async"),
        ("org/match", "match"),  # a soft keyword may name a module
        ("org/harbor", "env_harbor"),
        ("org/openenv", "env_openenv"),
        ("org/nemo-gym", "env_nemo_gym"),
        ("org/textarena", "env_textarena"),
        ("org/verifiers", "env_verifiers"),
        ("org/json", "env_json"),
        ("org/Statistics", "env_statistics"),
        ("org/concurrent", "env_concurrent"),
        ("org/json2", "json2"),
        ("org/my-json", "my_json"),
    ],
)
def test_module_name(name: str, module: str) -> None:
    assert module_name(name) == module


@pytest.mark.parametrize(
    "name",
    [
        # gone in 3.12 or 3.13 (PEP 594, PEP 632), there in 3.11
        *("aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "distutils", "imghdr", "imp"),
        *("lib2to3", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "smtpd", "sndhdr", "spwd", "sunau"),
        *("telnetlib", "uu", "xdrlib"),
        # new in 3.14
        *("annotationlib", "compression"),
        # there in all of them
        *("os", "sys", "math", "queue", "tomllib", "graphlib", "zoneinfo", "antigravity", "this", "idlelib"),
        "test",
    ],
)
def test_a_library_module_of_any_python_is_prefixed_on_all(name: str) -> None:
    """Python 3.11 to 3.14: the same input gives the same name whatever runs."""
    assert module_name(f"org/{name}") == f"env_{name}"


@pytest.mark.parametrize("name", ["org/_", "org/x" + "y" * 90, "org/" + "-".join("abc")])
def test_every_module_name_can_be_imported(name: str) -> None:
    module = module_name(name)
    assert module.isidentifier()
    assert module.isascii()
    assert not keyword.iskeyword(module)


# What stands in the package.


def test_the_layout(source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out", name="org/My-Set")
    assert sorted(os.listdir(out)) == ["README.md", "envconvert.json", "my_set", "pyproject.toml"]
    code = sorted(path.name for path in PACKAGE.glob("*.py"))
    assert sorted(os.listdir(out / "my_set")) == sorted([*code, "runner", "tasks", "taskset.jsonl"])
    assert snapshot(out / "my_set" / "tasks") == snapshot(source)


def test_the_code_is_the_template_as_it_stands(source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out", name="org/set")
    for folder, template in ((out / "set", PACKAGE), (out / "set" / "runner", RUNNER)):
        found = {path.name: path.read_bytes() for path in folder.glob("*.py")}
        assert found == {path.name: path.read_bytes() for path in template.glob("*.py")}
        assert "__init__.py" in found
    assert {path.suffix for path in (out / "set" / "runner").iterdir()} == {".py"}
    assert not list(out.rglob("*.jinja"))
    assert not list(out.rglob("__pycache__"))


def test_the_code_names_one_taskset(source: Path, tmp_path: Path) -> None:
    """Verifiers wants exactly one in `__all__`; the code must also be Python of every version from 3.11."""
    out = written(source, tmp_path / "out", name="org/set")
    for path in [*(out / "set").glob("*.py"), *(out / "set" / "runner").iterdir()]:
        compile(path.read_bytes(), path.name, "exec")
    text = (out / "set" / "__init__.py").read_text()
    assert "__all__" in text
    assert text.partition("__all__")[2].count("Taskset") == 1


def test_pyproject(source: Path, tmp_path: Path) -> None:
    about = '[dataset]\nversion = "1.4.2"\ndescription = "Two \\"tasks\\",\\non two lines \\u0007 \\\\ é."\n'
    make_files(source, {"dataset.toml": about})
    out = written(source, tmp_path / "out", name="org/My-Set")
    project = tomllib.loads((out / "pyproject.toml").read_text("utf-8"))
    assert project["build-system"] == {"requires": ["hatchling>=1.27"], "build-backend": "hatchling.build"}
    assert project["project"]["name"] == "my-set"
    assert project["project"]["version"] == "1.4.2"
    assert project["project"]["description"] == 'Two "tasks", on two lines \a \\ é.'
    assert project["project"]["readme"] == "README.md"
    assert project["project"]["requires-python"] == ">=3.11"
    assert project["project"]["dependencies"] == ["pathspec>=0.12", "verifiers>=0.4.0,<0.5"]
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["my_set"]
    assert wheel["force-include"] == {"my_set/tasks": "my_set/tasks"}


def test_pyproject_with_a_description_that_json_writes_otherwise(source: Path, tmp_path: Path) -> None:
    """DEL is a control character that TOML wants escaped and JSON does not."""
    make_files(source, {"dataset.toml": '[dataset]\ndescription = "a\\u007fb"\n'})
    out = written(source, tmp_path / "out", name="org/set")
    project = tomllib.loads((out / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["description"] == "a\x7fb"


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        ("2", "2"),
        ("2.1.0", "2.1.0"),
        ("1.0rc1", "1.0rc1"),
        ("1.0.post2", "1.0.post2"),
        ("1.0.dev3", "1.0.dev3"),
        ("head", "0.1.0"),
        ("v1", "0.1.0"),
        ("1.0-beta", "0.1.0"),
        ("1.0\\n", "0.1.0"),
    ],
)
def test_versions_that_pip_takes(version: str, shown: str, source: Path, tmp_path: Path) -> None:
    make_files(source, {"dataset.toml": f'[dataset]\nversion = "{version}"\n'})
    out = written(source, tmp_path / "out", name="org/set")
    assert tomllib.loads((out / "pyproject.toml").read_text())["project"]["version"] == shown
    header = json.loads((out / "set" / "taskset.jsonl").read_text())
    assert header["version"] == version.replace("\\n", "\n")


def test_readme_of_two_tasks(source: Path, tmp_path: Path) -> None:
    text = (written(source, tmp_path / "out", name="org/My-Set", reward_key="accuracy") / "README.md").read_text()
    assert text.startswith("# org/My-Set\n")
    assert "2 container tasks" in text
    assert "`my_set/tasks/`" in text
    assert "vf-eval my_set" in text
    assert "vf-validate my_set" in text
    assert "`accuracy` is trained" in text
    assert "--select.include.ids one" in text
    assert "localhost/envconvert/my_set" in text
    assert "{{.Repository}}:{{.Tag}}" in text
    assert "{%" not in text
    assert "{{ " not in text


def test_readme_of_one_task(tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "only")
    text = (written(tmp_path / "src", tmp_path / "out", name="org/set") / "README.md").read_text()
    assert "1 container task for" in " ".join(text.split())


def test_readme_counts_what_was_written(source: Path, tmp_path: Path) -> None:
    make_task(source / "a-bad", "[")
    make_task(source / "many", files={"tests/empty/": ""})
    text = (written(source, tmp_path / "out", name="org/set") / "README.md").read_text()
    assert "3 container tasks" in text
    assert "--select.include.ids many" in text  # the first that was written, by id


def test_a_readme_does_not_run_what_a_source_says(source: Path, tmp_path: Path) -> None:
    """A description is text, not a template."""
    make_files(source, {"dataset.toml": "[dataset]\ndescription = '{{ 7 * 7 }} {% raw %}'\n"})
    text = (written(source, tmp_path / "out", name="org/set") / "README.md").read_text()
    assert "{{ 7 * 7 }} {% raw %}" in text


def test_header(source: Path, tmp_path: Path) -> None:
    make_files(
        source,
        {
            "dataset.toml": '[dataset]\nversion = "1"\ndescription = "Zoë\\nand more"\nkeywords = ["a", "b"]\n'
            'authors = [{name = "Zoë", email = "z@b.c"}, {name = "Bob"}]\n'
        },
    )
    out = written(source, tmp_path / "out", name="org/My-Set", reward_key="accuracy")
    lines = (out / "my_set" / "taskset.jsonl").read_bytes().decode("utf-8").split("\n")
    assert lines[1:] == [""]
    assert json.loads(lines[0]) == {
        "name": "org/My-Set",
        "version": "1",
        "description": "Zoë\nand more",
        "licence": None,
        "authors": [{"name": "Zoë", "email": "z@b.c"}, {"name": "Bob", "email": None}],
        "keywords": ["a", "b"],
        "reward_key": "accuracy",
    }


# What a wheel lacks.


def wheel_losses(tmp_path: Path) -> dict[str, tuple[str, str]]:
    [report] = envconvert.convert(tmp_path / "src", tmp_path / "out", to="verifiers")
    assert report.tasks.written == 1
    return {loss.field: (loss.code, loss.severity.value) for loss in report.losses}


def test_wheel_losses(tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "src" / "one",
        TOML,
        {
            "environment/empty/": "",
            "environment/holds/file": "",
            "tests/plain": "",
            "tests/runs": "",
            "tests/private": "",
            "tests/group": "",
            "tests/setuid": "",
            os.fsdecode(b"tests/caf\xe9"): "",
            "tests/é": "",
            "tests/.DS_Store": "",
            "tests/.git/": "",
            "tests/__pycache__/x.pyc": "",
            "tests/x.pyc": "",
            ".gitignore": "*\n",
        },
    )
    for name, mode in (("runs", 0o755), ("private", 0o600), ("group", 0o664), ("setuid", 0o4755)):
        (task / "tests" / name).chmod(mode)
    (task / "tests" / "link").symlink_to("plain")
    (task / "tests" / "broken").symlink_to("missing")
    (task / "tests" / "folder").symlink_to("../environment/holds")
    assert wheel_losses(tmp_path) == {
        "environment/empty": ("wheel-folder", "degraded"),
        "tests/private": ("wheel-mode", "note"),
        "tests/group": ("wheel-mode", "note"),
        "tests/setuid": ("wheel-mode", "note"),
        r"tests/caf\xe9": ("wheel-name", "degraded"),
        "tests/.DS_Store": ("wheel-excluded", "degraded"),
        "tests/.git": ("wheel-excluded", "degraded"),
        "tests/__pycache__": ("wheel-excluded", "degraded"),
        "tests/link": ("wheel-link", "degraded"),
        "tests/broken": ("wheel-link", "degraded"),
        "tests/folder": ("wheel-link", "degraded"),
    }


def test_a_plain_task_loses_nothing_in_a_wheel(tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "one", files={"environment/Dockerfile": "FROM scratch\n", "data/x.csv": "1"})
    assert wheel_losses(tmp_path) == {}


@pytest.mark.parametrize("user", ['"root"', "0"])
def test_root_needs_no_home(user: str, tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "one", f"{TOML}[agent]\nuser = {user}\n")
    assert wheel_losses(tmp_path) == {}


@pytest.mark.parametrize("user", ['"worker"', "1000"])
def test_another_user_is_noted(user: str, tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "one", f"{TOML}[agent]\nuser = {user}\n")
    assert wheel_losses(tmp_path) == {"container.user": ("agent-home", "note")}


def test_what_verifiers_does_not_do_is_refused_and_leaves_nothing(source: Path, tmp_path: Path) -> None:
    make_task(source / "slice", f'{TOML}[environment.tpu]\ntype = "v5e"\ntopology = "2x2"\n')
    make_task(source / "closed", f'{TOML}[verifier]\nnetwork_mode = "no-network"\n')
    [report] = envconvert.convert(source, tmp_path / "out", to="verifiers", name="org/set")
    assert (report.tasks.written, report.tasks.refused) == (2, 2)
    assert sorted(os.listdir(tmp_path / "out" / "set" / "tasks")) == ["one", "two"]


def test_no_gpus_and_an_open_network_are_no_limits(tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "one", f'{TOML}gpus = 0\nnetwork_mode = "public"\n')
    assert wheel_losses(tmp_path) == {}


def test_a_file_that_is_gone_when_it_is_written_refuses_its_task_only(source: Path, tmp_path: Path) -> None:
    taskset = envconvert.read(source)

    def tasks(ledger: Ledger) -> Iterator[ContainerTask]:
        for task in taskset.container_tasks(ledger):
            if task.id == "one":
                (source / "one" / "tests" / "test.sh").unlink()
            yield task

    report = envconvert.write(taskset.of(tasks), tmp_path / "out", format="verifiers")
    assert (report.tasks.written, report.tasks.refused) == (1, 1)
    assert [(loss.task, loss.code, loss.field) for loss in report.losses] == [("one", "unreadable", "test.sh")]

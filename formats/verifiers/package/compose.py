"""Containers that a docker-compose.yaml describes: one project for each rollout, whose service `main` is the agent's.

The compose file is merged as Harbor merges it (harbor environments/docker/docker.py): over what `main` is without it,
with the same variables to interpolate. It runs over the local Docker, by its compose command. Verifiers' own support
for Compose belongs to its `harbor` taskset, needs Harbor in the same environment, and is absent from vf-validate.
"""

import asyncio
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from verifiers.v1.runtimes import DockerConfig, DockerRuntime
from verifiers.v1.runtimes.base import SERVICE_PORT
from verifiers.v1.runtimes.container import cli
from verifiers.v1.utils.aio import run_shielded

from .runner import images
from .runner.folder import Definition
from .runner.machine import MAIN
from .runner.variables import resolve


class ComposeError(RuntimeError):
    """The services cannot be started."""


class UntrustedError(ComposeError):
    """The compose file asks for more of this machine than containers of its own."""


class Project:
    """One set of services. `scratch` is an empty folder that lives as long as they do; `name` names their images."""

    def __init__(self, definition: Definition, name: str, config: DockerConfig, scratch: Path) -> None:
        self.definition = definition
        self.image = name
        self.config = config
        self.services: dict[str, Any] = {}
        self._scratch = scratch
        self._folder = definition.folder.resolve()
        self._name = f"envconvert-{uuid.uuid4().hex}"
        self._files: list[Path] = []
        self._env: dict[str, str] = {}

    async def configure(self, taskset: str, *, trusted: bool) -> None:
        """Merge the files and read what the services are.

        Raises:
            ComposeError: they make no valid project.
            UntrustedError: they reach for this machine, and `trusted` is false.
        """
        self._merge()
        project = json.loads(await self._compose("config", "--format", "json"))
        self.services = project["services"]
        if MAIN not in self.services:
            raise ComposeError(f"{self._folder.name}/docker-compose.yaml makes no service {MAIN}")
        if not trusted and (reached := [*_reached(project, self._folder), *await self._read_elsewhere()]):
            raise UntrustedError(
                f"{self._folder.name}/docker-compose.yaml reaches for this machine: {'; '.join(reached)}. If you trust "
                "the task: --env.taskset.task.trust-compose true (vf-validate: --taskset.task.trust-compose true)"
            )
        if any(_inside(source, self._folder) for service in self.services.values() for source in _binds(service)):
            # What the services write to must not be the package.
            copy = self._scratch / self._folder.name
            await asyncio.to_thread(shutil.copytree, self._folder, copy, symlinks=True)
            self._folder = copy
            self._merge()
            self.services = json.loads(await self._compose("config", "--format", "json"))["services"]
        self._add(self._overlay(taskset))

    async def _read_elsewhere(self) -> list[str]:
        """What compose reads into the services while it merges, of which the merged file says nothing."""
        text = (self._folder / "docker-compose.yaml").read_text(encoding="utf-8")
        found = set(_READS.findall(text))
        reached = [f"it has {key}, and so is more than this file" for key in sorted(found - {"env_file"})]
        if "env_file" in found:
            raw = ("--no-interpolate", "--no-normalize", "--no-path-resolution", "--format", "json")
            for name, service in json.loads(await self._compose("config", *raw))["services"].items():
                for file in service.get("env_file") or []:
                    path = file["path"] if isinstance(file, dict) else file
                    if "$" in path or not _inside(Path(os.path.realpath(self._folder / path)), self._folder):
                        reached.append(f"{name} takes its environment from {path}")
        return reached

    def _merge(self) -> None:
        """Write what goes around the compose file: `main` without it below, its environment above."""
        environment = self.definition.environment
        env = resolve("environment.env", environment.env)
        main: dict[str, Any] = {"command": ["sh", "-c", "sleep infinity"]}
        if self._prebuilt:
            main["image"] = environment.docker_image
        else:
            main["build"] = {"context": str(self._folder)}
        self._env = {
            **os.environ,
            **env,
            "MAIN_IMAGE_NAME": self.image,
            "CONTEXT_DIR": str(self._folder),
            **({"PREBUILT_IMAGE_NAME": str(environment.docker_image)} if self._prebuilt else {}),
            **({} if environment.cpus is None else {"CPUS": f"{environment.cpus:g}"}),
            **({} if environment.memory_mb is None else {"MEMORY": f"{environment.memory_mb}M"}),
        }
        self._files = []
        self._add({MAIN: _resources(self.config)})
        self._add({MAIN: main})
        self._files.append(self._folder / "docker-compose.yaml")
        self._add({MAIN: {"environment": env}})

    @property
    def _prebuilt(self) -> bool:
        image = self.definition.docker_image
        return image is not None and (not self.definition.has_dockerfile or images.exists(image))

    def _overlay(self, taskset: str) -> dict[str, Any]:
        """A name for each image that is built here, so that it is built once, and a port for verifiers' servers."""
        overlay: dict[str, Any] = {}
        for name, service in self.services.items():
            if "build" in service:
                image = self.image if name == MAIN else f"{self.image}-{name.lower()}"
                overlay[name] = {"build": {"labels": {"envconvert.taskset": taskset}}}
                overlay[name] |= {} if "image" in service else {"image": image}
        # The port belongs to whichever service owns the network of `main`.
        overlay.setdefault(self._owner, {})["ports"] = [f"127.0.0.1::{SERVICE_PORT}"]
        return overlay

    @property
    def _owner(self) -> str:
        owner = MAIN
        while (mode := str(self.services[owner].get("network_mode", ""))).startswith("service:"):
            owner = mode.removeprefix("service:")
        return owner

    def _add(self, services: Mapping[str, Any]) -> None:
        file = self._scratch / f"compose-{len(self._files)}.json"
        file.write_text(json.dumps({"services": services}), encoding="utf-8")
        self._files.append(file)

    def build(self) -> None:
        """Build the images, and call that of `main` by the project's name for it.

        Raises:
            ImageError: one cannot be had.
        """
        seconds = self.definition.environment.build_timeout_sec
        failure = images.run_within(seconds, *self._command("build", "--quiet"), env=self._env)
        if failure is not None:
            raise images.ImageError(f"docker compose build of {self._folder} failed: {failure}")
        main = str(self.services[MAIN].get("image") or self.image)
        if not images.exists(main) and (failure := images.pull(main, seconds)) is not None:
            raise images.ImageError(f"the image {main} of {MAIN} is not here and cannot be pulled: {failure}")
        images.tag(main, self.image)

    @asynccontextmanager
    async def up(self) -> AsyncIterator[tuple[DockerRuntime, dict[str, str]]]:
        """The running services: `main` as a runtime, and the containers of all by name. They end with the block.

        Raises:
            ComposeError: they cannot be started in the time that task.toml gives.
        """
        seconds = self.definition.environment.build_timeout_sec
        try:
            try:
                async with asyncio.timeout(seconds):
                    await self._compose("up", "--detach", "--wait", "--quiet-pull")
                    port = await self._compose("port", self._owner, str(SERVICE_PORT))
                    listed = await self._compose("ps", "--all", "--format", "{{.ID}} {{.Service}}")
            except TimeoutError:
                raise ComposeError(f"the services were not up after {seconds:g} s, the build_timeout_sec") from None
            containers = {service: id for id, service in (line.split() for line in listed.splitlines())}
            config = self.config.model_copy(update={"allow": ["*"], "block": []})
            async with DockerRuntime.attach(
                config, containers[MAIN], service_url=f"http://{port.split()[0]}"
            ) as runtime:
                yield runtime, containers
        finally:
            await run_shielded(self._down())

    async def stop_main(self) -> None:
        """Stop the agent's service, whatever still runs in it."""
        await self._compose("stop", "--timeout", "0", MAIN)

    async def _down(self) -> None:
        # By the project's name alone: a file that has gone wrong must not keep its containers.
        down = ("docker", "compose", "--project-name", self._name, "down")
        await cli(*down, "--volumes", "--remove-orphans", "--timeout", "0", env=dict(os.environ))

    def _command(self, *arguments: str) -> list[str]:
        files = [argument for file in self._files for argument in ("--file", str(file))]
        project = ["--project-name", self._name, "--project-directory", str(self._folder)]
        return ["docker", "compose", *project, *files, *arguments]

    async def _compose(self, *arguments: str) -> str:
        result = await cli(*self._command(*arguments), env=self._env)
        if result.exit_code != 0:
            said = (result.stderr or result.stdout).strip()[-2000:]
            raise ComposeError(f"docker compose {arguments[0]} of {self._folder} failed: {said}")
        return str(result.stdout)


def _resources(config: DockerConfig) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if config.cpu is not None:
        resources["cpus"] = config.cpu
    if config.memory is not None:
        resources["mem_limit"] = f"{round(config.memory * 1024)}m"
    if config.gpu is not None:
        count = int(config.gpu.rpartition(":")[2])
        devices = [{"driver": "nvidia", "count": count, "capabilities": ["gpu"]}]
        resources["deploy"] = {"resources": {"reservations": {"devices": devices}}}
    return resources


def _binds(service: Mapping[str, Any]) -> Iterator[Path]:
    for volume in service.get("volumes") or []:
        if volume.get("type") == "bind":
            yield Path(os.path.realpath(volume["source"]))


def _inside(path: Path, folder: Path) -> bool:
    return path.is_relative_to(os.path.realpath(folder))


_READS = re.compile(r"""\b(env_file|extends|include)["']?\s*:""")

_RIGHTS = ("privileged", "cap_add", "devices", "security_opt", "device_cgroup_rules", "cgroup_parent", "runtime")
_OTHERS = ("volumes_from", "external_links", "credential_spec", "provider", "use_api_socket", "post_start", "pre_stop")


def _reached(project: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """What of this machine the services ask for, besides containers, networks and volumes of their own."""
    for kind in ("volumes", "networks"):
        for name, item in (project.get(kind) or {}).items():
            if item.get("external") or item.get("driver_opts") or item.get("driver") not in (None, "local", "bridge"):
                yield f"{kind}.{name} is not the project's own"
    for kind in ("secrets", "configs"):
        for name, item in (project.get(kind) or {}).items():
            if item.get("external") or ("file" in item and not _inside(Path(os.path.realpath(item["file"])), folder)):
                yield f"{kind}.{name} is read from elsewhere"
    for name, service in project["services"].items():
        yield from (f"{name} mounts {source}" for source in _binds(service) if not _inside(source, folder))
        yield from (f"{name} has {key}" for key in (*_RIGHTS, *_OTHERS) if service.get(key))
        for key in ("network_mode", "pid", "ipc", "userns_mode", "cgroup", "uts"):
            if str(service.get(key, "")).partition(":")[0] in ("host", "container"):
                yield f"{name} has {key} = {service[key]}"
        for volume in service.get("volumes") or []:
            if volume.get("type") == "npipe":
                yield f"{name} mounts {volume['source']}"
        if any(str(port.get("published") or "0") != "0" for port in service.get("ports") or []):
            yield f"{name} publishes a port of this machine"
        build = service.get("build") or {}
        context = Path(os.path.realpath(build.get("context") or folder))
        if context.is_dir() and not _inside(context, folder):
            yield f"{name} is built from {context}"
        for key in ("additional_contexts", "ssh", "secrets", "privileged", "entitlements"):
            if build.get(key):
                yield f"{name} is built with {key}"


@asynccontextmanager
async def configured(
    definition: Definition, name: str, config: DockerConfig, taskset: str, *, trusted: bool
) -> AsyncIterator[Project]:
    """A project whose files are there while the block lasts; nothing is started. Raises as `Project.configure` does."""
    with tempfile.TemporaryDirectory(prefix="envconvert-") as scratch:
        project = Project(definition, name, config, Path(scratch))
        await project.configure(taskset, trusted=trusted)
        yield project

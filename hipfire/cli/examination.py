"""What `diag` finds out, without changing anything: one finding for each thing that has to fit. Knows no terminal."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs

from hipfire import __version__
from hipfire.catalog.store import open_store
from hipfire.config.environment import Environment
from hipfire.config.layers import resolve
from hipfire.config.schema import Settings
from hipfire.errors import ConfigError
from hipfire.lifecycle.endpoint import endpoint_of
from hipfire.lifecycle.health import read_health, takes_connections
from hipfire.lifecycle.processes import SERVE, find_processes

OK, NOTE, PROBLEM = "ok", "note", "problem"
"""Levels: a problem keeps hipfire from serving, a note does not."""

_REPORT_TIMEOUT_S = 60.0
_WITHOUT_GPU = ("auto", "cpu", "reference")
"""Devices that one may want on a machine without a GPU."""
_LITTLE_MEMORY_NBYTES = 1 << 30
_LITTLE_DISK_NBYTES = 1 << 30


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that was looked at. `advice` is what to do about it, where there is something to do."""

    what: str
    level: str
    text: str
    advice: str | None = None


@attrs.frozen(kw_only=True)
class Examination:
    """All findings, and what they were read from, for programs."""

    findings: list[Finding]
    next_step: str
    versions: dict[str, str]
    cpu: dict[str, Any]
    gpu: dict[str, Any]
    memory: dict[str, int]
    models: list[dict[str, Any]]

    @property
    def healthy(self) -> bool:
        return all(finding.level != PROBLEM for finding in self.findings)


def examine(environment: Environment) -> Examination:
    """Look at everything."""
    cpu = _report_of("hipfire.devices.report", "the kernels")
    gpu = _report_of("hipfire.devices.gpu_report", "the GPU")
    memory = _memory()
    settings, config = _settings(environment)
    models, model_findings = _models(environment)
    is_up, port = _port(environment, settings)
    findings = [
        Finding(what="hipfire", level=OK, text=f"{__version__}, Python {platform.python_version()}, {_system()}"),
        *_processor(cpu),
        *gpu_findings(gpu, (settings or Settings()).hardware.device),
        _memory_finding(memory),
        config,
        _folder("state root", environment.home),
        _folder("models folder", environment.models_dir),
        *model_findings,
        port,
    ]
    if is_up:
        next_step = "a server is up; hipfire ps shows it"
    else:
        next_step = "hipfire serve -d" if models else "hipfire serve smollm2:135m downloads a small model and serves it"
    return Examination(
        findings=findings,
        next_step=next_step,
        versions={"hipfire": __version__, "python": platform.python_version(), "system": _system()},
        cpu=cpu,
        gpu=gpu,
        memory=memory,
        models=models,
    )


def _system() -> str:
    return f"{platform.system()} {platform.release()}"


def _report_of(module: str, what: str) -> dict[str, Any]:
    """What a program says in JSON; only `problem` where it did not come to an end."""
    command = [sys.executable, "-P", "-m", module]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_REPORT_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"problem": f"looking at {what} does not come to an end"}
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.splitlines() or [f"exit status {done.returncode}"]
        return {"problem": f"looking at {what} failed: {lines[-1]}"}
    return document


def _processor(cpu: dict[str, Any]) -> list[Finding]:
    """The processor, and whether there are kernels for it."""
    findings = []
    if "processor" in cpu:
        findings.append(Finding(what="processor", level=OK, text=f"{cpu['processor']}, {cpu['threads']} threads"))
        features = " ".join(cpu["features"]) or "none that matters here"
        findings.append(Finding(what="features", level=OK, text=features))
    if cpu.get("kernels") is None:
        missing_all = Finding(
            what="kernels",
            level=PROBLEM,
            text=str(cpu.get("problem")),
            advice="install hipfire anew; until then --device reference works, slowly",
        )
        return [*findings, missing_all]
    missing = [name for name, state in cpu["variants"].items() if state == "missing"]
    text = f"{cpu['kernels']}; not built: {', '.join(missing)}" if missing else str(cpu["kernels"])
    advice = "install hipfire anew to have all kernels" if missing else None
    return [*findings, Finding(what="kernels", level=NOTE if missing else OK, text=text, advice=advice)]


def gpu_findings(gpu: dict[str, Any], device: str) -> list[Finding]:
    """What `hipfire.devices.gpu_report` says, for who has set `device`: without a GPU, only who asks for one has a
    problem.
    """
    if "devices" not in gpu:
        # The engine would not survive it either.
        level = NOTE if device in {"cpu", "reference"} else PROBLEM
        return [Finding(what="GPU", level=level, text=gpu["problem"], advice="hipfire serve --device cpu works")]
    if gpu["problem"]:
        level = PROBLEM if device not in _WITHOUT_GPU else OK if gpu["library"] is None else NOTE
        advice = None if level == OK else gpu["advice"]
        return [Finding(what="GPU", level=level, text=f"none: {gpu['problem']}", advice=advice)]
    findings = [Finding(what="GPU runtime", level=OK, text=f"{gpu['library']}, {gpu['version']}")]
    for row in gpu["devices"]:
        text = f"hip:{row['index']} {row['name']}, {row['arch']}, {row['pci']}, {row['total_nbytes'] / 1e9:,.1f} GB"
        if not row["covered"]:
            text += "; there are no kernels for it"
        users = [f"process {pid} has {nbytes / 1e9:,.1f} GB of it" for pid, nbytes in row["other_users"].items()]
        text = "; ".join([text, *users])
        findings.append(Finding(what="GPU", level=OK if row["covered"] and not users else NOTE, text=text))
    return findings


def _memory() -> dict[str, int]:
    """Bytes in all and bytes to be had, as the kernel estimates them; 0 where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    fields = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if len(line.split()) > 1}
    return {"total_bytes": fields.get("MemTotal", 0), "available_bytes": fields.get("MemAvailable", 0)}


def _memory_finding(memory: dict[str, int]) -> Finding:
    total, available = memory["total_bytes"], memory["available_bytes"]
    text = f"{total / 1e9:,.1f} GB, {available / 1e9:,.1f} GB to be had"
    if available < _LITTLE_MEMORY_NBYTES:
        return Finding(
            what="memory", level=NOTE, text=text, advice="end other programs, or take a small model: smollm2:135m"
        )
    return Finding(what="memory", level=OK, text=text)


def _settings(environment: Environment) -> tuple[Settings | None, Finding]:
    path = environment.config_file
    try:
        settings = resolve(environment)
    except ConfigError as error:
        return None, Finding(what="settings", level=PROBLEM, text=error.message, advice=error.hint or "correct it")
    chosen = [key for key, source in settings.sources.items() if source.explicit]
    text = f"{path if path.exists() else f'no {path.name}'}; set: {', '.join(chosen) or 'nothing, all built-in'}"
    return settings, Finding(what="settings", level=OK, text=text)


def _folder(what: str, path: Path) -> Finding:
    """Whether a folder can be written, or made, and how much room it has."""
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Finding(
            what=what,
            level=NOTE,
            text=f"{path} cannot be written",
            advice="set HIPFIRE_HOME (and HIPFIRE_MODELS_DIR) to a folder that can",
        )
    free = shutil.disk_usage(existing).free
    text = f"{path}, {free / 1e9:,.1f} GB free"
    if free < _LITTLE_DISK_NBYTES:
        return Finding(what=what, level=NOTE, text=text, advice="make room before you pull a model")
    return Finding(what=what, level=OK, text=text)


def _models(environment: Environment) -> tuple[list[dict[str, Any]], list[Finding]]:
    """The usable models, and what is to be said of them and of the others."""
    try:
        store = open_store(environment)
    except ConfigError as error:
        return [], [Finding(what="models", level=PROBLEM, text=error.message, advice=error.hint or "correct it")]
    listings = store.list_installed()
    usable = [
        {"tag": listing.model.tag, "arch": listing.details.architecture, "size_bytes": listing.details.nbytes}
        for listing in listings
        if listing.details is not None
    ]
    broken = [
        Finding(
            what="model",
            level=NOTE,
            text=f"{listing.model.tag} cannot be used: {listing.problem}",
            advice=f"correct it in {environment.models_file}"
            if listing.model.own is not None and listing.model.own.path is not None
            else f"hipfire rm {listing.model.tag}, then pull it again",
        )
        for listing in listings
        if listing.details is None
    ]
    broken += [
        Finding(what="model", level=NOTE, text=f"{own.place}: there is no model {own.name}", advice="correct the name")
        for own in store.own_strangers()
    ]
    tags = ", ".join(str(model["tag"]) for model in usable)
    if usable:
        return usable, [Finding(what="models", level=OK, text=tags), *broken]
    return usable, [Finding(what="models", level=NOTE, text="none", advice="hipfire pull smollm2:135m"), *broken]


def _port(environment: Environment, settings: Settings | None) -> tuple[bool, Finding]:
    """Whether a serve of this state root is up, and who has the port."""
    serve = (settings or Settings()).serve
    for process in find_processes(None):
        if process.role == SERVE and (process.home == str(environment.home) or process.port == serve.port):
            is_own = process.home == str(environment.home)
            whose = "" if is_own else f" of the state root {process.home}"
            text = f"{process.port} is held by the serve{whose}, process {process.pid}"
            advice = None if is_own else f"hipfire serve {serve.port + 1}, or set serve.port"
            return is_own, Finding(what="port", level=OK if is_own else NOTE, text=text, advice=advice)
    if takes_connections(endpoint_of(serve)):
        is_serve = read_health(endpoint_of(serve)) is not None
        return False, Finding(
            what="port",
            level=NOTE if is_serve else PROBLEM,
            text=f"{serve.port} is held by {'another user’s serve' if is_serve else 'a program that is not hipfire'}",
            advice=f"hipfire serve {serve.port % 65535 + 1}, or set serve.port in {environment.config_file}",
        )
    if settings is None:
        text = f"{serve.port}, the built-in one, is free; which one is set cannot be read"
        return False, Finding(what="port", level=NOTE, text=text)
    return False, Finding(what="port", level=OK, text=f"{serve.port} is free")

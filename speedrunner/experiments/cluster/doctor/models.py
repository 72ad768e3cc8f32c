"""Checks of models: the installed engine, its flags, and files that need no network."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from serving import hub
from serving.endpoints import running_endpoint
from serving.engine.endpoint import attach
from serving.engine.flags import flag_problems
from serving.engine.gpus import read_gpus
from serving.engine.server import VllmServer
from serving.errors import InvalidModelConfig, ServerFailed
from serving.hub import FilesMissing
from serving.model_config import ModelConfig
from serving.model_configs import CHECKOUT
from serving.sizing import adopt
from serving.tokens.tokenizer import ChatTokenizer
from serving.weights import model_path
from speedrunner.config.findings import Finding, failure, ok, warning
from speedrunner.experiments.cluster.cluster_subject import Subject

STAMP = "installed.json"
"""File that `make venv` leaves in a complete environment."""


def installation(subject: Subject) -> Iterator[Finding]:
    """Check which of the engine's builds is installed, and whether the models can use it."""
    name = "installation"
    kind, lock = _stamp()
    try:
        current = hashlib.sha256((CHECKOUT / "requirements" / f"{kind}.lock").read_bytes()).hexdigest()
    except OSError:
        yield warning(
            name, f"{sys.prefix} was not built by `make venv`: its versions are unknown", "make venv"
        )
        return
    on_gpu, on_cpu = (
        [model_config.name for model_config, _ in subject.served if bool(model_config.gpus) == is_on]
        for is_on in (True, False)
    )
    if kind == "cpu" and on_gpu:
        yield failure(name, f"{on_gpu[0]} needs a GPU, but this is the CPU build", "make venv KIND=gpu")
    elif kind == "gpu" and on_cpu:
        text = f"{on_cpu[0]} needs the CPU build, but this is the GPU build"
        if _has_gpu():
            yield warning(name, text, "make venv KIND=cpu")
        else:
            yield failure(name, f"{text}, which needs a GPU", "make venv KIND=cpu")
    elif lock != current:
        yield warning(name, f"requirements/{kind}.lock has changed since {sys.prefix} was built", "make venv")
    else:
        yield ok(name, f"{kind} build, Python {sys.version.split()[0]}, as locked")


def files(subject: Subject) -> Iterator[Finding]:
    """Check that each model's weights and tokenizer are here."""
    seen = set()
    for model_config in subject.model_configs:
        name = f"files of {model_config.name}"
        place = model_config.base_url or model_path(model_config)
        if place not in seen:
            seen.add(place)
            yield (
                _key(name, model_config, subject)
                if model_config.hosted
                else _files(name, model_config, subject)
            )


def flags(subject: Subject) -> Iterator[Finding]:
    """Check that the engine accepts the flags of each model config that it can serve here.

    The CPU build serves no model config for GPUs, and the GPU build cannot be imported on a machine without a
    GPU. Other checks report both.
    """
    kind, _ = _stamp()
    served = [each for each in subject.served if not (kind == "cpu" and each[0].gpus)]
    if not served or (kind == "gpu" and not _has_gpu()):
        return
    names = [f"{number} {model_config.name}" for number, (model_config, _) in enumerate(served)]
    lines = {
        name: VllmServer(model_config, model_path(model_config), Path("unused"), port=port).arguments
        for name, (model_config, port) in zip(names, served, strict=True)
    }
    try:
        problems = flag_problems(lines)
    except ServerFailed as error:
        build = f"make venv{f' KIND={kind}' if kind else ''}"
        remedy = f"{sys.executable} -c 'import vllm' shows the whole error; {build} installs the engine again"
        yield failure("engine", str(error), remedy)
        return
    for name in names:
        about = f"engine flags of {name.partition(' ')[2]}"
        if name in problems:
            yield failure(about, "; ".join(problems[name]), "correct `server.flags` of the model")
        else:
            yield ok(about, f"vLLM accepts all {len(lines[name])} arguments")


def servers(subject: Subject) -> Iterator[Finding]:
    """Check that each named server runs and serves its model."""
    for model_config, options in subject.attached:
        name = f"server of {model_config.name}"
        try:
            if endpoint := running_endpoint(model_config, options):
                adopted = adopt(model_config, asyncio.run(attach(endpoint, model_config.name)), endpoint)
                yield ok(name, f"{endpoint} serves it with a context of {adopted.context:,} tokens")
        except (InvalidModelConfig, ServerFailed) as error:
            remedy = "serve this model there, correct serving.url or its key, or remove it to start a server"
            yield failure(name, str(error), remedy)


def _stamp() -> tuple[str | None, str | None]:
    """Return the build that `make venv` installed, `cpu` or `gpu`, and its lock's SHA-256."""
    try:
        stamp = json.loads(Path(sys.prefix, STAMP).read_text("utf-8"))
        return stamp["kind"], stamp["lock"]
    except (OSError, ValueError, KeyError):
        return None, None


def _has_gpu() -> bool:
    return bool(read_gpus().usable)


def _key(name: str, model_config: ModelConfig, subject: Subject) -> Finding:
    """Check the key of a hosted model, which needs no files."""
    try:
        running_endpoint(model_config, subject.configs[0].serving.elsewhere())
    except (InvalidModelConfig, ServerFailed) as error:
        return failure(
            name, str(error), f"export {model_config.api_key_env or 'the key'}=..., also in the job"
        )
    return ok(name, f"none: it is hosted at {model_config.base_url}, which must be reachable from here")


def _files(name: str, model_config: ModelConfig, subject: Subject) -> Finding:
    prepare = f"speedrunner prepare {subject.words}".rstrip()
    fetch = f"run this on a machine with a network and the same HF_HOME: {prepare}"
    place, dummy = model_path(model_config), model_config.load_format == "dummy"
    try:
        folder = hub.complete_folder(place, model_config.revision) if model_config.id else Path(place)
        if not folder.is_dir():
            if model_config.recipe:
                return warning(name, f"{folder} is created at the first start", prepare)
            return failure(
                name, f"the folder {folder} does not exist", "correct `path` in the model configuration"
            )
        lost = [each for each in hub.missing_files(folder) if not (dummy and each in hub.WEIGHTS)]
        if lost:
            return failure(name, f"{folder} lacks {', '.join(lost)}", "create the folder again")
        if model_config.api == "completions":
            ChatTokenizer(place, model_config.revision)
    except FilesMissing as error:
        return failure(name, str(error), fetch)
    except InvalidModelConfig as error:
        return failure(name, str(error), fetch if model_config.id else "correct the model configuration")
    return ok(name, f"{hub.size_bytes(folder) / 1e9:.3g} GB in {folder}; the tokenizer loads")

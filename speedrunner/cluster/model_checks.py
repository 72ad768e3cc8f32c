"""Checks of models for the doctor: running servers and model files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from serving import hub
from serving.engine.endpoint import attach
from serving.errors import InvalidModelConfig, ServerFailed
from serving.model_config import ModelConfig
from serving.new_model_config import check_files
from serving.options import running_endpoint
from serving.sizing import adopt
from serving.weights import model_path
from speedrunner.cluster.cluster_subject import Subject
from speedrunner.plain.findings import Finding, failure, ok, warning


def files(subject: Subject) -> Iterator[Finding]:
    """Check that each model's weights and tokenizer are here, or the key of a hosted one."""
    models = {each.base_url or model_path(each): each for each in reversed(subject.model_configs)}
    for model_config in reversed(models.values()):
        name = f"files of {model_config.name}"
        yield (_key if model_config.hosted else _files)(name, model_config, subject)


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


def _key(name: str, model_config: ModelConfig, subject: Subject) -> Finding:
    """Check the key of a hosted model, which needs no files."""
    try:
        running_endpoint(model_config, subject.configs[0].serving.elsewhere())
    except (InvalidModelConfig, ServerFailed) as error:
        remedy = f"export {model_config.api_key_env or 'the key'}=..., also in the job"
        return failure(name, str(error), remedy)
    return ok(name, f"none: it is hosted at {model_config.base_url}, which must be reachable from here")


def _files(name: str, model_config: ModelConfig, subject: Subject) -> Finding:
    prepare = f"speedrunner prepare {subject.words}".rstrip()
    fetch = f"run this on a machine with a network and the same HF_HOME: {prepare}"
    place, notes = model_path(model_config), ["the tokenizer loads"]
    try:
        folder = hub.complete_folder(place, model_config.revision) if model_config.id else Path(place)
        if not folder.is_dir():
            if model_config.recipe:
                return warning(name, f"{folder} is created at the first start", prepare)
            text = f"the folder {folder} does not exist"
            return failure(name, text, "correct `path` in the model configuration")
        check_files(model_config, place, notes.append, starts=True)
    except (hub.FilesMissing, InvalidModelConfig) as error:
        return failure(name, str(error), fetch if model_config.id else "correct the folder or its config")
    return ok(name, "; ".join((f"{hub.size_bytes(folder) / 1e9:.3g} GB in {folder}", *notes)))

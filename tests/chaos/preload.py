"""Prepare the process that trials' processes are forked from. No other process imports this module.

It does once what is the same in all processes: it imports what a run imports when it first needs it, reads
the configuration, loads the tokenizer, finds out what isolated code is shown, and computes the digests of the
code. It also becomes the parent of all orphans, so that `Trial.check` sees each process that a run leaves.
"""

from __future__ import annotations

import ctypes
import gc
import warnings

import jinja2
import pandas
import PIL.Image
import tokenizers
import transformers
import xgrammar

import speedrunner.cli.play_commands
import tests.chaos.client
from serving.model_files import _load_tokenizer
from speedrunner.agents.rendering import _environment
from speedrunner.config.compose import compose
from speedrunner.methods.speedrunner.speedrunner_method import SpeedRunner
from speedrunner.runs import identity
from speedrunner.workers.sandbox.isolation import show_python
from tests.bundled_models import bundled_folder
from tests.chaos.trial import WORLD
from tests.chaos.world import DoomedCorridor
from tests.digested_once import digest_once
from tests.scripted_runs import SCHEDULE

PRELOADED = (jinja2, pandas, PIL.Image, speedrunner, tests, tokenizers, transformers, xgrammar)

PR_SET_CHILD_SUBREAPER = 36

ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")  # an orphan
show_python()
compose([WORLD, *SCHEDULE[1:]])
_load_tokenizer(bundled_folder("tiny-random")).first_prompt([{"role": "user", "content": ""}], [])
for package in ("speedrunner.agents", "speedrunner.methods", "speedrunner.methods.speedrunner"):
    for name in _environment(package).list_templates(["jinja"]):
        _environment(package).get_template(name)
digest_once()
identity._code([DoomedCorridor, SpeedRunner])
identity.versions()
gc.collect()
gc.freeze()

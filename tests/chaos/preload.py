"""Prepare the process that trials' processes are forked from. No other process imports this module.

It imports what a run imports when it first needs it, and finds out how code is isolated here, which is the
same for all processes of a machine. It also becomes the parent of all orphans, so that `Trial.check` sees
each process that a run leaves.
"""

from __future__ import annotations

import ctypes
import warnings

import hydra
import jinja2
import pandas
import PIL.Image
import tokenizers
import transformers
import xgrammar

import speedrunner.cli.run_command
import speedrunner.methods.speedrunner.speedrunner_method
import tests.chaos.client
import tests.toy_env
from speedrunner.sandbox.isolation import find_isolation
from speedrunner.sandbox.settings import Sandbox

PRELOADED = (hydra, jinja2, pandas, PIL.Image, speedrunner, tests, tokenizers, transformers, xgrammar)

PR_SET_CHILD_SUBREAPER = 36

ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")  # an orphan
find_isolation(Sandbox().kind)

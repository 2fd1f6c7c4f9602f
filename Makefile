# Targets that work from a fresh clone. The first `make run` or `make test` also sets up .venv.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
ON := . $(VENV)/bin/activate &&
export MLFLOW_DISABLE_TELEMETRY = true

.PHONY: setup lock docs-setup in-git run test test-all gpu-check ui walkthrough docs lint clean

setup: $(READY)

# uv installs in half a minute what takes pip three. If it is not there, pip gets it into .uv, checked against the lock file.
UV := $(or $(shell command -v uv),.uv/bin/uv)
INSTALL = UV_FIND_LINKS="$${UV_FIND_LINKS-$$($(PYTHON) -m pip config get global.find-links 2>/dev/null)}" \
    $(UV) pip install --python $(VENV) --requirement

.uv/bin/uv:
	@echo "Getting uv, which installs the packages"
	$(PYTHON) -m venv .uv
	sed -n '/^uv==/,/[^\]$$/p' requirements.lock >.uv/uv.lock
	.uv/bin/pip install --quiet --disable-pip-version-check --requirement .uv/uv.lock

$(READY): requirements.lock | $(UV)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed. Nothing was installed. Name one: make $(MAKECMDGOALS) PYTHON=python3.12")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv --without-pip $(VENV)
	@echo "Installing the packages of requirements.lock into $(VENV)"
	$(INSTALL) requirements.lock
	$(ON) python -m pipeline plots_template
	touch $@

# Writes requirements.lock anew from pyproject.toml: the versions that it has, new packages at their newest version. What
# PyTorch's builds for CUDA need is not in it: uv adds that when it installs one of them.
CUDA := cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime \
    nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 \
    nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx triton

lock: | $(UV)
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --custom-compile-command "make lock" $(CUDA:%=--no-emit-package %) \
	    pyproject.toml --extra torch --extra serve --extra pipeline --extra dev --output-file requirements.lock

# The packages that run the walkthrough and make a page of it, and a site of docs/.
DOCS := $(VENV)/.docs

docs-setup: $(DOCS)

$(DOCS): $(READY) docs/requirements.txt
	$(INSTALL) docs/requirements.txt
	touch $@

# DVC may leave an empty rwlock after Ctrl-C, with which each of its commands ends in "JSON structure is corrupted".
run: in-git $(READY)
	@pgrep -f '[d]vc (repro|exp|queue)' >/dev/null || find .dvc/tmp/rwlock -empty -delete 2>/dev/null || true
	$(ON) dvc repro
	@$(ON) dvc metrics show reports/scores.json
	@echo
	@echo "Results:  reports/report.html       scores, curves and translations of this run, in a browser"
	@echo "          make ui                   all runs side by side, with their params and scores"
	@echo "Keep it:  git add dvc.lock reports && git commit -m \"First result\""
	@echo "Next:     . .venv/bin/activate && dvc exp run -S max_steps=600  train on, to twice the updates: better scores in about a minute"
	@echo "          cp recipes/multi30k.yaml params.yaml && dvc exp run  real text: half an hour to train, an hour in all"

in-git:
	@git rev-parse --git-dir >/dev/null 2>&1 || { echo "error: This folder is no git clone, and experiments are kept in git. Nothing was installed. Type git clone, or git init && git add -A && git commit -m start."; exit 1; }

# Three processes on two cores, since tests of whole pipelines often wait for files and for each other. A process that a
# test kills is not restarted, or it would run that test again and again.
TEST := python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test: $(READY)
	$(ON) $(TEST) -m "not full" --timeout 1800

test-all: $(DOCS)
	$(ON) $(TEST) --timeout 1800

# Measures a CUDA device and prints tables; PARTS="losses decoding": only these parts.
gpu-check: $(READY)
	$(ON) python -m benchmarks.gpu $(PARTS)

ui: $(READY)
	$(ON) python -m pipeline ui

# The paper line by line: runs docs/walkthrough.py, and writes a notebook, docs/walkthrough.md and a page of one file.
walkthrough: $(DOCS)
	$(ON) python -m pipeline walkthrough

# README.md and docs/ as a site in build/site, which needs no network and no server.
docs: $(DOCS)
	$(ON) python -m pipeline site

lint: $(READY)
	$(ON) ruff check . && ruff format --check . && pyright && hadolint deploy/Dockerfile deploy/Dockerfile.serve

# Removes states of trainings, caches, and outs in DVC's cache that no commit, tag, experiment or work tree needs. It
# prints what it will remove, and asks. DAYS=30 keeps what was written in the last 30 days; YES=1 does not ask.
clean: $(READY)
	$(ON) python -m pipeline clean --days $(or $(DAYS),0) $(if $(YES),--yes)

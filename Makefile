# Targets that work from a fresh clone. The first `make run` or `make test` also sets up .venv.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
ON := . $(VENV)/bin/activate &&
export MLFLOW_DISABLE_TELEMETRY = true

.PHONY: setup bench-setup walkthrough-setup run test test-all gpu-check ui walkthrough notebook lint clean

setup: $(READY)

# compileall uses all cores, pip only one. It fails on files of packages for other versions of Python: `|| true`.
$(READY): requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed. Nothing was installed. Name one: make $(MAKECMDGOALS) PYTHON=python3.12")'
	test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	$(ON) pip install --quiet --no-compile --disable-pip-version-check --requirement requirements.lock
	$(ON) python -m compileall -qq -j 0 $(VENV)/lib || true
	$(ON) python -m pipeline plots_template
	touch $@

# Two other trainers, for benchmarks/train.py. --no-deps: they pin an old torch.
bench-setup: $(READY)
	$(ON) pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/requirements.txt

# The packages that run docs/walkthrough.py as a notebook and make a page of it.
NOTEBOOK := $(VENV)/.notebook

walkthrough-setup: $(NOTEBOOK)

$(NOTEBOOK): $(READY) docs/requirements.txt
	$(ON) pip install --quiet --disable-pip-version-check --requirement docs/requirements.txt
	touch $@

run: $(READY)
	$(ON) dvc repro
	@$(ON) dvc metrics diff --all --targets reports/scores.json
	@echo
	@echo "Results:  reports/report.html       scores, curves and translations of this run, in a browser"
	@echo "          make ui                   all runs side by side, with their params and scores"
	@echo "Next:     . .venv/bin/activate && dvc exp run -S dropout=0.2    train again with one knob changed"
	@echo "          cp recipes/multi30k.yaml params.yaml && dvc exp run  real text, half an hour"

# Three processes on two cores, since tests of whole pipelines often wait for files and for each other. A process that a
# test kills is not restarted, or it would run that test again and again.
TEST := python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test: $(READY)
	$(ON) $(TEST) -m "not full"

test-all: $(NOTEBOOK)
	$(ON) $(TEST)

# Measures a CUDA device and writes docs/gpu.md; PARTS="losses profile": only these parts.
gpu-check: $(READY)
	$(ON) python -m benchmarks.gpu $(PARTS) --page docs/gpu.md

ui: $(READY)
	$(ON) python -m pipeline ui

# The paper part by part, with the code that runs: docs/walkthrough.py as a page, or as a notebook to change and run.
walkthrough: $(NOTEBOOK)
	$(ON) python -m pipeline walkthrough

notebook: $(NOTEBOOK)
	$(ON) python -m pipeline walkthrough --notebook

lint: $(READY)
	$(ON) ruff check . && ruff format --check . && pyright && hadolint deploy/Dockerfile

# Removes states of trainings, caches, and outs in DVC's cache that no commit, tag, experiment or work tree needs. It
# prints what it will remove, and asks. DAYS=30 keeps what was written in the last 30 days; YES=1 does not ask.
clean: $(READY)
	$(ON) python -m pipeline clean --days $(or $(DAYS),0) $(if $(YES),--yes)

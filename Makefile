# Everything from a fresh clone: `make run` and `make test` set up .venv by themselves and start at once the next time.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
ON := . $(VENV)/bin/activate &&
export MLFLOW_DISABLE_TELEMETRY = true

.PHONY: setup bench-setup run test test-all ui lint clean

setup: $(READY)

# Compiled after the installation: pip does it on one core. Some files in packages are for other versions of Python.
$(READY): requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one: make $(MAKECMDGOALS) PYTHON=python3.12")'
	test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	$(ON) pip install --quiet --no-compile --disable-pip-version-check --requirement requirements.lock
	$(ON) python -m compileall -qq -j 0 $(VENV)/lib || true
	$(ON) python -m pipeline plots_template
	touch $@

# Two other trainers, for benchmarks/train.py: without what they pin, which is an old torch.
bench-setup: $(READY)
	$(ON) pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/requirements.txt

run: $(READY)
	$(ON) dvc repro
	@$(ON) dvc metrics diff --all --targets reports/scores.json
	@echo
	@echo "Results:  reports/report.html       scores, curves and translations of this run, in a browser"
	@echo "          make ui                   all runs side by side, with their params and scores"
	@echo "Next:     . .venv/bin/activate && dvc exp run -S dropout=0.2    train again with one knob changed"
	@echo "          cp recipes/multi30k.yaml params.yaml && dvc exp run  real text, half an hour"

# Three processes on two cores: whole pipelines wait for files and for one another. One that a test kills is not restarted:
# the test would be run in it again, without end.
TEST := python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test: $(READY)
	$(ON) $(TEST) -m "not full"

test-all: $(READY)
	$(ON) $(TEST)

ui: $(READY)
	$(ON) python -m pipeline ui

lint: $(READY)
	$(ON) ruff check . && ruff format --check . && pyright

# What no result needs: states that trainings resume from, caches, and what DVC keeps for no commit, tag or experiment.
# make clean DAYS=30 spares what was touched in the last 30 days.
clean: $(READY)
	$(ON) python -m pipeline clean --days $(or $(DAYS),0)

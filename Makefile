# Five words, the same in CI and CONTRIBUTING.
PYTHON ?= .venv/bin/python

.PHONY: quality style test run bench audit

quality:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy -p dflash -p advisor -p app

style:
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

test:
	$(PYTHON) -m pytest

run:
	$(PYTHON) app.py

bench:
	$(PYTHON) -m dflash.benchmark --model demo --dataset demo --block-size 4 8 12 16

audit:
	$(PYTHON) -m pip install -q pip-audit && $(PYTHON) -m pip_audit -r requirements.txt

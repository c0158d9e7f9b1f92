# Where the programs come from. The active virtual environment is used; without one, .venv at the top of the
# checkout is made. The project is installed once, and again when pyproject.toml changes.
ROOT := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))/..)
VENV := $(or $(VIRTUAL_ENV),$(CONDA_PREFIX),$(ROOT)/.venv)
BIN := $(VENV)/bin
PYTHON ?= python3
INSTALLED := $(VENV)/.hydractl-installed

# The stamp names the checkout: an environment shared by two checkouts must not run the other one's code.
ifneq ($(shell cat $(INSTALLED) 2>/dev/null),$(ROOT))
.PHONY: $(INSTALLED)
endif

$(INSTALLED): $(ROOT)/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	$(BIN)/python -m pip install --quiet --editable "$(ROOT)[dev]"
	echo $(ROOT) > $@

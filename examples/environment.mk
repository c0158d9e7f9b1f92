# Where the programs come from. The active virtual environment is used; without one, .venv at the top of the
# checkout is made. The project is installed once, and again when pyproject.toml changes.
ROOT := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))/..)
VENV := $(or $(VIRTUAL_ENV),$(CONDA_PREFIX),$(ROOT)/.venv)
BIN := $(VENV)/bin
PYTHON ?= python3
# What is installed: `all` runs the project; `dev` tests it too, and counts as both.
EXTRAS ?= all
INSTALLED := $(VENV)/.hydractl-$(EXTRAS)

# The stamp names the checkout: an environment shared by two checkouts must not run the other one's code.
ifneq ($(shell cat $(INSTALLED) 2>/dev/null),$(ROOT))
.PHONY: $(INSTALLED)
endif

$(INSTALLED): $(ROOT)/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	@echo "Installing hydractl[$(EXTRAS)] into $(VENV): torch, torchvision, transformers, timm and more, up to 7 GB"
	$(BIN)/python -m pip install --quiet --editable "$(ROOT)[$(EXTRAS)]"
	echo $(ROOT) > $(VENV)/.hydractl-all
	echo $(ROOT) > $@

# Ensembles that are trained from scratch, by torch-uncertainty's layers, in the table of every other system:
# `make -C examples packed` and `mimo` on CIFAR-10, `baselines` for both and the table. QUICK=1 trains one epoch on the
# digits example's images, which are brought to CIFAR-10's shape.
BASELINES := packed mimo
P := $(BUILD)/baselines
ifdef QUICK
BASELINE_TRAIN := $(BUILD)/data/digits:train
BASELINE_ID := $(BUILD)/data/digits:test
BASELINE_OOD := far/photo2=$(BUILD)/data/far_test
BASELINE_FLAGS := --epochs 1 --limit 200
BASELINE_NEEDS := $(DATA)
else
BASELINE_TRAIN ?= $(CIFAR10):train
BASELINE_ID ?= $(CIFAR10):$(CIFAR10_TEST)
BASELINE_OOD ?= $(OOD)
endif

$(BASELINES:%=$(P)/%/predictions.json): $(P)/%/predictions.json: baselines/from_scratch.py $(BASELINE_NEEDS) | $(INSTALLED)
	python baselines/from_scratch.py $* $(P) --train $(BASELINE_TRAIN) --id $(BASELINE_ID) \
	  --ood $(BASELINE_OOD) $(BASELINE_FLAGS)

.PHONY: baselines $(BASELINES)
$(BASELINES): %: $(P)/%/predictions.json

$(P)/report.json: $(BASELINES:%=$(P)/%/predictions.json)
	hydractl evaluate $(BASELINES:%=predictions:$(P)/%) --json $@ --force > $(P)/table.txt

baselines: $(P)/report.json
	@cat $(P)/table.txt

# The paper's analyses of one network, in the order of its appendix: overlap of circuits, B.1, B.3, B.5, B.6 and shift.
# `make -C examples analyses` runs them on the digits example; QUICK=1 cuts them short. On a network of your own:
#   make -C examples analyses ANALYSED=vit_cifar10 ANALYSES=build/cifar10-analyses TUNE_ON=cifar10:train SEARCH_ID=... \
#     SEARCH_OOD='a.parquet b.parquet' TEST_ID=... TEST_OOD='near/c=c.parquet far/d=d.parquet' ANALYSED_BUDGET=12
# What is there already stays: remove a file to make it anew. Texts have no noise and no shift: NOISE= SHIFT=.
.PHONY: analyses
QUICK ?=
ANALYSED ?= $(VIT)
ANALYSES ?= $(BUILD)/analyses
SEARCH_ID ?= $(BUILD)/data/digits:validation
SEARCH_OOD ?= $(BUILD)/data/near_search
TEST_ID ?= $(BUILD)/data/digits:test
TEST_OOD ?= near/digits6and7=$(BUILD)/data/near_test far/photo2=$(BUILD)/data/far_test
TUNE_ON ?= $(BUILD)/data/digits:train
TUNE_RECIPE ?= digits.toml
TUNE_STEPS ?= 300
ANALYSED_BUDGET ?= 4
ANALYSED_POOL ?= 8
ANALYSED_RANK ?= all
SWEEP ?= 2,4,6,8
NOISE ?= gaussian_noise,shot_noise,impulse_noise,contrast:3
SHIFT ?= all:1-5
DRAWS ?= 16
ANALYSED_LIMIT ?= 1000
SEARCH_LIMIT ?= $(ANALYSED_LIMIT)
SEARCH ?= exact
TUNE_PRECISION ?= no

analyses: export OMP_NUM_THREADS ?= 1

$(ANALYSES)/summary.txt: analyses.py $(if $(filter $(VIT),$(ANALYSED)),$(VIT)) | $(INSTALLED)
	python analyses.py $(ANALYSED) $(ANALYSES) --search-id '$(SEARCH_ID)' --search-ood $(SEARCH_OOD:%='%') \
	  --test-id '$(TEST_ID)' --test-ood $(TEST_OOD:%='%') --tune-on '$(TUNE_ON)' --recipe $(TUNE_RECIPE) \
	  --steps $(TUNE_STEPS) --budget $(ANALYSED_BUDGET) --pool $(ANALYSED_POOL) --rank $(ANALYSED_RANK) --sweep $(SWEEP) \
	  --noise '$(NOISE)' --shift '$(SHIFT)' --draws $(DRAWS) --limit $(ANALYSED_LIMIT) \
	  --search '$(SEARCH)' --search-limit $(SEARCH_LIMIT) --precision $(TUNE_PRECISION) $(if $(QUICK),--quick)

analyses: $(ANALYSES)/summary.txt
	cat $<

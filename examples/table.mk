# The paper's table of one network: every system, untrained and fine-tuned, at several budgets, on the same samples.
# `make -C examples table` makes it for the digits example; QUICK=1 cuts it short. On a network of your own:
#   make -C examples table TABLED=bert TABLE=build/sst2-table TABLE_TRAIN=sst2:train[:32768] TABLE_RECIPE=sst2 \
#     TABLE_SETTINGS=lr=2e-5 TABLE_STEPS=128 TABLE_PRECISION=bf16 TABLE_SEARCH=shortlist TABLE_TUNED=18 TABLE_TRUNKS=2 \
#     TABLE_SEARCH_ID=... TABLE_CHOOSE_ID=... TABLE_CALIBRATION=... TABLE_TEST_ID=... TABLE_SEARCH_OOD='a.csv b.csv' \
#     TABLE_CHOOSE_OOD=c.csv TABLE_TEST_OOD='near/d=d.csv far/e=e.csv' TABLE_BUDGETS=9,18,27,36 TABLE_RANK=36
# TABLE_TUNED names those of TABLE_BUDGETS at which members train, TABLE_TRUNKS how many layers members share.
# ENSEMBLE is networks of other seeds, the first TABLED itself; without, the Deep Ensemble is copies that train on.
.PHONY: table
TABLED ?= $(VIT)
TABLE ?= $(BUILD)/table
ENSEMBLE ?=
ALSO ?=
TABLE_TRAIN ?= $(BUILD)/data/digits:train
TABLE_RECIPE ?= digits.toml
TABLE_SETTINGS ?= lr=3e-4
TABLE_STEPS ?= 300
TABLE_SEARCH_ID ?= $(BUILD)/data/digits:validation%1/3
TABLE_CHOOSE_ID ?= $(BUILD)/data/digits:validation%2/3
TABLE_CALIBRATION ?= $(BUILD)/data/digits:validation%3/3
TABLE_SEARCH_OOD ?= $(BUILD)/data/near_search%1/2
TABLE_CHOOSE_OOD ?= $(BUILD)/data/near_search%2/2
TABLE_TEST_ID ?= $(BUILD)/data/digits:test
TABLE_TEST_OOD ?= near/digits6and7=$(BUILD)/data/near_test far/photo2=$(BUILD)/data/far_test
TABLE_BUDGETS ?= 2,4,6,8
TABLE_TUNED ?= 4,8
TABLE_TRUNKS ?= 1,2,3
TABLE_RANK ?= 8
TABLE_SEARCH ?= exact
TABLE_SEARCH_LIMIT ?= $(TABLE_LIMIT)
TABLE_HEADS_PER_STEP ?= 1
TABLE_LIMIT ?= 1000
TABLE_TEST_LIMIT ?= 100000
TABLE_PRECISION ?= no

table: export OMP_NUM_THREADS ?= 1

$(TABLE)/table.txt: table.py $(if $(filter $(VIT),$(TABLED)),$(VIT)) | $(INSTALLED)
	python table.py $(TABLED) $(TABLE) --ensemble $(ENSEMBLE) --also $(ALSO:%='%') --train '$(TABLE_TRAIN)' \
	  --recipe $(TABLE_RECIPE) --set $(TABLE_SETTINGS) --steps $(TABLE_STEPS) --precision $(TABLE_PRECISION) \
	  --search-id '$(TABLE_SEARCH_ID)' --search-ood $(TABLE_SEARCH_OOD:%='%') \
	  --search '$(TABLE_SEARCH)' --search-limit $(TABLE_SEARCH_LIMIT) --heads-per-step $(TABLE_HEADS_PER_STEP) \
	  --rank $(TABLE_RANK) \
	  --choose-id '$(TABLE_CHOOSE_ID)' --choose-ood $(TABLE_CHOOSE_OOD:%='%') --calibration '$(TABLE_CALIBRATION)' \
	  --test-id '$(TABLE_TEST_ID)' --test-ood $(TABLE_TEST_OOD:%='%') --test-limit $(TABLE_TEST_LIMIT) \
	  --limit $(TABLE_LIMIT) --budgets $(TABLE_BUDGETS) --tuned-budgets $(TABLE_TUNED) --trunks $(TABLE_TRUNKS) \
	  $(if $(QUICK),--quick)

table: $(TABLE)/table.txt
	cat $<

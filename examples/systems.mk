# Every system on one table, on the digits example's network and data: `make -C examples systems`. Each trains on as many samples
# as a member of the Hydra. QUICK=1 takes two steps and only checks that everything runs.
# Packed-Ensembles and MIMO train from scratch, for longer, and need torch-uncertainty; SCRATCH= leaves them out. `packed` and `mimo`
# train them on CIFAR-10, and `baselines` puts both on a table; QUICK=1 there takes one epoch on the digits.
SYSTEMS_IN := $(BUILD)/systems
P := $(BUILD)/baselines
BASELINES := packed mimo
SCRATCH ?= $(BASELINES)
KEEP ?= 0.878
DIGITS_TEST := $(BUILD)/data/digits:test
DIGITS_OOD := near/digits6and7=$(BUILD)/data/near_test far/photo2=$(BUILD)/data/far_test
ifdef QUICK
STEPS := 2
MEMBER_STEPS := 2
SCRATCH_EPOCHS := 1
BASELINE_DATA := --train $(BUILD)/data/digits:train --id $(DIGITS_TEST) --ood $(DIGITS_OOD) --epochs 1 --limit 200
else
SCRATCH_EPOCHS ?= 250
BASELINE_DATA ?= --train $(CIFAR10):train --id $(CIFAR10):$(CIFAR10_TEST) --ood $(OOD)
endif

# Three copies of the network and three pruned members, each trained with a seed of its own. The first copy is the network trained
# longer, the three copies are a Deep Ensemble.
S_COPIES := $(THREE:%=$(SYSTEMS_IN)/member%.safetensors)
S_PRUNED := $(SYSTEMS_IN)/member3.safetensors $(SYSTEMS_IN)/member4.safetensors $(SYSTEMS_IN)/member5.safetensors
SYSTEM_FLAGS := $(TRAIN) --set lr=3e-4 --steps $(MEMBER_STEPS)
SHARING := lora-ensemble batch-ensemble mask-ensemble

$(S_COPIES) $(S_PRUNED) &: $(VIT) $(PRUNED) digits.toml
	mkdir -p $(SYSTEMS_IN)
	hydractl finetune $(THREE:%=$(VIT)) $(PRUNED) $(SYSTEM_FLAGS) -o '$(SYSTEMS_IN)/member{member}.safetensors' --force

$(SYSTEMS_IN)/lora-ensemble.safetensors: SYSTEM_OPTIONS := --rank 4 --alpha 8
$(SHARING:%=$(SYSTEMS_IN)/%.safetensors): $(SYSTEMS_IN)/%.safetensors: $(VIT) digits.toml
	mkdir -p $(@D)
	hydractl finetune $(VIT) $(SYSTEM_FLAGS) --method $* --members 3 $(SYSTEM_OPTIONS) -o $@ --force

$(SYSTEMS_IN)/hydra.safetensors: $(S_PRUNED)
	hydractl fuse $^ -o $@ --force --quiet

$(SYSTEMS_IN)/calibrated.safetensors: $(VIT)
	mkdir -p $(@D)
	hydractl calibrate $(VIT) --id-data $(BUILD)/data/digits:validation --device cpu -o $@ --force --quiet

$(SCRATCH:%=$(SYSTEMS_IN)/%/predictions.json): $(SYSTEMS_IN)/%/predictions.json: baselines/from_scratch.py $(DATA)
	python $< $* $(SYSTEMS_IN) --train $(BUILD)/data/digits:train --id $(DIGITS_TEST) --ood $(DIGITS_OOD) \
	  --epochs $(SCRATCH_EPOCHS) --pad 1 --no-flip

# As many weights become zero as the pruned members lose with their heads.
$(SYSTEMS_IN)/oba/predictions.json: baselines/oba.py $(VIT)
	python $< $(VIT) $(@D) --train $(BUILD)/data/digits:train --keep $(KEEP) --steps $(or $(STEPS),$(MEMBER_STEPS)) \
	  --id $(DIGITS_TEST) --ood $(DIGITS_OOD)

$(SYSTEMS_IN)/report.json: $(SYSTEMS_IN)/calibrated.safetensors $(SYSTEMS_IN)/hydra.safetensors $(SHARING:%=$(SYSTEMS_IN)/%.safetensors) \
  $(SYSTEMS_IN)/oba/predictions.json $(SCRATCH:%=$(SYSTEMS_IN)/%/predictions.json)
	hydractl evaluate single=$(VIT) calibrated=$(SYSTEMS_IN)/calibrated.safetensors tuned=$(firstword $(S_COPIES)) \
	  mc-dropout=$(VIT),mc-dropout=10,p=0.1 pruned=$(lastword $(S_PRUNED)) oba=predictions:$(SYSTEMS_IN)/oba \
	  hydra=$(SYSTEMS_IN)/hydra.safetensors deep-ensemble=$(word 1,$(S_COPIES))+$(word 2,$(S_COPIES))+$(word 3,$(S_COPIES)) \
	  $(foreach s,$(SHARING),$(s)=$(SYSTEMS_IN)/$(s).safetensors) $(foreach s,$(SCRATCH),$(s)=predictions:$(SYSTEMS_IN)/$(s)) \
	  --id-data $(DIGITS_TEST) $(DIGITS_OOD:%=--ood-data %) --device cpu --json $@ --force > $(SYSTEMS_IN)/table.txt

# The same networks by the OOD scores that calibration stores in their files.
OWN := single tuned hydra deep-ensemble
$(SYSTEMS_IN)/own/single.safetensors: $(VIT)
$(SYSTEMS_IN)/own/tuned.safetensors: $(firstword $(S_COPIES))
$(SYSTEMS_IN)/own/hydra.safetensors: $(SYSTEMS_IN)/hydra.safetensors
$(SYSTEMS_IN)/own/deep-ensemble.safetensors: $(SYSTEMS_IN)/deep-ensemble.safetensors
$(SYSTEMS_IN)/deep-ensemble.safetensors: $(S_COPIES)
	hydractl fuse $^ --separate all -o $@ --force --quiet

$(OWN:%=$(SYSTEMS_IN)/own/%.safetensors):
	mkdir -p $(@D)
	hydractl calibrate $< --id-data $(BUILD)/data/digits:validation --ood-data $(BUILD)/data/near_search --ood-data $(BUILD)/data/far_search \
	  --device cpu -o $@ --force --quiet

$(SYSTEMS_IN)/own.json: $(OWN:%=$(SYSTEMS_IN)/own/%.safetensors)
	hydractl evaluate $^ --id-data $(DIGITS_TEST) $(DIGITS_OOD:%=--ood-data %) --device cpu --compare deep-ensemble --json $@ --force \
	  > $(SYSTEMS_IN)/own.txt

.PHONY: systems baselines $(BASELINES)
systems: export OMP_NUM_THREADS := 1
systems: $(SYSTEMS_IN)/report.json $(SYSTEMS_IN)/own.json
	@cat $(SYSTEMS_IN)/table.txt $(SYSTEMS_IN)/own.txt

$(BASELINES:%=$(P)/%/predictions.json): $(P)/%/predictions.json: baselines/from_scratch.py $(if $(QUICK),$(DATA)) | $(INSTALLED)
	python $< $* $(P) $(BASELINE_DATA)

$(BASELINES): %: $(P)/%/predictions.json

$(P)/report.json: $(BASELINES:%=$(P)/%/predictions.json)
	hydractl evaluate $(BASELINES:%=predictions:$(P)/%) --json $@ --force > $(P)/table.txt

baselines: $(P)/report.json
	@cat $(P)/table.txt

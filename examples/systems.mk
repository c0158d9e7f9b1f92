# Every system on one table, on the digits example's network and data: `make -C examples systems`. Each has as many samples to
# train on as a member of the Hydra. QUICK=1 takes two steps instead, and says nothing but that everything runs.
# Packed-Ensembles and MIMO are trained from scratch, for longer, and need torch-uncertainty; SCRATCH= leaves them out.
SYSTEMS_IN := $(BUILD)/systems
SCRATCH ?= packed mimo
KEEP ?= 0.878
ifdef QUICK
STEPS := 2
MEMBER_STEPS := 2
SCRATCH_EPOCHS := 1
else
SCRATCH_EPOCHS ?= 250
endif

# Copies of the network, which a run trains on seeds of their own: the first by itself, all of them as a Deep Ensemble.
DENSE := dense0 dense1 dense2
STARTS := $(DENSE:%=$(SYSTEMS_IN)/start/%.safetensors) $(OBJECTIVES:%=$(SYSTEMS_IN)/start/%.safetensors)
SYSTEM_TUNED := $(STARTS:$(SYSTEMS_IN)/start/%=$(SYSTEMS_IN)/tuned/%)
SYSTEM_FLAGS := $(TRAIN) --set lr=3e-4 --steps $(MEMBER_STEPS)
SHARING := lora-ensemble batch-ensemble mask-ensemble

$(DENSE:%=$(SYSTEMS_IN)/start/%.safetensors): $(VIT)
	mkdir -p $(@D)
	cp $< $@

$(OBJECTIVES:%=$(SYSTEMS_IN)/start/%.safetensors): $(SYSTEMS_IN)/start/%.safetensors: $(BUILD)/pruned/%.safetensors
	mkdir -p $(@D)
	cp $< $@

$(SYSTEM_TUNED) &: $(STARTS) digits.toml
	mkdir -p $(SYSTEMS_IN)/tuned
	hydractl finetune $(STARTS) $(SYSTEM_FLAGS) -o $(SYSTEMS_IN)/tuned/ --force

$(SYSTEMS_IN)/lora-ensemble.safetensors: SYSTEM_OPTIONS := --rank 4 --alpha 8
$(SHARING:%=$(SYSTEMS_IN)/%.safetensors): $(SYSTEMS_IN)/%.safetensors: $(VIT) digits.toml
	mkdir -p $(@D)
	hydractl finetune $(VIT) $(SYSTEM_FLAGS) --method $* --members 3 $(SYSTEM_OPTIONS) -o $@ --force

$(SYSTEMS_IN)/hydra.safetensors: $(SYSTEM_TUNED)
	hydractl fuse $(OBJECTIVES:%=$(SYSTEMS_IN)/tuned/%.safetensors) -o $@ --force --quiet

$(SYSTEMS_IN)/calibrated.safetensors: $(VIT)
	mkdir -p $(@D)
	hydractl calibrate $(VIT) --id-data $(BUILD)/data/digits:validation --device cpu -o $@ --force --quiet

$(SCRATCH:%=$(SYSTEMS_IN)/%/predictions.json): $(SYSTEMS_IN)/%/predictions.json: baselines/from_scratch.py $(DATA)
	python baselines/from_scratch.py $* $(SYSTEMS_IN) --train $(BUILD)/data/digits:train --id $(BUILD)/data/digits:test \
	  --ood near/digits6and7=$(BUILD)/data/near_test far/photo2=$(BUILD)/data/far_test --epochs $(SCRATCH_EPOCHS) \
	  --pad 1 --no-flip

$(SYSTEMS_IN)/report.json: $(SYSTEMS_IN)/calibrated.safetensors $(SYSTEMS_IN)/hydra.safetensors $(SHARING:%=$(SYSTEMS_IN)/%.safetensors) \
  $(SYSTEMS_IN)/oba/predictions.json $(SCRATCH:%=$(SYSTEMS_IN)/%/predictions.json)
	hydractl evaluate single=$(VIT) calibrated=$(SYSTEMS_IN)/calibrated.safetensors tuned=$(SYSTEMS_IN)/tuned/dense0.safetensors \
	  mc-dropout=$(VIT),mc-dropout=10,p=0.1 pruned=$(SYSTEMS_IN)/tuned/avg.safetensors oba=predictions:$(SYSTEMS_IN)/oba \
	  hydra=$(SYSTEMS_IN)/hydra.safetensors deep-ensemble=$(SYSTEMS_IN)/tuned/dense0.safetensors+$(SYSTEMS_IN)/tuned/dense1.safetensors+$(SYSTEMS_IN)/tuned/dense2.safetensors \
	  $(foreach s,$(SHARING),$(s)=$(SYSTEMS_IN)/$(s).safetensors) $(foreach s,$(SCRATCH),$(s)=predictions:$(SYSTEMS_IN)/$(s)) \
	  --id-data $(BUILD)/data/digits:test \
	  --ood-data near/digits6and7=$(BUILD)/data/near_test --ood-data far/photo2=$(BUILD)/data/far_test \
	  --device cpu --json $@ --force > $(SYSTEMS_IN)/table.txt

# As many parameters stay as budget heads leave of the members of the Hydra, but in all maps, and zeros in their places.
$(SYSTEMS_IN)/oba/predictions.json: baselines/oba.py $(VIT)
	python baselines/oba.py $(VIT) $(@D) --train $(BUILD)/data/digits:train --keep $(KEEP) --steps $(or $(STEPS),$(MEMBER_STEPS)) \
	  --id $(BUILD)/data/digits:test --ood near/digits6and7=$(BUILD)/data/near_test far/photo2=$(BUILD)/data/far_test

.PHONY: systems
systems: export OMP_NUM_THREADS := 1
systems: $(SYSTEMS_IN)/report.json
	@cat $(SYSTEMS_IN)/table.txt

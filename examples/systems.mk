# Every system on one table, on the digits example's network and data: `make -C examples systems`. Each has as many samples to
# train on as a member of the Hydra. QUICK=1 takes two steps instead, and says nothing but that everything runs.
# Packed-Ensembles and MIMO are trained from scratch and need torch-uncertainty; SCRATCH= leaves them out.
S := $(BUILD)/systems
SCRATCH ?= packed mimo
KEEP ?= 87.8%
ifdef QUICK
STEPS := 2
MEMBER_STEPS := 2
SCRATCH_EPOCHS := 1
else
SCRATCH_EPOCHS ?= 60
endif

# Copies of the network, which a run trains on seeds of their own: the first by itself, all of them as a Deep Ensemble.
DENSE := dense0 dense1 dense2
STARTS := $(DENSE:%=$(S)/start/%.safetensors) $(OBJECTIVES:%=$(S)/start/%.safetensors) $(S)/start/oba.safetensors
SYSTEM_TUNED := $(STARTS:$(S)/start/%=$(S)/tuned/%)
SYSTEM_FLAGS := $(TRAIN) --set lr=3e-4 --steps $(MEMBER_STEPS)
SHARING := lora-ensemble batch-ensemble mask-ensemble

$(DENSE:%=$(S)/start/%.safetensors): $(VIT)
	mkdir -p $(@D)
	cp $< $@

$(OBJECTIVES:%=$(S)/start/%.safetensors): $(S)/start/%.safetensors: $(BUILD)/pruned/%.safetensors
	mkdir -p $(@D)
	cp $< $@

# As many parameters stay as budget heads leave of the members of the Hydra, but in all maps, and zeros in their places.
$(S)/start/oba.safetensors: $(VIT)
	mkdir -p $(@D)
	hydractl prune $(VIT) --method oba --keep $(KEEP) --data $(BUILD)/data/digits:train --device cpu -o $@ --force --quiet

$(SYSTEM_TUNED) &: $(STARTS) digits.toml
	mkdir -p $(S)/tuned
	hydractl finetune $(STARTS) $(SYSTEM_FLAGS) -o $(S)/tuned/ --force

$(S)/lora-ensemble.safetensors: SYSTEM_OPTIONS := --rank 4 --alpha 8
$(SHARING:%=$(S)/%.safetensors): $(S)/%.safetensors: $(VIT) digits.toml
	mkdir -p $(@D)
	hydractl finetune $(VIT) $(SYSTEM_FLAGS) --method $* --members 3 $(SYSTEM_OPTIONS) -o $@ --force

$(S)/hydra.safetensors: $(SYSTEM_TUNED)
	hydractl fuse $(OBJECTIVES:%=$(S)/tuned/%.safetensors) -o $@ --force --quiet

$(S)/calibrated.safetensors: $(VIT)
	mkdir -p $(@D)
	hydractl calibrate $(VIT) --data $(BUILD)/data/digits:validation --device cpu -o $@ --force --quiet

$(SCRATCH:%=$(S)/%/predictions.json): $(S)/%/predictions.json: baselines/from_scratch.py $(DATA)
	python baselines/from_scratch.py $* $(S) --train $(BUILD)/data/digits:train --id $(BUILD)/data/digits:test \
	  --ood near/digits6and7=$(BUILD)/data/near_test far/photo2=$(BUILD)/data/far_test --epochs $(SCRATCH_EPOCHS)

$(S)/report.json: $(S)/calibrated.safetensors $(S)/hydra.safetensors $(SHARING:%=$(S)/%.safetensors) \
  $(SCRATCH:%=$(S)/%/predictions.json)
	hydractl evaluate single=$(VIT) calibrated=$(S)/calibrated.safetensors tuned=$(S)/tuned/dense0.safetensors \
	  mc-dropout=$(VIT),mc-dropout=10,p=0.1 pruned=$(S)/tuned/avg.safetensors oba=$(S)/tuned/oba.safetensors \
	  hydra=$(S)/hydra.safetensors deep-ensemble=$(S)/tuned/dense0.safetensors+$(S)/tuned/dense1.safetensors+$(S)/tuned/dense2.safetensors \
	  $(foreach s,$(SHARING),$(s)=$(S)/$(s).safetensors) $(foreach s,$(SCRATCH),$(s)=predictions:$(S)/$(s)) \
	  --id-data $(BUILD)/data/digits:test \
	  --ood-data near/digits6and7=$(BUILD)/data/near_test --ood-data far/photo2=$(BUILD)/data/far_test \
	  --device cpu --json $@ --force > $(S)/table.txt

.PHONY: systems
systems: export OMP_NUM_THREADS := 1
systems: $(S)/report.json
	@cat $(S)/table.txt

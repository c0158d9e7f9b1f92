# A base BERT on SST-2, and members chosen by what they do together: three dense networks are fine-tuned on the first half of
# the training texts (the first is pruned, all three are the Deep Ensemble), circuits are searched and members selected on
# parts of the other half, each member and the dense network train a little more on the first half, and everything gets a
# temperature on a third part. Nothing has seen the validation split and OOD_TEXT, which it is all measured on.
# The table in `hydractl guide results` is made so, with BERT a MiniLM and FINETUNE='--precision bf16'.
FIRST ?= 32768
OTHER ?= [$(FIRST):]
DENSE_EPOCHS ?= 1
MEMBER_STEPS_SST2 ?= 256
EXPOSED_EPOCHS ?= 1
HELD_OUT ?= 4000
CHOOSE_BUDGET ?= 12
CHOOSE_BUDGETS ?= 4,8,12
CHOOSE_SAMPLES ?= 250
SHORTLIST ?= 12
T := $(BUILD)/sst2-select
FIRST_TEXTS := --train-data '$(SST2):train[:$(FIRST)]' --recipe sst2 $(FINETUNE)
PART = $(SST2):train$(OTHER)%$(1)/8
SYSTEMS := dense0 tuned untrained hydra deep-ensemble exposed exposed-hydra

$(THREE:%=$(T)/dense%): $(T)/dense%: | $(INSTALLED)
	mkdir -p $(T)
	hydractl finetune $(BERT) $(FIRST_TEXTS) --set lr=5e-5 --epochs $(DENSE_EPOCHS) --new-classifier $(NEW_CLASSIFIER) \
	  --seed $* -o $@ --resume

$(T)/circuit-avg.json $(T)/circuit-ood.json &: $(T)/dense0
	hydractl extract-circuit $< --id-data '$(call PART,1)' --ood-data '$(OOD_TEXT_SEARCH)%1/2' --limit $(CHOOSE_SAMPLES) \
	  --objective avg,ood --budget $(CHOOSE_BUDGET) --search shortlist --shortlist $(SHORTLIST) \
	  -o '$(T)/circuit-{objective}.json' --resume

$(T)/untrained: $(T)/circuit-avg.json $(T)/circuit-ood.json
	hydractl select $(T)/dense0 $(^:%=--circuit %) --budgets $(CHOOSE_BUDGETS) --pools $(CHOOSE_BUDGET) --draws 4 \
	  --objective avg --members 3 --id-data '$(call PART,2)' --ood-data '$(OOD_TEXT_SEARCH)%2/2' --limit 300 \
	  -o $(T)/selection.json --hydra $@ --resume --force

# As many texts for each member as for the dense network that trains on.
$(THREE:%=$(T)/member%) &: $(T)/untrained
	hydractl finetune $< --apart $(FIRST_TEXTS) --set lr=2e-5 --steps $(MEMBER_STEPS_SST2) -o '$(T)/member{member}' --resume

$(T)/tuned: $(T)/dense0
	hydractl finetune $< $(FIRST_TEXTS) --set lr=2e-5 --steps $(MEMBER_STEPS_SST2) -o $@ --resume

# The same once more, for longer and beside the OOD texts of search and selection, of which everything learns to be unsure.
EXPOSED = $(FIRST_TEXTS) --outlier-data '$(OOD_TEXT_SEARCH)' --set lr=5e-5 --epochs $(EXPOSED_EPOCHS)
$(T)/exposed: $(T)/dense0
	hydractl finetune $< $(EXPOSED) --seed 10 -o $@ --resume

$(THREE:%=$(T)/exposed-member%) &: $(T)/untrained
	hydractl finetune $< --apart $(EXPOSED) --seed 11 -o '$(T)/exposed-member{member}' --resume

$(T)/exposed-hydra: $(THREE:%=$(T)/exposed-member%)
	hydractl fuse $^ --separate all -o $@ --force

$(T)/hydra: $(THREE:%=$(T)/member%)
	hydractl fuse $^ -o $@ --force

$(T)/deep-ensemble: $(THREE:%=$(T)/dense%)
	hydractl fuse $^ --separate all -o $@ --force

$(SYSTEMS:%=$(T)/warm/%): $(T)/warm/%: $(T)/%
	mkdir -p $(@D)
	hydractl calibrate $< --id-data '$(call PART,3)' --limit 1000 -o $@ --force

$(T)/report.json: $(SYSTEMS:%=$(T)/warm/%)
	hydractl evaluate dense=$(T)/warm/dense0 $(filter-out %dense0,$^) --id-data $(SST2):validation \
	  $(OOD_TEXT:%=--ood-data %) --bootstrap 1000 --json $@ --force > $(T)/table.txt

# The validation split is small: a fourth part of the other half, whose phrases stand in sentences of both halves, tells more.
$(T)/held-out.json: $(SYSTEMS:%=$(T)/warm/%)
	hydractl evaluate dense=$(T)/warm/dense0 $(filter-out %dense0,$^) --id-data '$(call PART,4)' --limit $(HELD_OUT) \
	  $(OOD_TEXT:%=--ood-data %) --bootstrap 1000 --json $@ --force > $(T)/held-out.txt

sst2-select: $(T)/report.json $(T)/held-out.json
	cat $(T)/table.txt $(T)/held-out.txt

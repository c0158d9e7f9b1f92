# The paper's table on the pre-trained ViT of vit-tiny.mk: no trunk, and members share nothing before they are fused. The networks of
# all seeds are the Deep Ensemble. Every other system starts from the first seed's network, and each of its members trains for as
# many steps as `tuned` and the Hydras of vit-tiny-table. The `untrained` systems are the members before training.
#   make -C examples vit-tiny-paper PRETRAINED=FOLDER IMAGENET=FILE.parquet
# CORRUPT='--corrupt all:3' adds the corruptions. TINY_FROM=net1 takes another seed's network, TINY_FROM=soup the mean of all.
.PHONY: vit-tiny-paper
TINY_BUDGET ?= 12
CORRUPT ?=
TINY_SEARCH ?= exact
TINY_FROM ?= net0
SEED_ood := --seed 1
SEED_avg := --seed 2
SEED_taylor1 := --seed 1
SEED_taylor2 := --seed 2
WP := $(W)/paper$(patsubst %,-%,$(filter-out net0,$(TINY_FROM)))
TINY_NETWORK := $(W)/$(TINY_FROM).safetensors
TINY_CIRCUITS := $(OBJECTIVES:%=$(WP)/%.json)
TINY_PRUNED := $(OBJECTIVES) taylor
TINY_PAPER := $(TINY_PRUNED) hydra hydra-taylor lora-ensemble batch-ensemble $(TINY_PRUNED:%=untrained-%) untrained-hydra
TINY_CALIBRATED = $(W)/net0-calibrated.safetensors $(W)/soup-calibrated.safetensors $(W)/deep-ensemble-calibrated.safetensors $(TINY_PAPER:%=$(WP)/%-calibrated.safetensors)

$(TINY_CIRCUITS) &: $(TINY_NETWORK) $(NEAR)/choose.parquet
	mkdir -p $(WP)
	hydractl extract-circuit $< --id-data '$(CIFAR10):$(CIFAR10_TEST)%1/5' --ood-data $(NEAR)/choose.parquet --limit 256 \
	  --objective acc,ood,avg --budget $(TINY_BUDGET) --search $(TINY_SEARCH) \
	  --tie-break nll --dtype fp32 -o '$(WP)/{objective}.json' --resume --force

$(OBJECTIVES:%=$(WP)/untrained-%.safetensors): $(WP)/untrained-%.safetensors: $(WP)/%.json $(TINY_NETWORK)
	hydractl prune $(word 2,$^) --method circuit --circuit $< --budget $(TINY_BUDGET) -o $@ --force

$(WP)/untrained-taylor.safetensors: $(TINY_NETWORK)
	mkdir -p $(@D)
	hydractl prune $< --method taylor --id-data '$(CIFAR10):train%1/50' --budget $(TINY_BUDGET) -o $@ --force

# Further members of the Hydra by Taylor scores take their gradients on other images.
$(WP)/untrained-taylor1.safetensors $(WP)/untrained-taylor2.safetensors: $(WP)/untrained-taylor%.safetensors: $(TINY_NETWORK)
	mkdir -p $(@D)
	hydractl prune $< --method taylor --id-data '$(CIFAR10):train%1/50@$*' --budget $(TINY_BUDGET) -o $@ --force

$(patsubst %,$(WP)/%.safetensors,$(TINY_PRUNED) taylor1 taylor2): $(WP)/%.safetensors: $(WP)/untrained-%.safetensors
	hydractl finetune $< $(LEARN) $(SEED_$*) -o $@

$(WP)/hydra.safetensors: $(OBJECTIVES:%=$(WP)/%.safetensors)
$(WP)/untrained-hydra.safetensors: $(OBJECTIVES:%=$(WP)/untrained-%.safetensors)
$(WP)/hydra-taylor.safetensors: $(WP)/taylor.safetensors $(WP)/taylor1.safetensors $(WP)/taylor2.safetensors
$(WP)/hydra.safetensors $(WP)/hydra-taylor.safetensors $(WP)/untrained-hydra.safetensors:
	hydractl fuse $^ -o $@ --force

$(WP)/lora-ensemble.safetensors: $(TINY_NETWORK)
	mkdir -p $(@D)
	hydractl finetune $< $(LEARN) --method lora-ensemble --members 3 --rank 4 --alpha 8 --set lr=5e-4 -o $@

$(WP)/batch-ensemble.safetensors: $(TINY_NETWORK)
	mkdir -p $(@D)
	hydractl finetune $< $(LEARN) --method batch-ensemble --members 3 --set lr=2e-4 -o $@

$(TINY_PAPER:%=$(WP)/%-calibrated.safetensors): $(NEAR)/choose.parquet
$(WP)/report.json: MEASURE = mc-dropout=$(W)/$(TINY_FROM)-calibrated.safetensors,mc-dropout=10,p=0.1 $(IMAGES_MEASURED) $(CORRUPT)
$(WP)/report.json: $(TINY_CALIBRATED) $(NEAR)/near.parquet

vit-tiny-paper: $(WP)/report.json
	@hydractl report $<

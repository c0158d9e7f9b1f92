# Members that lose heads and MLP units above a trunk, fused, beside their network trained as long. results/units.md has the tables.
#   make -C examples vit-units-table IMAGENET=FILE.parquet       the ViT of checkpoints/cifar10-vit; FILE as for vit-tiny-table
#   make -C examples minilm-units-table BERT=FOLDER OOD_TEXT_SEARCH=SOURCE       FOLDER holds a MiniLM without classifier, for example;
#       FINE_TUNED=FOLDER in place of BERT names a network that is trained
# vit-tiny-table follows these rules too. An interrupted run continues where it stopped. QUICK=1 takes two steps. UNITS_SEED=1 draws
# other heads for members, and trains them in another order; UNITS_DEAL says how they divide units.
.PHONY: vit-units-table minilm-units-table
.SECONDARY:
# Each folder of $(BUILD) sets these:
#   LEARN         data, recipe and length of every training
#   JOINT         what differs for members
#   LOST          the depth of the trunk, and the heads and MLP units that each member loses above it
#   PUBLISHED     the heads that each member of `published` loses, which has no trunk and whole MLPs
#   SCORED        data to score units on
#   FIT, MEASURE  data to calibrate and to evaluate on
part = '$(word $(1),$(LOST))'
UNITS_SEED ?= 0
UNITS_DEAL ?= shared
drawn = $$((3 * $(UNITS_SEED) + $$m))

# Three members keep the best units in common and divide the others; each loses heads of its own.
#   $(1) the network, $(2) how its units are scored, $(3) a folder for the members
define fused-units
mkdir -p $(3)
hydractl prune $(1) $(2) --budget 0 --units $(call part,3) --members 3 --deal $(UNITS_DEAL) --trunk $(call part,1) -o $(3)/ --force
for m in 0 1 2; do hydractl prune $(3)/$(notdir $(1:.safetensors=))-member$$m.safetensors --method random --seed $(drawn) \
  --budget $(call part,2) --scope layer --trunk $(call part,1) -o $(3)/$$m.safetensors --force || exit; done
hydractl fuse $(THREE:%=$(3)/%.safetensors) -o $@ --force
endef

$(BUILD)/%/untrained-units.safetensors: $(BUILD)/%/net0.safetensors
	$(call fused-units,$<,--method taylor --id-data '$(SCORED)',$(@D)/members)

$(BUILD)/%/units.safetensors: $(BUILD)/%/untrained-units.safetensors
	hydractl finetune $< $(LEARN) --joint $(JOINT) --seed $(UNITS_SEED) -o $@

# Each member with a seed of its own, above a trunk that stays as it is.
$(BUILD)/%/units-apart.safetensors: $(BUILD)/%/untrained-units.safetensors
	hydractl finetune $< $(LEARN) --apart --freeze-below $(call part,1) $(JOINT) --seed $$((3 * $(UNITS_SEED))) \
	  -o '$(@D)/members/apart{member}.safetensors'
	hydractl fuse $(THREE:%=$(@D)/members/apart%.safetensors) -o $@ --force

$(BUILD)/%/untrained-published.safetensors: $(BUILD)/%/net0.safetensors
	mkdir -p $(@D)/published
	for m in 0 1 2; do hydractl prune $< --method random --seed $(drawn) --budget $(PUBLISHED) --scope layer \
	  -o $(@D)/published/$$m.safetensors --force || exit; done
	hydractl fuse $(THREE:%=$(@D)/published/%.safetensors) -o $@ --force

$(BUILD)/%/published.safetensors: $(BUILD)/%/untrained-published.safetensors
	hydractl finetune $< $(LEARN) --joint $(JOINT) --seed $(UNITS_SEED) -o $@

$(BUILD)/%/units-taught.safetensors: $(BUILD)/%/untrained-units.safetensors $(BUILD)/%/deep-ensemble.safetensors
	hydractl finetune $< $(LEARN) --joint $(JOINT) --teacher $(word 2,$^) --seed $(UNITS_SEED) -o $@

$(BUILD)/%/tuned.safetensors: $(BUILD)/%/net0.safetensors
	hydractl finetune $< $(LEARN) -o $@

$(BUILD)/%/taught.safetensors: $(BUILD)/%/net0.safetensors $(BUILD)/%/deep-ensemble.safetensors
	hydractl finetune $< $(LEARN) --teacher $(word 2,$^) -o $@

# The mean of the ensemble's networks.
$(BUILD)/%/soup.safetensors: $(BUILD)/%/deep-ensemble.safetensors
	hydractl fuse $< --soup -o $@ --force

$(BUILD)/%-calibrated.safetensors: $(BUILD)/%.safetensors
	hydractl calibrate $< $(FIT) -o $@ --force

$(BUILD)/%/report.json:
	hydractl evaluate $(foreach one,$(filter %-calibrated.safetensors,$^),$(patsubst %-calibrated.safetensors,%,$(notdir $(one)))=$(one)) \
	  $(MEASURE) $(if $(filter %/deep-ensemble-calibrated.safetensors,$^),--compare deep-ensemble) --dtype float32 --json $@ --force

# Two fifths of the held-out images choose and fit, three fifths measure; so do the halves of the ImageNet images that show none of
# CIFAR-10's classes.
NEAR := $(BUILD)/near
IMAGES_FIT = --id-data '$(CIFAR10):$(CIFAR10_TEST)%2/5' --ood-data $(NEAR)/choose.parquet
IMAGES_MEASURED = --id-data '$(CIFAR10):$(CIFAR10_TEST)%3-5/5' --ood-data near/imagenet=$(NEAR)/near.parquet $(OOD:%=--ood-data %)
$(NEAR)/near.parquet $(NEAR)/choose.parquet &: near_imagenet.py | $(INSTALLED)
	mkdir -p $(@D)
	python near_imagenet.py $(or $(IMAGENET),$(error set IMAGENET to a parquet file of images, one a class)) $(NEAR)/choose.parquet $(NEAR)/near.parquet

UNITS_STEPS ?= 700
UNITS_LOST ?= 3 6 1253
UNITS_PUBLISHED ?= 12
UNITS_SYSTEMS := net0 tuned taught soup units units-apart units-taught published deep-ensemble
UV := $(BUILD)/vit-units
$(UV)/%: LEARN = --train-data '$(CIFAR10):train' --recipe cifar10.toml --set lr=3e-4 --set batch=$(if $(QUICK),4,128) \
  --set label_smoothing=0 --steps $(if $(QUICK),2,$(UNITS_STEPS)) --save-every 100 --resume --force $(FINETUNE)
$(UV)/%: LOST = $(UNITS_LOST)
$(UV)/%: PUBLISHED = $(UNITS_PUBLISHED)
$(UV)/%: SCORED = $(CIFAR10):train%1/50
$(UV)/%: FIT = $(IMAGES_FIT) --dtype float32
$(UV)/%: MEASURE = $(IMAGES_MEASURED)

$(UV)/net0.safetensors: | $(INSTALLED)
	mkdir -p $(@D)
	hydractl prune $(BUILT_FROM) --method random --budget 0 -o $@

# There is one network: its Deep Ensemble is three copies that trained on, each with a seed of its own.
$(BUILD)/%/copy1.safetensors: $(BUILD)/%/net0.safetensors
	hydractl finetune $< $(LEARN) --seed 1 -o $@
$(BUILD)/%/copy2.safetensors: $(BUILD)/%/net0.safetensors
	hydractl finetune $< $(LEARN) --seed 2 -o $@

$(UV)/deep-ensemble.safetensors: $(UV)/tuned.safetensors $(UV)/copy1.safetensors $(UV)/copy2.safetensors
	hydractl fuse $^ --separate all -o $@ --force

$(UNITS_SYSTEMS:%=$(UV)/%-calibrated.safetensors): $(NEAR)/choose.parquet
$(UV)/report.json: $(UNITS_SYSTEMS:%=$(UV)/%-calibrated.safetensors) $(NEAR)/near.parquet

vit-units-table: $(UV)/report.json
	@hydractl report $<

MINILM_EPOCHS ?= 2
MINILM_LOST ?= 3 12 2510
MINILM_PUBLISHED ?= 24
MINILM_SYSTEMS := net0 tuned taught soup units published deep-ensemble
UM := $(BUILD)/minilm-units
$(UM)/%: LEARN = --train-data '$(SST2):train' --recipe sst2 --set lr=5e-5 $(if $(QUICK),--steps 2 --set batch=4,--epochs $(MINILM_EPOCHS)) \
  --save-every 500 --resume --force $(FINETUNE)
$(UM)/%: LOST = $(MINILM_LOST)
$(UM)/%: PUBLISHED = $(MINILM_PUBLISHED)
$(UM)/%: SCORED = $(SST2):train%1/50
$(UM)/%: FIT = --id-data '$(SST2):validation%1-2/5' --ood-data '$(OOD_TEXT_SEARCH)%1/2'
$(UM)/%: MEASURE = --id-data '$(SST2):validation%3-5/5' --ood-data 'near/headlines=$(OOD_TEXT_SEARCH)%2/2' $(OOD_TEXT:%=--ood-data %)

# With FINE_TUNED, a network that has its classifier, the ensemble is copies of it, as above.
ifdef FINE_TUNED
$(UM)/net0.safetensors: | $(INSTALLED)
	mkdir -p $(@D)
	hydractl prune $(FINE_TUNED) --method random --budget 0 -o $@

$(UM)/deep-ensemble.safetensors: $(UM)/tuned.safetensors $(UM)/copy1.safetensors $(UM)/copy2.safetensors
else
$(THREE:%=$(UM)/net%.safetensors): $(UM)/net%.safetensors: | $(INSTALLED)
	mkdir -p $(@D)
	hydractl finetune $(BERT) $(LEARN) --new-classifier $(NEW_CLASSIFIER) --seed $* -o $@

$(UM)/deep-ensemble.safetensors: $(THREE:%=$(UM)/net%.safetensors)
endif
$(UM)/deep-ensemble.safetensors:
	hydractl fuse $^ --separate all -o $@ --force

$(UM)/report.json: $(MINILM_SYSTEMS:%=$(UM)/%-calibrated.safetensors)

minilm-units-table: $(UM)/report.json
	@hydractl report $<

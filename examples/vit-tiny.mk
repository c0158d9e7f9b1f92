# A pre-trained vision transformer of timm, fine-tuned on CIFAR-10 once for each seed. The networks of all seeds are a Deep Ensemble.
#   make -C examples vit-tiny-cifar10 PRETRAINED=FOLDER       FOLDER holds timm's vit_tiny_patch16_224, for example
#   make -C examples vit-tiny-table PRETRAINED=FOLDER IMAGENET=FILE.parquet       FILE holds an image for each class of ImageNet
# Three seeds of three epochs take about an hour on one core with bfloat16 instructions; PRECISION=no suits others. EPOCHS=10 RATE=3e-4
# trains to the end. An interrupted run continues where it stopped. QUICK=1 takes two steps. The mean of three networks of ten epochs
# lies in checkpoints/vit-tiny-cifar10, in float16.
.PHONY: vit-tiny-cifar10 vit-tiny-table
SEEDS ?= 0 1 2
EPOCHS ?= 3
RATE ?= 1e-4
SIZE ?= 96
PRECISION ?= bf16
W := $(BUILD)/vit-tiny
TINY_NETS := $(SEEDS:%=$(W)/net%.safetensors)
TINY_LENGTH := $(if $(QUICK),--steps 2 --set batch=4,--epochs $(EPOCHS))
TINY_TRAIN = --train-data '$(CIFAR10):train' --recipe vit-tiny.toml --precision $(PRECISION) --save-every 100 --resume --force $(FINETUNE)

$(W)/pretrained$(SIZE)/model.safetensors: vit_tiny_model.py | $(INSTALLED)
	python vit_tiny_model.py $(or $(PRETRAINED),$(error set PRETRAINED to a folder of timm)) $(SIZE) $(@D)

$(TINY_NETS): $(W)/net%.safetensors: $(W)/pretrained$(SIZE)/model.safetensors vit-tiny.toml
	hydractl finetune $(<D) $(TINY_TRAIN) --set lr=$(RATE) --new-classifier zeros $(TINY_LENGTH) --seed $* -o $@

vit-tiny-cifar10: $(TINY_NETS)
	@echo $(TINY_NETS)

# The table: the first seed's network, as long trained on labels (tuned) and by the Deep Ensemble (taught), and members that lose
# heads and MLP units above a trunk (units.mk), at 1.3 times the cost, trained fused likewise. `units-pretrained` is such a Hydra of the
# pre-trained network, trained as each network of the ensemble, `units-soup` one of the mean of the ensemble's networks (soup).
TINY_MORE ?= 1172
TINY_TRUNK ?= 6
TINY_HEADS ?= 6
TINY_UNITS ?= 2460
TINY_SYSTEMS := net0 tuned taught soup units units-pretrained units-soup units-apart units-taught published deep-ensemble

$(W)/%: LEARN = $(TINY_TRAIN) $(if $(QUICK),--steps 2,--steps $(TINY_MORE))
$(W)/%: JOINT = --set lr=2e-4
$(W)/%: LOST = $(TINY_TRUNK) $(TINY_HEADS) $(TINY_UNITS)
$(W)/%: PUBLISHED = $(TINY_BUDGET)
$(W)/%: SCORED = $(CIFAR10):train%1/50
$(W)/%: FIT = $(IMAGES_FIT)
$(W)/%: MEASURE = $(IMAGES_MEASURED)

$(W)/untrained-units-pretrained.safetensors: $(W)/pretrained$(SIZE)/model.safetensors
	$(call fused-units,$(<D),--method magnitude,$(@D)/pretrained-members)

$(W)/units-pretrained.safetensors: $(W)/untrained-units-pretrained.safetensors
	hydractl finetune $< $(TINY_TRAIN) --joint --set lr=$(RATE) --new-classifier zeros $(TINY_LENGTH) --seed $(UNITS_SEED) -o $@

$(W)/untrained-units-soup.safetensors: $(W)/soup.safetensors
	$(call fused-units,$<,--method taylor --id-data '$(SCORED)',$(@D)/soup-members)

$(W)/units-soup.safetensors: $(W)/untrained-units-soup.safetensors
	hydractl finetune $< $(LEARN) --joint $(JOINT) --seed $(UNITS_SEED) -o $@

$(W)/deep-ensemble.safetensors: $(TINY_NETS)
	hydractl fuse $^ --separate all -o $@ --force

$(TINY_SYSTEMS:%=$(W)/%-calibrated.safetensors): $(NEAR)/choose.parquet
$(W)/report.json: $(TINY_SYSTEMS:%=$(W)/%-calibrated.safetensors) $(NEAR)/near.parquet

vit-tiny-table: $(W)/report.json
	@hydractl report $<

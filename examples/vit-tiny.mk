# A pre-trained vision transformer of timm, fine-tuned on CIFAR-10 once for each seed. The networks of all seeds are a Deep Ensemble.
#   make -C examples vit-tiny-cifar10 PRETRAINED=FOLDER       FOLDER holds timm's vit_tiny_patch16_224, for example
# Three seeds of three epochs take about an hour on one core with bfloat16 instructions; PRECISION=no suits others. An interrupted
# run continues where it stopped. QUICK=1 takes two steps. The first seed's network lies in checkpoints/vit-tiny-cifar10, in float16.
.PHONY: vit-tiny-cifar10
SEEDS ?= 0 1 2
EPOCHS ?= 3
SIZE ?= 96
PRECISION ?= bf16
W := $(BUILD)/vit-tiny
TINY_NETS := $(SEEDS:%=$(W)/net%.safetensors)
TINY_LENGTH := $(if $(QUICK),--steps 2 --set batch=4,--epochs $(EPOCHS))

$(W)/pretrained$(SIZE)/model.safetensors: vit_tiny_model.py | $(INSTALLED)
	python vit_tiny_model.py $(or $(PRETRAINED),$(error set PRETRAINED to a folder of timm)) $(SIZE) $(@D)

$(TINY_NETS): $(W)/net%.safetensors: $(W)/pretrained$(SIZE)/model.safetensors vit-tiny.toml
	hydractl finetune $(<D) --train-data '$(CIFAR10):train' --recipe vit-tiny.toml --new-classifier zeros $(TINY_LENGTH) \
	  --precision $(PRECISION) --seed $* --save-every 100 --resume --force -o $@ $(FINETUNE)

vit-tiny-cifar10: $(TINY_NETS)
	@echo $(TINY_NETS)

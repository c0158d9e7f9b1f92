# Trains a ViT for CIFAR-10 from nothing: first at a constant learning rate, then three times, with different seeds, while the
# rate falls to 0. The first of the three is the network, all of them a Deep Ensemble. A fiftieth of the training images stays
# out, for validation (FINETUNE="--val-data ...").
# `make -C examples table` then puts every system on one table:
#   make -C examples cifar10-vit table TABLED=build/cifar10-vit/net0.safetensors ENSEMBLE='build/cifar10-vit/net0.safetensors ...' ...
.PHONY: cifar10-vit cifar10-vit-build
FROM_NOTHING_STEPS ?= 3500
TO_ZERO_STEPS ?= 600
CIFAR10_LEARNT ?= train%1-49/50
V := $(BUILD)/cifar10-vit
NETS := $(THREE:%=$(V)/net%.safetensors)
FROM_NOTHING := --recipe cifar10-vit.toml --train-data '$(CIFAR10):$(CIFAR10_LEARNT)' $(FINETUNE)

$(V)/untrained/model.safetensors: vit_model.py | $(INSTALLED)
	python vit_model.py cifar10 $(@D)

$(V)/learnt.safetensors: $(V)/untrained/model.safetensors cifar10-vit.toml
	hydractl finetune $(<D) $(FROM_NOTHING) --steps $(FROM_NOTHING_STEPS) -o $@ --resume --force

$(V)/net%.safetensors: $(V)/learnt.safetensors
	hydractl finetune $< $(FROM_NOTHING) --steps $(TO_ZERO_STEPS) --set schedule=linear --set warmup=0 --seed $* -o $@ --resume --force

cifar10-vit: $(NETS)
	@echo $(NETS)

# `build` on the first of them, which lies in checkpoints/, takes minutes on one core. Three tenths of the held-out images choose
# and fit, the others measure. BUILT=build/cheap BUILT_WITH='--budget-macs 1.3x' makes a cheaper Hydra.
BUILT_FROM ?= checkpoints/cifar10-vit
BUILT ?= $(V)/built
BUILT_WITH ?=
VIT_MEMBER_STEPS ?= 128
$(BUILT)/work/build.json: | $(INSTALLED)
	mkdir -p $(dir $(BUILT))
	hydractl build $(BUILT_FROM) --id-data '$(CIFAR10):$(CIFAR10_TEST)%1-3/10' --eval-data '$(CIFAR10):$(CIFAR10_TEST)%4-10/10' \
	  $(OOD:%=--eval-ood-data %) --train-data '$(CIFAR10):$(CIFAR10_LEARNT)' --recipe cifar10.toml --set steps=$(VIT_MEMBER_STEPS) \
	  --dtype float32 $(BUILT_WITH) -o $(BUILT)

cifar10-vit-build: $(BUILT)/work/build.json
	@hydractl report $(BUILT)/report/report.json

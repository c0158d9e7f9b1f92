# A ViT for CIFAR-10 from nothing: 3,800 steps in all, at a constant learning rate first, then three times, with
# seeds of their own, while it falls to 0. The first of the three is the network, all of them a Deep Ensemble. A
# thousand training images are held out to watch. `make -C examples table` puts every system on one table beside it:
#   make -C examples cifar10-vit table TABLED=build/cifar10-vit/net0.safetensors ENSEMBLE='build/cifar10-vit/net0.safetensors ...' ...
.PHONY: cifar10-vit
FROM_NOTHING_STEPS ?= 2300
TO_ZERO_STEPS ?= 500
CIFAR10_LEARNT ?= train%1-49/50
CIFAR10_WATCHED ?= train%50/50
V := $(BUILD)/cifar10-vit
NETS := $(THREE:%=$(V)/net%.safetensors)
FROM_NOTHING := --recipe cifar10-vit.toml --data '$(CIFAR10):$(CIFAR10_LEARNT)' \
  --val-data '$(CIFAR10):$(CIFAR10_WATCHED)' $(FINETUNE)

$(V)/untrained/model.safetensors: cifar10_model.py | $(INSTALLED)
	python cifar10_model.py $(@D)

$(V)/learnt.safetensors: $(V)/untrained/model.safetensors cifar10-vit.toml
	hydractl finetune $(<D) $(FROM_NOTHING) --steps $(FROM_NOTHING_STEPS) -o $@ --resume --force

$(V)/net%.safetensors: $(V)/learnt.safetensors
	hydractl finetune $< $(FROM_NOTHING) --steps $(TO_ZERO_STEPS) --set schedule=linear --seed $* -o $@ --resume --force

cifar10-vit: $(NETS)
	@echo $(NETS)

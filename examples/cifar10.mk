# A ViT on CIFAR-10: three members pruned and fine-tuned, fused, beside a Deep Ensemble, a LoRA- and a BatchEnsemble of
# the same network. Every member of every system sees CIFAR10_STEPS x 64 training samples.
CIFAR10 ?= uoft-cs/cifar10
CIFAR10_TEST ?= $(CIFAR10):test
CIFAR10_VIT ?= nateraw/vit-base-patch16-224-cifar10
CIFAR10_BUDGET ?= 48
CIFAR10_PRUNE ?= --method random
CIFAR10_STEPS ?= 782
OOD ?= near/cifar100=uoft-cs/cifar100:test far/svhn=ufldl-stanford/svhn:cropped_digits:test
C := $(BUILD)/cifar10
CIFAR10_TRAIN := --data $(CIFAR10):train --recipe cifar10.toml --steps $(CIFAR10_STEPS) $(FINETUNE)

$(C)/pruned%: | $(INSTALLED)
	mkdir -p $(C)
	hydractl prune $(CIFAR10_VIT) $(CIFAR10_PRUNE) --budget $(CIFAR10_BUDGET) --seed $* -o $@

$(C)/member%: $(C)/pruned% cifar10.toml
	hydractl finetune $< $(CIFAR10_TRAIN) --seed $* -o $@ --force

$(C)/copy%: cifar10.toml | $(INSTALLED)
	mkdir -p $(C)
	hydractl finetune $(CIFAR10_VIT) $(CIFAR10_TRAIN) --seed $* -o $@ --force

$(C)/hydra: $(SEEDS:%=$(C)/member%)
	hydractl fuse $^ -o $@ --force

$(C)/deep-ensemble: $(SEEDS:%=$(C)/copy%)
	hydractl fuse $^ --separate all -o $@ --force

$(C)/lora-ensemble $(C)/batch-ensemble: $(C)/%-ensemble: cifar10.toml | $(INSTALLED)
	mkdir -p $(C)
	hydractl finetune $(CIFAR10_VIT) $(CIFAR10_TRAIN) --method $*-ensemble --members 3 -o $@ --force

$(C)/report.json: $(C)/hydra $(C)/deep-ensemble $(C)/lora-ensemble $(C)/batch-ensemble
	hydractl evaluate single=$(CIFAR10_VIT) tuned=$(C)/copy0 $^ --id-data $(CIFAR10_TEST) $(OOD:%=--ood-data %) \
	  --json $@ --force > $(C)/table.txt

cifar10: $(C)/report.json
	cat $(C)/table.txt

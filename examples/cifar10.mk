# A ViT on CIFAR-10: a Hydra of three fine-tuned members beside a Deep Ensemble, a LoRA- and a BatchEnsemble of the same
# network. Every member of every system sees CIFAR10_STEPS x 64 training samples. A data set is a hub id or a folder.
# OOD_SEARCH names OOD images that are not evaluated on, to search circuits for the members. Without it, heads go at random.
CIFAR10 ?= uoft-cs/cifar10
CIFAR10_TEST ?= test
CIFAR10_VIT ?= nateraw/vit-base-patch16-224-cifar10
CIFAR10_BUDGET ?= 48
CIFAR10_STEPS ?= 782
OOD ?= near/cifar100=uoft-cs/cifar100:test far/svhn=ufldl-stanford/svhn:cropped_digits:test
OOD_SEARCH ?=
# Disjoint parts of the test split: the search may not see what the evaluation uses.
SEARCH_PART ?= 1/10
EVALUATE_PART ?= 2-10/10
C := $(BUILD)/cifar10
CIFAR10_TRAIN := --train-data $(CIFAR10):train --recipe cifar10.toml --steps $(CIFAR10_STEPS) $(FINETUNE)
THREE := 0 1 2

ifdef OOD_SEARCH
CIFAR10_CIRCUITS := $(OBJECTIVES:%=$(C)/circuit-%.json)
CIFAR10_PRUNED := $(OBJECTIVES:%=$(C)/pruned-%)
CIFAR10_ID := $(CIFAR10):$(CIFAR10_TEST)%$(EVALUATE_PART)

$(CIFAR10_CIRCUITS) &: | $(INSTALLED)
	mkdir -p $(C)
	hydractl extract-circuit $(CIFAR10_VIT) --id-data '$(CIFAR10):$(CIFAR10_TEST)%$(SEARCH_PART)' --ood-data $(OOD_SEARCH) \
	  --limit 1000 --objective acc,ood,avg --budget $(CIFAR10_BUDGET) -o '$(C)/circuit-{objective}.json' --force

$(C)/pruned-%: $(C)/circuit-%.json
	hydractl prune $(CIFAR10_VIT) --method circuit --circuit $< --budget $(CIFAR10_BUDGET) -o $@ --force
else
CIFAR10_PRUNED := $(THREE:%=$(C)/pruned-%)
CIFAR10_ID := $(CIFAR10):$(CIFAR10_TEST)

$(C)/pruned-%: | $(INSTALLED)
	mkdir -p $(C)
	hydractl prune $(CIFAR10_VIT) --method random --seed $* --budget $(CIFAR10_BUDGET) -o $@ --force
endif

$(THREE:%=$(C)/member%) &: $(CIFAR10_PRUNED) cifar10.toml
	hydractl finetune $(CIFAR10_PRUNED) $(CIFAR10_TRAIN) -o '$(C)/member{member}' --force

$(THREE:%=$(C)/copy%) &: cifar10.toml | $(INSTALLED)
	mkdir -p $(C)
	hydractl finetune $(THREE:%=$(CIFAR10_VIT)) $(CIFAR10_TRAIN) -o '$(C)/copy{member}' --force

$(C)/hydra: $(THREE:%=$(C)/member%)
	hydractl fuse $^ -o $@ --force

$(C)/deep-ensemble: $(THREE:%=$(C)/copy%)
	hydractl fuse $^ --separate all -o $@ --force

$(C)/lora-ensemble $(C)/batch-ensemble: $(C)/%-ensemble: cifar10.toml | $(INSTALLED)
	mkdir -p $(C)
	hydractl finetune $(CIFAR10_VIT) $(CIFAR10_TRAIN) --method $*-ensemble --members 3 -o $@ --force

$(C)/report.json: $(C)/hydra $(C)/deep-ensemble $(C)/lora-ensemble $(C)/batch-ensemble
	hydractl evaluate single=$(CIFAR10_VIT) tuned=$(C)/copy0 $^ --id-data '$(CIFAR10_ID)' $(OOD:%=--ood-data %) \
	  --json $@ --force > $(C)/table.txt

cifar10: $(C)/report.json
	cat $(C)/table.txt

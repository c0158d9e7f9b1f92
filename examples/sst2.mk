# A BERT on SST-2: fine-tuned dense, then half of its heads pruned three times, each member fine-tuned, all fused.
SST2 ?= stanfordnlp/sst2
BERT ?= google-bert/bert-base-uncased
BERT_BUDGET ?= 72
BERT_PRUNE ?= --method random
BERT_EPOCHS ?= 7
OOD_TEXT ?= near/imdb=stanfordnlp/imdb:test far/trec=CogComp/trec:test
S := $(BUILD)/sst2
SST2_TRAIN := --data $(SST2):train --val-split 3000 --recipe sst2 --epochs $(BERT_EPOCHS) $(FINETUNE)

# A base BERT gets a new classifier; for one that has its own, NEW_CLASSIFIER=no.
NEW_CLASSIFIER ?= normal

$(S)/dense: | $(INSTALLED)
	mkdir -p $(S)
	hydractl finetune $(BERT) $(SST2_TRAIN) --set lr=8e-6 --new-classifier $(NEW_CLASSIFIER) -o $@ --force

$(S)/pruned%: $(S)/dense
	hydractl prune $< $(BERT_PRUNE) --budget $(BERT_BUDGET) --seed $* -o $@

$(S)/member%: $(S)/pruned%
	hydractl finetune $< $(SST2_TRAIN) --seed $* -o $@ --force

$(S)/hydra: $(SEEDS:%=$(S)/member%)
	hydractl fuse $^ -o $@ --force

$(S)/report.json: $(S)/dense $(S)/hydra
	hydractl evaluate $^ $(SEEDS:%=$(S)/member%) --id-data $(SST2):validation $(OOD_TEXT:%=--ood-data %) \
	  --json $@ --force > $(S)/table.txt

sst2: $(S)/report.json
	cat $(S)/table.txt

# A BERT on SST-2: fine-tuned dense, then half of its heads pruned three times, each member fine-tuned, all fused, beside
# a Deep Ensemble of dense copies trained as long. Given OOD_TEXT_SEARCH, OOD texts that are not evaluated on, members
# follow circuits; without, heads go at random.
SST2 ?= stanfordnlp/sst2
BERT ?= google-bert/bert-base-uncased
BERT_BUDGET ?= 72
BERT_EPOCHS ?= 7
OOD_TEXT ?= near/imdb=stanfordnlp/imdb:test far/trec=CogComp/trec:test
OOD_TEXT_SEARCH ?=
SEARCH_TEXTS ?= 500
S := $(BUILD)/sst2
# The first training samples choose heads, so nothing trains on them.
SST2_TRAIN := --train-data '$(SST2):train[$(SEARCH_TEXTS):]' --val-split 3000 --recipe sst2 --epochs $(BERT_EPOCHS) $(FINETUNE)

# A base BERT gets a new classifier; for one that has its own, NEW_CLASSIFIER=no.
NEW_CLASSIFIER ?= normal

$(S)/dense: | $(INSTALLED)
	mkdir -p $(S)
	hydractl finetune $(BERT) $(SST2_TRAIN) --set lr=8e-6 --new-classifier $(NEW_CLASSIFIER) -o $@ --force

ifdef OOD_TEXT_SEARCH
SST2_PRUNED := $(OBJECTIVES:%=$(S)/pruned-%)

$(OBJECTIVES:%=$(S)/circuit-%.json) &: $(S)/dense
	hydractl extract-circuit $< --id-data '$(SST2):train[:$(SEARCH_TEXTS)]' --ood-data $(OOD_TEXT_SEARCH) \
	  --limit $(SEARCH_TEXTS) --objective acc,ood,avg --budget $(BERT_BUDGET) -o '$(S)/circuit-{objective}.json' --force

$(S)/pruned-%: $(S)/circuit-%.json
	hydractl prune $(S)/dense --method circuit --circuit $< --budget $(BERT_BUDGET) -o $@ --force
else
SST2_PRUNED := $(THREE:%=$(S)/pruned-%)

$(S)/pruned-%: $(S)/dense
	hydractl prune $< --method random --seed $* --budget $(BERT_BUDGET) -o $@ --force
endif

$(THREE:%=$(S)/member%) &: $(SST2_PRUNED)
	hydractl finetune $^ $(SST2_TRAIN) -o '$(S)/member{member}' --force

$(THREE:%=$(S)/copy%) &: $(S)/dense
	hydractl finetune $(THREE:%=$<) $(SST2_TRAIN) -o '$(S)/copy{member}' --force

$(S)/hydra: $(THREE:%=$(S)/member%)
	hydractl fuse $^ -o $@ --force

$(S)/deep-ensemble: $(THREE:%=$(S)/copy%)
	hydractl fuse $^ --separate all -o $@ --force

$(S)/report.json: $(S)/hydra $(S)/deep-ensemble
	hydractl evaluate $(S)/dense tuned=$(S)/copy0 $(THREE:%=$(S)/member%) $^ --id-data $(SST2):validation \
	  $(OOD_TEXT:%=--ood-data %) --json $@ --force > $(S)/table.txt

sst2: $(S)/report.json
	cat $(S)/table.txt

# A pre-trained vision transformer of timm, fine-tuned on CIFAR-10 once for each seed. The networks of all seeds are a Deep Ensemble.
#   make -C examples vit-tiny-cifar10 PRETRAINED=FOLDER       FOLDER holds timm's vit_tiny_patch16_224, for example
#   make -C examples vit-tiny-table PRETRAINED=FOLDER IMAGENET=FILE.parquet       FILE holds an image for each class of ImageNet
# Three seeds of three epochs take about an hour on one core with bfloat16 instructions; PRECISION=no suits others. An interrupted
# run continues where it stopped. QUICK=1 takes two steps. The first seed's network lies in checkpoints/vit-tiny-cifar10, in float16.
.PHONY: vit-tiny-cifar10 vit-tiny-table
SEEDS ?= 0 1 2
EPOCHS ?= 3
SIZE ?= 96
PRECISION ?= bf16
W := $(BUILD)/vit-tiny
TINY_NETS := $(SEEDS:%=$(W)/net%.safetensors)
TINY_LENGTH := $(if $(QUICK),--steps 2 --set batch=4,--epochs $(EPOCHS))
TINY_TRAIN = --train-data '$(CIFAR10):train' --recipe vit-tiny.toml --precision $(PRECISION) --save-every 100 --resume --force $(FINETUNE)

$(W)/pretrained$(SIZE)/model.safetensors: vit_tiny_model.py | $(INSTALLED)
	python vit_tiny_model.py $(or $(PRETRAINED),$(error set PRETRAINED to a folder of timm)) $(SIZE) $(@D)

$(TINY_NETS): $(W)/net%.safetensors: $(W)/pretrained$(SIZE)/model.safetensors vit-tiny.toml
	hydractl finetune $(<D) $(TINY_TRAIN) --new-classifier zeros $(TINY_LENGTH) --seed $* -o $@

vit-tiny-cifar10: $(TINY_NETS)
	@echo $(TINY_NETS)

# The table: the first seed's network, as long trained on labels (tuned) and by the Deep Ensemble (taught), and members that lose
# heads and MLP units above a trunk, at 1.3 times the cost, trained fused likewise. Two fifths of the held-out images choose and
# fit, three fifths measure; so do the halves of the ImageNet images that show none of CIFAR-10's classes.
TINY_MORE ?= $(if $(QUICK),2,1172)
TINY_TRUNK ?= 6
TINY_HEADS ?= 6
TINY_UNITS ?= 2460
TINY_SYSTEMS := net0 tuned taught units units-taught deep-ensemble

$(W)/near.parquet $(W)/choose.parquet &: near_imagenet.py | $(INSTALLED)
	mkdir -p $(W)
	python near_imagenet.py $(or $(IMAGENET),$(error set IMAGENET to a parquet file of images, one a class)) $(W)/choose.parquet $(W)/near.parquet

$(W)/deep-ensemble.safetensors: $(TINY_NETS)
	hydractl fuse $^ --separate all -o $@ --force

$(W)/tuned.safetensors: $(W)/net0.safetensors
	hydractl finetune $< $(TINY_TRAIN) --steps $(TINY_MORE) -o $@

$(W)/taught.safetensors: $(W)/net0.safetensors $(W)/deep-ensemble.safetensors
	hydractl finetune $< $(TINY_TRAIN) --steps $(TINY_MORE) --teacher $(word 2,$^) -o $@

# Three members keep the units with the best Taylor scores in common and divide the others; each loses heads of its own.
$(W)/untrained-units.safetensors: $(W)/net0.safetensors
	mkdir -p $(W)/members
	hydractl prune $< --method taylor --id-data '$(CIFAR10):train%1/50' --budget 0 --units $(TINY_UNITS) --members 3 \
	  --trunk $(TINY_TRUNK) -o $(W)/members/ --force
	for m in 0 1 2; do hydractl prune $(W)/members/net0-member$$m.safetensors --method random --seed $$m --budget $(TINY_HEADS) \
	  --scope layer --trunk $(TINY_TRUNK) -o $(W)/members/$$m.safetensors --force || exit; done
	hydractl fuse $(W)/members/0.safetensors $(W)/members/1.safetensors $(W)/members/2.safetensors -o $@ --force

$(W)/units.safetensors: $(W)/untrained-units.safetensors
	hydractl finetune $< $(TINY_TRAIN) --joint --set lr=2e-4 --steps $(TINY_MORE) -o $@

$(W)/units-taught.safetensors: $(W)/untrained-units.safetensors $(W)/deep-ensemble.safetensors
	hydractl finetune $< $(TINY_TRAIN) --joint --set lr=2e-4 --steps $(TINY_MORE) --teacher $(word 2,$^) -o $@

$(W)/calibrated/%.safetensors: $(W)/%.safetensors $(W)/choose.parquet
	mkdir -p $(@D)
	hydractl calibrate $< --id-data '$(CIFAR10):$(CIFAR10_TEST)%2/5' --ood-data $(W)/choose.parquet -o $@ --force

$(W)/report.json: $(TINY_SYSTEMS:%=$(W)/calibrated/%.safetensors) $(W)/near.parquet
	hydractl evaluate $(foreach system,$(TINY_SYSTEMS),$(system)=$(W)/calibrated/$(system).safetensors) \
	  --id-data '$(CIFAR10):$(CIFAR10_TEST)%3-5/5' --ood-data near/imagenet=$(W)/near.parquet $(OOD:%=--ood-data %) \
	  --dtype float32 --json $@ --force

vit-tiny-table: $(W)/report.json
	@hydractl report $<

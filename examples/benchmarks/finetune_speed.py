"""How fast `hydractl finetune` trains on texts, beside transformers' `Trainer` with the same settings and samples.

    python finetune_speed.py MODEL DATA [--steps N] [--batch N] [--repeats R] [--precision no|bf16] [--lr R]

MODEL is a BERT classifier as transformers saves it, DATA a table of texts and labels. Both group texts by length, clip
the gradient at 1 and use AdamW with a linear schedule, and each takes its turn. Prints the samples a second of both,
without what comes before the first step, the median ratio of the two, and the mean loss of both over the second half
of the steps: they meet the samples in orders of their own, so losses are alike, not equal.
"""

import argparse
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

import hydractl
from hydractl.data.open import open_samples
from hydractl.data.samples import Samples
from hydractl.process import prepare

Timed = tuple[float, float]  # samples a second, mean loss over the second half


def ours(asked: argparse.Namespace, folder: Path) -> Timed:
    recipe = {"batch": asked.batch, "lr": asked.lr, "clip": 1.0, "schedule": "linear", "weight_decay": 0.01}
    settings = [f"{name}={value}" for name, value in recipe.items()]
    done = hydractl.finetune(
        asked.model, train_data=asked.data, settings=[*settings, "optimizer=adamw", "length_window=50"],
        steps=asked.steps, match_labels="index", precision=asked.precision, device="cpu", output=folder / "ours",
    )  # fmt: skip
    steps = [line for line in done.networks[0].log if "samples_per_second" in line]
    return steps[-1]["samples_per_second"], statistics.fmean(line["loss"] for line in steps[len(steps) // 2 :])


def theirs(asked: argparse.Namespace, folder: Path, samples: Samples) -> Timed:
    from datasets import Dataset
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    tokenizer = AutoTokenizer.from_pretrained(asked.model)
    encoded = [tokenizer(text, truncation=True, max_length=128) for text in samples.inputs]
    data = Dataset.from_list(
        [{**one, "labels": int(label)} for one, label in zip(encoded, samples.labels, strict=True)]
    )
    arguments = TrainingArguments(
        output_dir=str(folder / "theirs"), max_steps=asked.steps, per_device_train_batch_size=asked.batch,
        learning_rate=asked.lr, weight_decay=0.01, max_grad_norm=1.0, train_sampling_strategy="group_by_length",
        bf16=asked.precision == "bf16", use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True,
        logging_strategy="steps", logging_steps=max(asked.steps // 2, 1),
    )  # fmt: skip
    model = AutoModelForSequenceClassification.from_pretrained(asked.model, dtype="float32")
    trainer = Trainer(model, arguments, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer))
    done = trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return done.metrics["train_samples_per_second"], losses[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", choices=("no", "bf16"), default="no")
    parser.add_argument("--lr", type=float, default=2e-5)
    asked = parser.parse_args()
    prepare()
    samples = open_samples(asked.data, "text")
    rows: list[tuple[Timed, Timed]] = []
    for _ in range(asked.repeats):
        with TemporaryDirectory() as folder:
            rows.append((ours(asked, Path(folder)), theirs(asked, Path(folder), samples)))
    for name, own in zip(("hydractl", "Trainer"), zip(*rows, strict=True), strict=True):
        pace, loss = (statistics.median(column) for column in zip(*own, strict=True))
        print(f"{name}: {pace:.1f} samples a second, mean loss {loss:.3f}")
    print(f"ratio: {statistics.median(own[0] / other[0] for own, other in rows):.2f}")


if __name__ == "__main__":
    main()

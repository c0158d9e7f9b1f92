"""What the tables share: settings from the command line, files that are made once, and data for `--quick`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import hydractl

HERE = Path(__file__).parent
sys.path += [str(HERE.parent), str(HERE.parent / "analyses"), str(HERE.parent / "baselines")]
OBJECTIVES = ("acc", "ood", "avg")
THREE = range(3)
Settings = TypeVar("Settings", bound=Any)  # a frozen dataclass with a folder `output`


def read_settings(about: str, tables: Mapping[str, tuple[Settings, Settings]]) -> Settings:
    """Returns the settings of the table that the command line names.

    `{made}` in a text becomes the folder with the digits' data and network: `build`, or one of a few steps.

    Args:
        tables: the settings of each table, and those of `--quick`; the first unless another is named.
    """
    first, (example, _) = next(iter(tables.items()))
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if len(tables) > 1:
        parser.add_argument("table", nargs="?", choices=tables, default=first)
    parser.add_argument("--quick", action="store_true", help="a few steps on data made here: does it run?")
    for name, value in asdict(example).items():
        items = value if isinstance(value, tuple) else (value,)
        parser.add_argument(
            f"--{name.replace('_', '-')}", nargs="*" if isinstance(value, tuple) else None, metavar=name.upper(),
            type=type(items[0]) if items else str, default=argparse.SUPPRESS,
            help=" ".join(map(str, items)).replace("%", "%%"),
        )  # fmt: skip
    given = vars(parser.parse_args())
    whole, quick = tables[given.pop("table", first)]
    is_quick = given.pop("quick")
    settings = replace(quick, output=whole.output.with_name(f"quick-{whole.output.name}")) if is_quick else whole
    settings = replace(settings, **{key: tuple(v) if isinstance(v, list) else v for key, v in given.items()})
    _claim(settings)
    folder = settings.output / "made" if is_quick else Path("build")
    if is_quick and not (folder / "vit").exists():
        make_quick(folder)
    return replace(settings, **{key: _placed(value, folder) for key, value in asdict(settings).items()})


def _claim(settings: Settings) -> None:
    """Records settings in their folder; refuses a folder of others."""
    record, said = settings.output / "settings.json", json.dumps(asdict(settings), indent=1, default=str)
    if not record.exists():
        settings.output.mkdir(parents=True, exist_ok=True)
        record.write_text(said)
    if record.read_text() != said:
        raise SystemExit(f"{record}: the folder holds a table of other settings: name another `--output`")


def _placed(value: Any, folder: Path) -> Any:
    if isinstance(value, tuple):
        return tuple(_placed(one, folder) for one in value)
    return value.replace("{made}", str(folder)) if isinstance(value, str) else value


def made(output: Path, make: Callable[..., Any], *models: Any, **options: Any) -> Path:
    """Returns a file, which a function of hydractl makes unless it is there."""
    return made_each(output, "", ("",), make, *models, **options)[0]


def made_each(
    pattern: Path, key: str, values: Sequence[object], make: Callable[..., Any], *models: Any, **options: Any
) -> list[Path]:
    """Returns the files of a name with a `{key}` in it, which one call makes unless all are there."""
    files = [Path(str(pattern).replace(f"{{{key}}}", str(value))) for value in values]
    if not all(file.exists() for file in files):
        pattern.parent.mkdir(parents=True, exist_ok=True)
        make(*models, output=pattern, **options)
    return files


def circuits(folder: Path, model: Any, **options: Any) -> list[Path]:
    """Returns a circuit of each objective, all of one search."""
    pattern, asked = folder / "circuit-{objective}.json", {"objective": ",".join(OBJECTIVES), "resume": True}
    return made_each(pattern, "objective", OBJECTIVES, hydractl.extract_circuit, model, **asked, **options)


def print_table(systems: Mapping[str, Any], folder: Path, name: str = "table", **options: Any) -> None:
    """Evaluates systems by their names; leaves NAME.json and NAME.txt, and prints that."""
    text = folder / f"{name}.txt"
    if not text.exists():
        report = hydractl.evaluate(dict(systems), json=folder / f"{name}.json", force=True, **options)
        text.write_text("\n".join(report.lines()) + "\n", encoding="utf-8")
    print(text.read_text(encoding="utf-8"))


def make_quick(folder: Path) -> None:
    """Writes scikit-learn's digits, a ViT that knows some, made-up texts, and an untrained BERT and ViT of timm."""
    import digits_data
    import timm
    import torch
    import vit_model
    from safetensors.torch import save_file

    digits_data.main(folder / "data")
    vit_model.main(vit_model.NETWORKS["digits"], folder / "untrained")
    torch.manual_seed(0)
    shape = {"patch_size": 8, "embed_dim": 12, "depth": 2, "img_size": 32}
    network = timm.create_model("vit_tiny_patch16_224", num_classes=7, **shape)
    config = {"architecture": "vit_tiny_patch16_224", "num_classes": 7, "model_args": shape}
    (folder / "timm").mkdir(exist_ok=True)
    save_file(network.state_dict(), folder / "timm" / "model.safetensors")
    (folder / "timm" / "config.json").write_text(json.dumps({**config, "pretrained_cfg": network.pretrained_cfg}))
    _make_texts(folder)
    learn = {"train_data": folder / "data" / "digits:train", "recipe": HERE.parent / "digits.toml", "steps": 80}
    hydractl.finetune(folder / "untrained", output=folder / "vit", resume=True, **learn)


def _make_texts(folder: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    words, labels = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "owl"), ("bad", "good")
    for name in ("bert", "texts"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "bert" / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(folder / "bert" / "vocab.txt"), model_max_length=32).save_pretrained(folder / "bert")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    names = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    config = BertConfig(vocab_size=len(words), max_position_embeddings=32, **sizes, **names)
    BertForSequenceClassification(config).save_pretrained(folder / "bert")
    rows = [f"{'film ' * (n // 8)}{'a ' * (n % 8)}{label} film,{label}" for n in range(32) for label in labels]
    for split, some in (("train", rows[:32]), ("validation", rows[32:])):
        (folder / "texts" / f"{split}.csv").write_text("\n".join(["sentence,label", *some]))
    (folder / "far.csv").write_text("\n".join(["text", *(f"{'a ' * n}owl" for n in range(20))]))

"""The remedies that messages name, each followed to the letter: what was refused then works, by kind of refusal."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pytest
import timm
import torch
import transformers as hf
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict_saver import save as save_shards

from tests.cli.conftest import NAMED, Command
from tests.references import save_timm


@dataclass(frozen=True)
class Here:
    """A current folder with small networks and data, and the command line."""

    hydractl: Command

    def follow(self, command: str) -> None:
        """Runs a command that has to work."""
        self.hydractl(*shlex.split(command), "--quiet", code=0)


#: Gets the groups that a message's remedy has, and does what it says.
Follow = Callable[..., None]


@dataclass(frozen=True)
class Refusal:
    """What is prepared, the command that is refused, the remedy in its message, and how a person follows that.

    `remedy` is a regular expression; its groups are what `follow` gets.
    """

    prepare: Callable[[], object]
    command: str
    remedy: str
    follow: Follow


def saved(maker: Any, name: str = "bert", **changes: Any) -> Callable[[], None]:
    """Saves a network of another task, with the tokenizer or processor of `vit` and `bert`."""

    def save() -> None:
        shutil.copytree(name, "net")
        config = hf.AutoConfig.from_pretrained(name)
        for field, value in changes.items():
            setattr(config, field, value)
        maker.from_config(config).save_pretrained("net")

    return save


def bare_timm() -> None:
    made: Any = timm.create_model(
        "vit_tiny_patch16_224", img_size=8, patch_size=4, embed_dim=24, depth=2, num_classes=0
    )
    made.built_from = {"img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_classes": 0}
    save_timm(made, Path("net"))


def renewed(data: str) -> Follow:
    """Trains a new classifier by the flag and the value in the message, and does what was refused."""

    def follow(here: Here, flag: str) -> None:
        here.follow(f"finetune net --train-data {data} --steps 1 --set lr=1e-3 {flag} -o trained")
        here.follow(f"evaluate trained --id-data {data} --allow-leak")

    return follow


def saved_as(here: Here, classes: str) -> None:
    """Saves the network as the class that the message names."""
    getattr(hf, classes.split(" or ")[0]).from_pretrained("net", **NAMED).save_pretrained("net")
    here.follow("inspect net")


NEW = r"(?:train one|train a classifier for it) by finetune with (--new-classifier zeros)"
TEXTS, IMAGES = "texts.csv", "pets"


def other_task(prepare: Callable[[], object], data: str = TEXTS) -> Refusal:
    return Refusal(prepare, "inspect net", NEW, renewed(data))


def without_classifier(prepare: Callable[[], object], data: str = TEXTS) -> Refusal:
    """A network that embeds, asked for what needs classes."""
    return Refusal(prepare, f"calibrate net --id-data {data} --sets 90% -o warm", NEW, renewed(data))


def sharded() -> None:
    """What accelerate leaves of training by FSDP."""
    save_shards({"model": load_file("vit/model.safetensors")}, checkpoint_id="net/pytorch_model_fsdp_0", no_dist=True)
    shutil.copy("vit/config.json", "kept.json")


def merged(here: Here, command: str) -> None:
    script = "from accelerate.commands.accelerate_cli import main; main()"
    done = [sys.executable, "-c", script, *shlex.split(command.replace("NEW", "new"))[1:]]
    subprocess.run(done, check=True, capture_output=True)
    shutil.copy("kept.json", "new/config.json")
    here.follow("inspect new")


def pickled() -> None:
    Path("net").mkdir()
    torch.save(hf.ViTForImageClassification.from_pretrained("vit"), "net/model.pth")


def unpickled(here: Here, method: str) -> None:
    getattr(torch.load("net/model.pth", weights_only=False), method)("new")
    here.follow("inspect new")


def pickled_timm(here: Here, path: str) -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=8, patch_size=4, num_classes=3)
    module, _, name = path.rpartition(".")
    getattr(sys.modules[module], name)(
        model, "new", model_args={"img_size": 8, "patch_size": 4}, safe_serialization=True
    )
    here.follow("inspect new")


def rewritten(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[..., None]:
    """Makes `net` of `vit`, or changes the `net` that is there, by its tensors."""

    def write(*_: object) -> None:
        if not Path("net").exists():
            shutil.copytree("vit", "net")
        tensors = load_file("net/model.safetensors")
        change(tensors)
        save_file(tensors, "net/model.safetensors")

    return write


def then(change: Callable[..., object], command: str) -> Follow:
    """Does by hand what a message asks for, and then what was refused."""

    def follow(here: Here, *found: str) -> None:
        change(*found)
        here.follow(command)

    return follow


BIAS, SCALE = "classifier.bias", "bert.encoder.layer.0.output.LayerNorm"


def twice() -> None:
    """A BERT with one norm by the names of both releases."""
    shutil.copytree("bert", "net")
    rewritten(lambda tensors: tensors.update({f"{SCALE}.gamma": tensors[f"{SCALE}.weight"].clone()}))()


def as_bytes(tensors: dict[str, torch.Tensor]) -> None:
    tensors[BIAS] = tensors[BIAS].to(torch.float8_e4m3fn)


def as_floats(tensors: dict[str, torch.Tensor]) -> None:
    tensors[BIAS] = tensors[BIAS].float()


def adapter() -> None:
    model = hf.ViTForImageClassification.from_pretrained("vit")
    asked = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], modules_to_save=["classifier"])
    get_peft_model(model, asked).save_pretrained("lora")


def configured(**changes: object) -> Callable[[], None]:
    def change() -> None:
        shutil.copytree("vit", "net")
        config = json.loads(Path("net/config.json").read_text())
        Path("net/config.json").write_text(json.dumps(config | changes))

    return change


def rows(*labels: str | None) -> None:
    datasets.Dataset.from_dict({"text": ["good", "bad", "film"], "label": labels}).to_parquet("rows.parquet")


REFUSALS: dict[str, Refusal] = {
    "masked words": other_task(saved(hf.AutoModelForMaskedLM)),
    "a bare timm": without_classifier(bare_timm, IMAGES),
    "another task saved as": Refusal(
        saved(hf.AutoModelForQuestionAnswering), "inspect net", r"or save it as (\w+(?: or \w+)*)", saved_as
    ),
    "shards of FSDP": Refusal(
        sharded, "inspect net", r"(accelerate merge-weights \S+ NEW), and put the model's config.json into NEW", merged
    ),
    "a pickle of transformers": Refusal(
        pickled, "inspect net", r"model\.(save_pretrained)\(NEW\) of transformers", unpickled
    ),
    "a pickle of timm": Refusal(
        pickled, "inspect net", r"of timm (timm\.models\.\w+)\(model, NEW, safe_serialization=True\)", pickled_timm
    ),
    "no config": Refusal(
        lambda: shutil.copy("vit/model.safetensors", "."),
        "inspect model.safetensors",
        "put the model's config.json beside it",
        then(lambda: shutil.copy("vit/config.json", "."), "inspect model.safetensors"),
    ),
    "a type that is not read": Refusal(
        rewritten(as_bytes), "inspect net", "convert it to float32", then(rewritten(as_floats), "inspect net")
    ),
    "a tensor twice": Refusal(
        twice,
        "inspect net",
        "two spellings: keep one",
        then(rewritten(lambda tensors: tensors.pop(f"{SCALE}.gamma")), "inspect net"),
    ),
    "a lone adapter": Refusal(
        adapter,
        "inspect lora",
        "(hydractl fuse NETWORK lora -o FILE)",
        lambda here, command: here.follow(command.removeprefix("hydractl ").replace("NETWORK", "vit")),
    ),
    "pruned heads": Refusal(
        configured(pruned_heads={"0": [1]}),
        "inspect net",
        "name the network before prune_heads, and remove its heads by hydractl (prune)",
        lambda here, step: here.follow(f"{step} vit --method random --budget 1 -o member"),
    ),
    "a null label": Refusal(
        partial(rows, "cat", None, "owl"),
        "evaluate bert --id-data rows.parquet",
        "sample 1 has no label in column label .*: fill in",
        then(partial(rows, "cat", "dog", "owl"), "evaluate bert --id-data rows.parquet"),
    ),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_what_a_message_advises_works(hydractl: Command, place: Path, kind: str) -> None:
    Path(TEXTS).write_text("text,label\ngood,cat\nbad,dog\nfilm,owl\nowl,cat\n")
    case, here = REFUSALS[kind], Here(hydractl)
    case.prepare()
    refused = hydractl(*shlex.split(case.command))
    assert refused.code in (1, 2)
    found = re.search(case.remedy, refused.err)
    assert found, refused.err
    case.follow(here, *found.groups())


def test_the_next_command_runs_as_it_is_printed(hydractl: Command, place: Path) -> None:
    meant = {"MODEL": "vit", "SOURCE": "pets", "INPUT": "pets/cat/0.png", "OTHER...": "other"}
    step = "prune vit --method random --budget 2 -o member"
    for _ in range(2):
        told = hydractl(*step.split(), code=0).err
        (command,) = re.findall(r"^next: hydractl (.*)$", told, re.MULTILINE)
        step = re.sub(r"MODEL|SOURCE|INPUT|OTHER\.\.\.", lambda name: meant[name[0]], command)
    step = step.replace("--ood-data pets", "--ood-data noise")
    hydractl(*step.split(), code=0)

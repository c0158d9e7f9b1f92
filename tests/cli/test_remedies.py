"""Remedies that are not commands of ours: tools of other libraries, and the command printed as the next one."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
import transformers as hf
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict_saver import save as save_shards

from tests.cli.conftest import NAMED, Command

pytestmark = pytest.mark.usefixtures("place")


def remedy(hydractl: Command, pattern: str) -> str:
    """Inspects `net`, which is refused, and returns the group of the remedy that the message names."""
    refused = hydractl("inspect", "net", code=1)
    named = re.search(pattern, refused.err)
    assert named, refused.err
    return named[1]


def test_a_network_of_another_task_is_saved_as_a_class_that_is_named(hydractl: Command) -> None:
    shutil.copytree("bert", "net")
    hf.AutoModelForQuestionAnswering.from_config(hf.AutoConfig.from_pretrained("bert")).save_pretrained("net")
    classes = remedy(hydractl, r"or save it as (\w+)")
    getattr(hf, classes).from_pretrained("net", **NAMED).save_pretrained("net")
    hydractl("inspect", "net", code=0)


def test_shards_of_fsdp_are_merged_by_the_command_that_is_named(hydractl: Command) -> None:
    weights = {"model": load_file("vit/model.safetensors")}
    save_shards(weights, checkpoint_id="net/pytorch_model_fsdp_0", no_dist=True)
    command = remedy(hydractl, r"(accelerate merge-weights \S+ NEW), and put the model's config.json into NEW")
    script = "from accelerate.commands.accelerate_cli import main; main()"
    arguments = shlex.split(command.replace("NEW", "new"))[1:]
    subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True)
    shutil.copy("vit/config.json", "new/config.json")
    hydractl("inspect", "new", code=0)


def test_a_pickle_is_saved_again_by_the_functions_that_are_named(hydractl: Command) -> None:
    Path("net").mkdir()
    torch.save(hf.ViTForImageClassification.from_pretrained("vit"), "net/model.pth")
    method = remedy(hydractl, r"model\.(save_pretrained)\(NEW\) of transformers")
    getattr(torch.load("net/model.pth", weights_only=False), method)("new")
    hydractl("inspect", "new", code=0)
    named = remedy(hydractl, r"of timm (timm\.[\w.]+)\(model, NEW, safe_serialization=True\)")
    module, _, function = named.rpartition(".")
    sizes = {"img_size": 8, "patch_size": 4}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=3, **sizes)
    getattr(sys.modules[module], function)(model, "newer", model_args=sizes, safe_serialization=True)
    hydractl("inspect", "newer", code=0)


def test_the_next_command_runs_as_it_is_printed(hydractl: Command) -> None:
    meant = {"MODEL": "vit", "SOURCE": "pets", "INPUT": "pets/cat/0.png", "OTHER...": "other"}
    step = "prune vit --method random --budget 2 -o member"
    for _ in range(2):
        told = hydractl(*step.split(), code=0).err
        (command,) = re.findall(r"^next: hydractl (.*)$", told, re.MULTILINE)
        step = re.sub(r"MODEL|SOURCE|INPUT|OTHER\.\.\.", lambda name: meant[name[0]], command)
    step = step.replace("--ood-data pets", "--ood-data noise")
    hydractl(*step.split(), code=0)

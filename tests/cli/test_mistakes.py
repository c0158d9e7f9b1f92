"""The commonest mistakes: what a user types, what the one line of the error names, and the command that then works."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import datasets
import pytest
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from PIL import Image
from torch.testing import assert_close
from transformers import ViTForImageClassification, ViTImageProcessor

import hydractl as hydractl_
from hydractl.cli.app import COMMANDS
from hydractl.cli.derive import options_of
from hydractl.errors import OptionError
from hydractl.options import declared, flags_of
from tests.cli.conftest import LABELS, Command, named, save_circuit, save_clip, save_images, save_vit
from tests.references import make_timm, save_timm


@pytest.fixture
def here(place: Path) -> Path:
    """A folder with a network, labelled images, OOD images without labels, and a circuit."""
    save_circuit("mine.json", (0, 0), (0, 1))
    return place


def trainer() -> None:
    for step in (2, 10):
        shutil.copytree("vit", f"trainer/checkpoint-{step}")
    Path("trainer/training_args.bin").write_bytes(b"x")


def nameless() -> None:
    save_vit(Path("nameless"), **named(*(f"LABEL_{place}" for place in range(3))))


def table() -> None:
    """A table of the images whose labels are numbers."""
    files = sorted(Path("pets").rglob("*.png"))
    columns = {"image": [str(file) for file in files], "label": [place % 3 for place in range(len(files))]}
    Dataset.from_dict(columns).cast_column("image", datasets.Image()).to_parquet("numbers.parquet")
    nameless()


def begun() -> None:
    """A build that began with three members."""
    options = {"model": "../vit", "id_data": "../pets"}
    Path("b/work").mkdir(parents=True)
    Path("b/work/begun.json").write_text(json.dumps({"options": options, "plan": {"random": 1}}))


def texts() -> None:
    Path("texts.csv").write_text("id,review,label\n1,a good film,cat\n2,a bad film,dog\n")


def clip() -> None:
    save_clip(Path("net"))
    Path("classes.txt").write_text("\n".join(LABELS))


def captions() -> None:
    """A zero-shot network, and images with texts."""
    clip()
    files = sorted(map(str, Path("pets").rglob("*.png")))
    made = Dataset.from_dict({"image": files, "text": ["a good film", "bad owl", "film"] * (len(files) // 3)})
    made.cast_column("image", datasets.Image()).to_parquet("captions.parquet")


def without_classifier() -> None:
    sizes = {"img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_classes": 0}
    save_timm(make_timm("vit_tiny_patch16_224", **sizes), Path("net"))


def adapter() -> None:
    tuned = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], modules_to_save=["classifier"])
    get_peft_model(ViTForImageClassification.from_pretrained("vit"), tuned).save_pretrained("lora")


def rows(**columns: object) -> Callable[[], object]:
    return lambda: Dataset.from_dict(columns).to_parquet("rows.parquet")


def nothing() -> None:
    """Needs no file."""


BUILD = "build vit --id-data pets"
TUNE = "finetune {} --steps 1 --set lr=1e-3 -o tuned"
WORDS = {"title": ["good", "bad", "film"], "body": ["a", "owl", "good"]}
SEARCH = "extract-circuit vit --id-data pets --ood-data noise --budget 1"
PRUNE = "prune vit --method random --budget 2 -o member"
#: What is prepared, the command, its exit code, what the error names, and a command that works; "" where none can.
MISTAKES: dict[str, tuple[Callable[[], object], str, int, str, str]] = {
    "a misspelt command": (nothing, "prun vit", 2, "did you mean hydractl prune?", PRUNE),
    "a command of a group": (nothing, "familes", 2, "did you mean hydractl list families?", "list families"),
    "an old spelling": (nothing, "list-recipes", 2, "did you mean hydractl list recipes?", "list recipes"),
    "a misspelt option": (nothing, "prune vit --methd random", 2, "--method", PRUNE),
    "a misspelt value": (nothing, "prune vit --method randm --budget 2", 2, "did you mean random?", PRUNE),
    "a misspelt score": (nothing, "evaluate vit --id-data pets --ood-score mspp", 2, "'mspp' is not one of", ""),
    "a search of no model": (nothing, "prune --method circuit --budget 2 --id-data pets", 2, "name the MODEL",
                             "prune vit --method circuit --budget 2 --id-data pets"),
    "more heads than there are": (nothing, "prune vit --method random --budget 99", 2, "--budget 99: expected 0 to 8",
                                  "prune vit --method random --budget 50%"),
    "an output in no folder": (nothing, "prune vit --method random --budget 2 -o no/m", 1, "create it first", PRUNE),
    "data for a model": (nothing, "inspect pets", 1, "pets: no model.safetensors", "inspect vit"),
    "a Trainer's folder": (trainer, "inspect trainer", 0, "trainer/checkpoint-10", "inspect trainer/checkpoint-10"),
    "no such input": (nothing, "predict vit cat.png", 1, "cat.png: cannot read", "predict vit pets/cat/0.png"),
    "no such GPU": (nothing, "predict vit pets --device cuda:99", 2, "--device cuda:99", "predict vit pets"),
    "text for images": (lambda: Path("a.txt").write_text("cat"), "predict vit a.txt", 1, "a.txt: unreadable image", ""),
    "settings without training": (nothing, f"{BUILD} -o b --set epochs=1", 2, "--set has no effect",
                                  f"{BUILD} -o b --dry-run"),
    "a build without data": (nothing, "build vit -o b", 2, "--id-data is missing", f"{BUILD} -o b --dry-run"),
    "a build without output": (nothing, BUILD, 2, "--output is missing", f"{BUILD} -o b --dry-run"),
    "an effort unheard of": (nothing, f"{BUILD} -o b --effort all", 2, "--effort",
                             f"{BUILD} -o b --effort quick --dry-run"),
    "a build of a build's file": (lambda: Path("a.toml").write_text("model = 'a.toml'"), "build a.toml", 2,
                                  "model is a.toml, not a network", ""),
    "a build of no such file": (nothing, "build other.toml", 2, "other.toml: there is no such file", ""),
    "another build": (begun, f"{BUILD} -o b --members 2", 1, "--members", f"{BUILD} -o c --members 2 --dry-run"),
    "networks of two kinds": (nothing, "fuse vit bert -o h", 1, "bert: family is", "fuse vit other -o h"),
    "a soup of what stays apart": (nothing, "fuse vit other --soup --separate mlp -o h", 2, "--soup averages all",
                                   "fuse vit vit --soup -o h"),
    "one member": (nothing, "fuse vit -o h", 2, "name two models", "fuse vit vit -o h"),
    "names of a nameless model": (nameless, "evaluate nameless --id-data pets", 1, "pass --match-labels index",
                                  "evaluate nameless --id-data pets --match-labels index"),
    "texts for a model of images": (texts, "evaluate vit --id-data texts.csv", 1, "no image column among id",
                                    "evaluate bert --id-data texts.csv"),
    "no such column": (texts, "evaluate bert --id-data texts.csv --text-column body", 1, "no column 'body', only id",
                       "evaluate bert --id-data texts.csv --text-column review"),
    "a slice of one class": (lambda: save_images(Path("eight"), 8), "evaluate vit --id-data eight:train[:8]", 0,
                             "8 samples taken hold 1 of 3 classes", ""),
    "the model among the data": (nothing, "evaluate pets --id-data vit", 2, "swap them", "evaluate vit --id-data pets"),
    "a table for a model": (table, "evaluate numbers.parquet --id-data vit", 2, "swap them", ""),
    "an input for a model": (nothing, "predict pets/cat/0.png vit", 2, "swap them", "predict vit pets/cat/0.png"),
    "a method to choose": (nothing, "score-heads vit --id-data pets", 2, "choose from taylor, deviation, magnitude",
                           "score-heads vit --id-data pets --method taylor"),
    "an artifact for a model": (nothing, "prune mine.json --method circuit --budget 2", 1, "name a checkpoint",
                                "prune vit --method circuit --circuit mine.json --budget 2"),
    "a model for data": (nothing, "evaluate vit --id-data other", 1, "other: is a checkpoint",
                         "evaluate other --id-data pets"),
    "a slice without a colon": (table, "predict vit --data numbers.parquet[:5]", 1, "write numbers.parquet:[:5]",
                                "predict vit --data numbers.parquet:[:5]"),
    "a group without a name": (nothing, f"{SEARCH.replace('noise', 'near/noise')}", 1, "write near/NAME=noise",
                               f"{SEARCH.replace('noise', 'near/x=noise')}"),
    "data on the web": (nothing, "evaluate vit --id-data https://example.com/x.csv", 1, "download it first", ""),
    "no circuit for the model": (nothing, "prune vit --method circuit --budget 2", 1, "give --id-data beside MODEL",
                                 "prune vit --method circuit --budget 2 --id-data pets"),
    "no scores yet": (nothing, "prune vit --method scores --budget 2 -o m", 1, "choose --method taylor with --id-data",
                      "prune vit --method taylor --id-data pets --budget 2 -o m"),
    "no such system": (nothing, "evaluate vit other --id-data pets --compare hydra", 2, "name one of vit, other",
                       "evaluate vit other --id-data pets --compare vit"),
    "images for a model of texts": (nothing, "evaluate bert --id-data pets", 1, "give texts, which the model", ""),
    "classes in place of their file": (nothing, "evaluate vit --id-data pets --classes cat,dog", 1,
                                       "one class name per line into a file", ""),
    "data with more classes": (lambda: save_vit(Path("two"), **named("cat", "dog")), "evaluate two --id-data pets", 1,
                               "give data of the model's classes", ""),
    "a text for a file of texts": (nothing, "predict bert a-good-film", 1, "or - for standard input", ""),
    "a build's budget beyond all heads": (nothing, f"{BUILD} -o b --budgets 99 --dry-run", 2, "--budgets 99: expected",
                                          f"{BUILD} -o b --budgets 2 --dry-run"),
    "more members than candidates": (nothing, "select vit --members 2 --budgets 1 --id-data pets", 2, "raise --random",
                                     "select vit --members 2 --budgets 1 --random 3 --id-data pets"),
    "a folder for a report": (nothing, "report pets", 1, "name a file", ""),
    "data without labels": (nothing, "evaluate vit --id-data noise", 1, "a folder for each class", ""),
    "classes of a zero-shot network": (clip, "export net -o net.onnx", 2, "name them with --classes",
                                       "export net -o net.onnx --classes classes.txt"),
    "a classifier for a zero-shot network": (clip, TUNE.format("net --train-data pets"), 2,
                                             "or train a classifier in its place with --new-classifier zeros",
                                             TUNE.format("net --train-data pets --new-classifier zeros")),
    "texts for a zero-shot network": (captions, TUNE.format("net --train-data captions.parquet"), 2,
                                      "fine-tune it on images with texts, with --recipe clip-lit",
                                      ("finetune net --train-data captions.parquet --steps 1 --set batch=4 "
                                       "--set warmup=0 -o tuned --recipe clip-lit")),
    "an unnamed text column": (rows(**WORDS, label=list(LABELS)), "evaluate bert --id-data rows.parquet", 1,
                               "could be title or body; name it with --text-column",
                               "evaluate bert --id-data rows.parquet --text-column title"),
    "numbers under another name": (rows(code=[1, 2, 3], label=list(LABELS)), "evaluate bert --id-data rows.parquet", 1,
                                   "name their column with --text-column",
                                   "evaluate bert --id-data rows.parquet --text-column code"),
    "an unnamed label column": (rows(text=WORDS["title"], kind=list(LABELS)), "evaluate bert --id-data rows.parquet",
                                1, "; name it with --label-column",
                                "evaluate bert --id-data rows.parquet --label-column kind"),
    "labels of another model in training": (rows(text=WORDS["title"], label=["x", "y", "z"]),
                                            TUNE.format("bert --train-data rows.parquet"), 1,
                                            "or train a new classifier with --new-classifier zeros",
                                            TUNE.format("bert --train-data rows.parquet --new-classifier zeros")),
    "an output that exists": (lambda: Path("member").write_text(""), "prune vit --method random --budget 1 -o member",
                              1, "--force", "prune vit --method random --budget 1 -o member --force"),
    "a network that embeds": (without_classifier, "calibrate net --id-data pets --sets 90% -o warm", 2,
                              "by finetune with --new-classifier zeros",
                              TUNE.format("net --train-data pets --new-classifier zeros")),
    "an adapter for a network": (adapter, "inspect lora", 1, "hydractl fuse NETWORK lora -o FILE",
                                 "fuse vit lora -o FILE"),
    "a row without a label": (rows(text=WORDS["title"], label=["cat", None, "owl"]),
                              "evaluate bert --id-data rows.parquet", 1, "sample 1 has no label in column label", ""),
    "a misspelt split": (nothing, "evaluate vit --id-data pets:tset", 1, "only train",
                         "evaluate vit --id-data pets:train"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_error_names_what_is_wrong_and_the_remedy_works(hydractl: Command, here: Path, mistake: str) -> None:
    prepare, command, code, words, remedy = MISTAKES[mistake]
    prepare()
    result = hydractl(*command.split())
    assert (result.code, words in result.err + result.out) == (code, True), result.err
    if code:
        assert result.err.startswith("error: ")
        assert result.err.count("\n") == 1
    if remedy:
        hydractl(*remedy.split(), "--quiet", code=0)


def outputs() -> Iterator[tuple[str, str]]:
    """Every command that writes, with what it requires, and each of its options that name an output."""
    for command in COMMANDS:
        options = options_of(command)
        words = [command.name, *(["-o", "made"] if command.writes else [])]
        for option in options:
            if option.required:
                words += [] if option.option.positional else flags_of(option)[:1]
                words.append(str((*option.choices, "nothing")[0]))
        for option in options:
            if option.option.heading == "Output" and option.type not in (bool, int) and option.name != "token":
                yield " ".join(words), flags_of(option)[0]


WITHOUT_TORCH = """
import sys
from hydractl.cli.main import _explain, _invoke
for line in sys.stdin.read().splitlines():
    sys.argv = ["hydractl", *line.split()]
    try:
        _invoke()
    except Exception as error:
        print(_explain(error)[0])
sys.exit("torch is loaded" if "torch" in sys.modules else 0)
"""
#: Commands with a wrong value, and what the error names.
WRONG = {
    "predict nothing pets": "nothing",
    "predict vit nothing.png": "nothing.png",
    "predict vit": "--data",
    "predict vit pets --classes nothing.txt": "nothing.txt",
    "analyse speed nothing": "nothing",
    "predict vit pets --dtype full": "--dtype full: expected fp64, fp32",
    "evaluate vit --id-data pets --device gpu": "--device gpu",
    "evaluate vit": "--id-data",
    "evaluate nothing --id-data pets": "nothing",
    "evaluate vit --id-data pets --ood-data nothing": "nothing",
    "calibrate vit --id-data ./nothing -o c": "./nothing",
    "calibrate vit --id-data pets -o vit": "vit: is a folder",
    "score-heads vit --method taylor": "--id-data",
    "extract-circuit vit --id-data pets --ood-data nothing --budget 2": "nothing",
    "prune vit --budget 2": "--method",
    "prune vit --method random --budget 99": "--budget 99",
    "prune vit --method circuit --circuit nothing.json --budget 2": "nothing.json",
    "select vit --id-data nothing": "nothing",
    "select vit --id-data pets --members x": "--members x",
    "finetune vit --train-data pets --recipe nothing -o t": "--recipe nothing",
    "finetune vit --train-data pets --set x=1 -o t": "x is unknown",
    "fuse vit nothing -o h": "nothing",
    "export vit -o x.onnx --int8": "--id-data",
    "build vit --id-data nothing -o b": "nothing",
    "monitor vit pets": "calibrate",
    "inspect nothing": "nothing",
}


def test_wrong_arguments_answer_before_torch_is_loaded(here: Path) -> None:
    script = [sys.executable, "-c", WITHOUT_TORCH]
    done = subprocess.run(script, input="\n".join(WRONG), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for (command, words), answer in zip(WRONG.items(), done.stdout.splitlines(), strict=True):
        assert words in answer, command


@pytest.mark.parametrize("name", ["/proc/new", "/sys/new", "/dev/full/new", "vit/config.json/new", "n" * 300])
@pytest.mark.parametrize(("command", "option"), list(outputs()))
def test_a_place_that_takes_no_file_is_refused_before_the_model_is_opened(
    hydractl: Command, here: Path, command: str, option: str, name: str
) -> None:
    ending = {"--plot": ".png"}.get(option, "")
    result = hydractl(*command.split(), option, f"{name}{ending}", code=1)
    assert result.err.startswith(f"error: {name[:200]}")
    assert result.err.count("\n") == 1


def test_every_command_that_reads_labels_can_match_them_by_index() -> None:
    options = [{option.name for option in declared(command.step)} for command in COMMANDS]
    reading = [names for names in options if "id_data" in names or "label_column" in names]
    assert len(reading) > 8
    assert all("match_labels" in names for names in reading)


def test_a_model_of_transformers_in_memory_is_loaded_with_its_processor(here: Path) -> None:
    model, processor = (kind.from_pretrained("vit") for kind in (ViTForImageClassification, ViTImageProcessor))
    loaded = hydractl_.load(model, processor)
    found, expected = (one.predict(Image.open("pets/cat/0.png")) for one in (loaded, hydractl_.load("vit")))
    assert_close(found.member_logits, expected.member_logits, rtol=0, atol=0)
    with pytest.raises(OptionError, match=r"hydractl.load\(model"):
        hydractl_.prune(model, method="random", budget=1)


def test_a_note_is_told_once(hydractl: Command, here: Path) -> None:
    table()
    result = hydractl("evaluate", "nameless", "again=nameless", "--id-data", "numbers.parquet", "--bootstrap", "0")
    assert (result.code, result.err.count("0 is LABEL_0")) == (0, 1)


SKIPPING = ("predict vit bad", "evaluate vit --id-data bad", "calibrate vit --id-data bad -o c")


@pytest.mark.parametrize("command", [*SKIPPING, "evaluate bert --id-data t.csv"])
def test_one_bad_sample_among_many_names_the_option_that_leaves_it_out(
    hydractl: Command, here: Path, command: str
) -> None:
    shutil.copytree("pets", "bad")
    Path("bad/cat/0.png").write_bytes(b"no image")
    Path("t.csv").write_text("text,label\na good film,cat\n,dog\na owl,owl\n")
    assert "--skip-bad" in hydractl(*command.split(), code=1).err
    hydractl(*command.split(), "--skip-bad", "--quiet", code=0)
    assert "--skip-bad" not in hydractl("score-heads", "vit", "--method=taylor", "--id-data=bad", code=1).err

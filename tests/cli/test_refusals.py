"""What commands refuse: one line on stderr, the exit code, and the option or file that is wrong."""

import shlex
from pathlib import Path
from typing import Any

import pytest

import hydractl as library
from hydractl.checkpoint.contents import identity
from hydractl.cli.app import COMMANDS
from hydractl.cli.derive import Command
from hydractl.errors import OptionError
from hydractl.options import Declared, declared, make
from tests.cli.conftest import Command as Run
from tests.cli.conftest import named, save_circuit, save_images, save_vit
from tests.test_options import anything

EXTRACT = "extract-circuit vit --id-data=pets --ood-data=noise"
EVALUATE = "evaluate vit --id-data=pets"
CALIBRATE = "calibrate vit --id-data=pets -o x"
TASK = "extract-circuit vit --budget=1 --task=pets=pets,noise"
SELECT = "select vit --id-data=pets --budgets=1"
TAYLOR = "prune vit --method=taylor --id-data=pets --budget=1"
BUILD = "build vit --id-data=pets --ood-data=noise --budgets=1 --device=cpu -o x"
FINETUNE = "finetune vit --train-data=pets -o x --device=cpu"
#: Exit code, the words that name what is wrong, the command.
REFUSED = f"""
2 | --budget                                | prune vit --method=random
2 | --graphs                                | analyse speed vit --graphs --device=cpu
2 | --limit                                 | prune vit --method=random --budget=1 --limit=5
2 | MODEL is missing                        | prune --method=random --budget=1
2 | --samples 99: 2 members                 | {TAYLOR} --samples=99 --members=2 -o x{{member}}
2 | both: has 2 members                     | prune both --method=random --budget=1
2 | both: has 2 members                     | score-heads both --method=magnitude
2 | --plot heads.txt                        | score-heads vit --id-data=pets --method=taylor --plot=heads.txt
2 | --budget 9: expected 1 to 8             | {EXTRACT} --budget=9
2 | --objective best                        | {EXTRACT} --budget=1 --objective=best
2 | put {{objective}} into --output           | {EXTRACT} --budget=1 --objective=acc,ood
2 | --objective acc,ood                     | {EXTRACT} --budget=1 --objective=acc,ood -o -
2 | needs --ood-data                        | extract-circuit vit --id-data=pets --budget=1 --objective=ood
2 | --towers text                           | {EXTRACT} --budget=1 --towers=text
2 | --layers 5-9                            | {EXTRACT} --budget=1 --layers=5-9
2 | a set called noise                      | {EXTRACT} --budget=1 --ood-data=noise=pets
2 | ood-data same=pets: is also --id-data   | {EXTRACT} --budget=1 --ood-data=same=pets
1 | m1: is an input of this command         | fuse m0 m1 -o m1 --force
1 | model.safetensors: is an input          | prune vit --method=random --budget=1 -o vit/model.safetensors --force
1 | m0: is an input of this command         | select m0 --id-data=pets --random=3 --hydra=m0 --force
1 | m0: is an input of this command         | finetune m0 --train-data=pets --steps=3 -o m0 --resume
1 | m1: is an input of this command         | finetune m0 --train-data=pets --steps=3 --teacher=m1 -o m1 --force
1 | m1: is an input of this command         | select vit m0 m1 --id-data=pets --hydra=m1 --force
1 | c.json: is an input of this command     | {SELECT} --circuit=c.json -o c.json --force
1 | m0: is an input of this command         | evaluate dense=m0 --id-data=pets --json=m0 --force
1 | r.json: is an input of this command     | report r.json --json=r.json --force
1 | m0: is an input of this command         | export m0 -o m0 --force
1 | empty.csv: is an input of this command  | predict vit empty.csv?label=x --csv=empty.csv --force
2 | --output and --hydra are both same      | select vit m0 m1 --id-data=pets --hydra=same -o ./same
1 | c.json: is an input of this command     | prune vit --method=circuit --circuit=c.json --budget=1 -o c.json --force
1 | m0: is an input of this command         | prune --method=circuit --circuit=of-m0.json --budget=1 -o m0 --force
2 | neither steps nor epochs                 | {FINETUNE}
1 | missing.csv                             | {FINETUNE} --steps=3 --val-data=missing.csv
2 | --joint                                 | {FINETUNE} --steps=3 --joint --apart
2 | {{member}}                                | finetune m0 m1 --train-data=pets --steps=3 -o x
2 | the same name                           | finetune m0 m0 --train-data=pets --steps=3 -o x/
2 | RECIPE x                                | list recipes x
2 | vit takes images, bert takes texts      | evaluate vit bert --id-data=pets
2 | 2 systems are called vit                | evaluate vit vit --id-data=pets
2 | a set called x                          | {EVALUATE} --ood-data=x=noise --ood-data=x=noise
2 | vit and yak have different classes      | evaluate vit+yak --id-data=pets
1 | 0.png                                   | {EVALUATE} --classes=noise/0.png
1 | r.json: exists already                  | {EVALUATE} --json=r.json
2 | --calib-data                            | {EVALUATE} --temperature=fit
2 | NAME/SEVERITY=                          | {EVALUATE} --shift-data=fog=pets
2 | blizzard                                | evaluate m0 --id-data=pets --corrupt=blizzard
2 | a set shift/fog/3                       | {EVALUATE} --shift-data=fog/3=pets --corrupt=fog:3
2 | without dropout                         | evaluate mc=vit,mc-dropout=4 --id-data=pets
2 | pass both                               | {EVALUATE} --resume
2 | no other system                         | {EVALUATE} --compare=vit
2 | --bootstrap 0                           | evaluate vit m0 --id-data=pets --compare=vit --bootstrap=0
1 | empty.csv                               | evaluate vit --id-data=empty.csv
2 | --accept 0%                             | {CALIBRATE} --accept=0%
1 | at least 19 calibration samples         | {CALIBRATE} --sets=95%
2 | --by-class needs a promise              | {CALIBRATE} --by-class
2 | --sets 1: no number                     | {CALIBRATE} --sets=100%
2 | fp8                                     | analyse speed vit --dtypes=fp8
2 | two models are called vit               | analyse speed vit vit
2 | --transformers                          | analyse speed m0 --transformers --seconds=0
2 | --int8 needs --id-data                  | export vit -o x.onnx --int8
2 | --max-accuracy-drop is for --int8       | export vit -o x.onnx --max-accuracy-drop=1
2 | --limit is for --int8                   | export vit -o x.onnx --limit=3
2 | --dtype is for a graph in floating      | export vit -o x.onnx --int8 --id-data=pets --dtype=fp16
2 | out.txt                                 | predict vit pets -o out.txt
2 | --resume                                | predict vit pets --resume
2 | leave them out                          | export vit --format=onnx -o x --classes=classes
1 | broken.png                              | predict vit broken.png
1 | holds no text                           | predict bert empty.txt
1 | UTF-8                                   | predict bert latin1.txt
2 | classifier fixes                        | predict vit - --classes=classes
2 | expected NAME=ID,OOD                    | extract-circuit vit --budget=1 --task=pets
2 | needs --ood-data                        | extract-circuit vit --budget=1 --task=pets=pets
2 | --task pets                             | {TASK} --task=pets=noise,noise
2 | --id-data                               | {EXTRACT} --budget=1 --task=pets=pets,noise
2 | --classes                               | {TASK} --task=b=pets,noise --classes=classes
2 | --members 4-2                           | {SELECT} --random=3 --members=4-2
2 | --budgets 9                             | select vit --id-data=pets --random=3 --budgets=9,99
2 | fit the cost budget                     | {SELECT} --random=3 --members=1 --budget-macs=0.2x
2 | --id-data                               | evaluate m0 --suite=suite.toml --id-data=pets
2 | --report                                | evaluate m0 --suite=suite.toml --report=page
2 | --suite sst3                            | evaluate m0 --suite=sst3
2 | --template x                            | score-heads vit --method=taylor --id-data=pets --template=x
2 | --calib-data                            | {EVALUATE} --calib-data=noise
2 | --output and --json -                   | {EXTRACT} --budget=1 -o - --json=-
2 | --limit                                 | evaluate predictions:gone --limit=3
2 | --text-column x                         | {EVALUATE} --text-column=x
2 | ranks 2 heads           | analyse heads vit --circuit=c.json --budget=4 --id-data=pets --ood-data=noise
2 | yak                                     | select vit yak --circuit=c.json --budgets=1 --id-data=pets
2 | yak: has other classes than vit         | {BUILD} --train-data=pets --set=steps=1 --teacher=yak
1 | nowhere                                 | {BUILD} --train-data=pets --set=steps=1 --teacher=nowhere
2 | --train-data                            | {BUILD} --recipe=paper
1 | 12 samples of id, but the data has 18   | evaluate vit p=predictions:saved/vit --id-data=more
2 | include their data sets                 | evaluate predictions:saved/vit --id-data=pets
"""
CASES = [tuple(part.strip() for part in line.split(" | ")) for line in REFUSED.strip().splitlines()]


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, vit: Path, bert: Path, other: Path, images: Path, noise: Path
) -> Path:
    """Models and data, good and bad."""
    here = tmp_path_factory.mktemp("refusals")
    for name, target in (("vit", vit), ("bert", bert), ("other", other), ("pets", images), ("noise", noise)):
        (here / name).symlink_to(target)
    members = [library.prune(vit, method="random", budget=1, seed=seed, output=here / f"m{seed}") for seed in (0, 1)]
    library.fuse(members, output=here / "both")
    save_vit(here / "yak", **named("cat", "dog", "yak"))
    library.evaluate({"vit": vit}, id_data=images, bootstrap=0, save_logits=here / "saved")
    save_images(here / "more", count=6, seed=5)
    (here / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    texts = {"empty.csv": "image,label\n", "empty.txt": "\n", "classes": "cat\n", "r.json": "{"}
    texts["suite.toml"] = "[tasks.pets]\nid_data = 'pets'\n"
    save_circuit(here / "c.json", (0, 0), (0, 1))
    save_circuit(here / "of-m0.json", (1, 0), model={"reference": "m0", "sha256": identity(members[0].checkpoint)})
    for name, text in texts.items():
        (here / name).write_text(text)
    (here / "latin1.txt").write_bytes("é".encode("latin-1"))
    return here


@pytest.mark.parametrize(("code", "named", "command"), CASES, ids=[command for *_, command in CASES])
def test_refused(
    hydractl: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, named: str, command: str
) -> None:
    monkeypatch.chdir(folder)
    before = set(folder.iterdir())
    result = hydractl(*shlex.split(command))
    problems = [line for line in result.err.splitlines() if not line.startswith("note: ")]
    assert (result.code, result.out, len(problems)) == (int(code), "", 1), result.err
    assert named in result.err
    assert set(folder.iterdir()) == before


OF_ROWS = [(command, option) for command in COMMANDS for option in declared(command.step) if option.choice]


@pytest.mark.parametrize(("command", "option"), OF_ROWS, ids=lambda one: one.name)
def test_an_option_of_another_row_is_refused(command: Command, option: Declared) -> None:
    options = {each.name: each for each in declared(command.step)}
    others = [row for row in options[str(option.choice)].choices if row not in option.takers]
    given: dict[str, Any] = {each.name: anything(each) for each in options.values() if each.required}
    given |= {option.name: anything(option) if option.option.within is None else option.option.within[0]}
    for row in others:
        with pytest.raises(OptionError, match=f"`{option.name}` has no effect"):
            make(command.step, given | {option.choice: row})

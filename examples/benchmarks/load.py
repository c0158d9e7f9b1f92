"""How long a checkpoint of ViT-L's size takes to load, and how much memory, beside transformers' `from_pretrained`.

python load.py [FOLDER]

Writes a random ViT-L (1.2 GB) into FOLDER, a temporary one by default, then loads it seven times in turn, each time
in a process of its own: by `from_pretrained`, by `hydractl.load` from the same folder, and by `hydractl.load` from a
file of ours. Prints medians of the time, imports not counted, and of the memory that a process takes up at its peak
beyond what its imports took: while loading, and once it has classified an image.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TIMES = 7
LOADERS = ("from_pretrained", "hydractl.load of the folder", "hydractl.load of our file")


def write(folder: Path) -> None:
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    from hydractl.families.load import read_checkpoint, write_checkpoint

    torch.manual_seed(0)
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
    ViTForImageClassification(ViTConfig(**sizes, num_labels=1000)).save_pretrained(folder / "vit-large")
    write_checkpoint(read_checkpoint(folder / "vit-large"), folder / "vit-large.safetensors", force=True)


def loader(which: str, folder: Path) -> Callable[[], object]:
    if which == LOADERS[0]:
        from transformers import ViTForImageClassification

        return lambda: ViTForImageClassification.from_pretrained(folder / "vit-large")
    import hydractl

    place = folder / ("vit-large" if which == LOADERS[1] else "vit-large.safetensors")
    return lambda: hydractl.load(place)


def measure(which: str, folder: Path) -> None:
    import torch

    load = loader(which, folder)
    images = torch.zeros(1, 3, 224, 224)
    before, start = peak(), time.perf_counter()
    model = load()
    seconds, loaded = time.perf_counter() - start, peak()
    with torch.inference_mode():
        model(pixel_values=images)
    print(json.dumps([seconds, loaded - before, peak() - before]))


def peak() -> float:
    """MiB of memory this process has taken up at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main(folder: Path) -> None:
    write(folder)
    seen: dict[str, list[list[float]]] = {which: [] for which in LOADERS}
    for _ in range(TIMES):  # in turn: other work on the machine meets all alike
        for which in LOADERS:
            command = [sys.executable, __file__, str(folder), which]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            seen[which].append(json.loads(done.stdout.splitlines()[-1]))
    base = seen[LOADERS[0]]
    for which, runs in seen.items():
        seconds, loaded, used = (statistics.median(column) for column in zip(*runs, strict=True))
        ratio = statistics.median(run[0] / other[0] for run, other in zip(runs, base, strict=True))
        print(f"{which}: {seconds:.3f} s ({ratio:.2f} x), {loaded:.0f} MiB to load, {used:.0f} MiB with a forward")


if __name__ == "__main__":
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
    elif len(sys.argv) > 2:
        measure(sys.argv[2], Path(sys.argv[1]))
    elif len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))

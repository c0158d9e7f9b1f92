"""How much memory an evaluation on fifteen kinds of shift at five severities takes beyond a plain one.

    python shift_memory.py [SAMPLES] [CORRUPT ...]     e.g. shift_memory.py 10000 contrast:5 all:1-5

Writes a small random ViT and SAMPLES images of 32 x 32 pixels into a temporary folder, 2,000 unless given. Each
evaluation runs in a process of its own: first without a shift, then with each CORRUPT, which are contrast:5 and all:1-5
unless given. Prints the peak of each process in MiB, and what it is beyond that of the first.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

CLASSES = [f"class{number}" for number in range(10)]
MEASURE = "--measure"


def write(folder: Path, samples: int) -> None:
    import datasets
    import numpy as np
    import torch
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    names = {"id2label": dict(enumerate(CLASSES)), "label2id": {name: at for at, name in enumerate(CLASSES)}}
    config = ViTConfig(**sizes, **names, image_size=32, patch_size=8)
    ViTForImageClassification(config).save_pretrained(folder / "vit")
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder / "vit")
    pixels = np.random.default_rng(0).integers(0, 256, (samples, 32, 32, 3), dtype=np.uint8)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)})
    columns = {"image": list(pixels), "label": [at % len(CLASSES) for at in range(samples)]}
    datasets.Dataset.from_dict(columns, features=features).to_parquet(folder / "images.parquet")


def measure(folder: Path, corrupt: str | None) -> None:
    import hydractl

    hydractl.evaluate(folder / "vit", id_data=folder / "images.parquet", corrupt=corrupt, device="cpu")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def peak(folder: Path, *corrupt: str) -> float:
    """The peak of an evaluation in a process of its own, MiB."""
    command = [sys.executable, __file__, MEASURE, str(folder), *corrupt]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main(samples: int, corruptions: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder, samples)
        plain = peak(folder)
        print(f"{samples} images, no shift: {plain:.0f} MiB")
        for corrupt in corruptions:
            found = peak(folder, corrupt)
            print(f"{corrupt}: {found:.0f} MiB, {found - plain:+.0f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == [MEASURE]:
        measure(Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000, sys.argv[2:] or ["contrast:5", "all:1-5"])

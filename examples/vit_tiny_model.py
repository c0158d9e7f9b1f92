"""Writes a pre-trained vision transformer of timm for images of another size, as a timm folder.

python vit_tiny_model.py PRETRAINED_FOLDER SIZE MODEL_FOLDER
"""

import json
import sys
from pathlib import Path

import timm
from safetensors.torch import load_file, save_file
from timm.models.vision_transformer import checkpoint_filter_fn


def main(pretrained: Path, size: int, output: Path) -> None:
    config = json.loads((pretrained / "config.json").read_text())
    arguments = {**config.get("model_args", {}), "img_size": size}
    network = timm.create_model(config["architecture"], num_classes=config["num_classes"], **arguments)
    weights = {name: tensor.float() for name, tensor in load_file(pretrained / "model.safetensors").items()}
    network.load_state_dict(checkpoint_filter_fn(weights, network))  # resamples the positions
    # A crop of 1 shows the network the whole image.
    preprocessing = {**config["pretrained_cfg"], "input_size": [3, size, size], "crop_pct": 1.0}
    output.mkdir(parents=True, exist_ok=True)
    save_file(network.state_dict(), output / "model.safetensors", {"format": "pt"})
    (output / "config.json").write_text(
        json.dumps({**config, "model_args": arguments, "pretrained_cfg": preprocessing})
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))

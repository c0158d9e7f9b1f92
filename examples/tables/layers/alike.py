"""Gives images the size and the compression of another set's, so that only what they show tells them apart.

    python alike.py SOURCE LIKE OUTPUT.parquet [--limit N]

LIKE is the set whose first image says size and JPEG tables. Labels are left out.
"""

import argparse
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from features import as_stored
from PIL import Image

from hydractl.data.open import open_samples
from hydractl.data.reading import Reading


def encoded(image: Image.Image, like: Image.Image) -> bytes:
    """Returns the content of a file: the very JPEG where images are JPEG, else a PNG."""
    file = BytesIO()
    if like.format == "JPEG":
        image.save(file, "JPEG", quality="keep")
    else:
        image.save(file, "PNG")
    return file.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("like")
    parser.add_argument("output", type=Path)
    parser.add_argument("--limit", type=int)
    given = parser.parse_args()
    like = open_samples(given.like, "image", Reading(limit=1))
    alike = as_stored(open_samples(given.source, "image", Reading(limit=given.limit)), like)
    images = [{"bytes": encoded(image, like.inputs[0]), "path": None} for image in alike.inputs]
    given.output.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"image": images}), given.output)


if __name__ == "__main__":
    main()

"""The architectures this project reads, one file each."""

from hydractl.families import bert, clip, vit
from hydractl.families.family import Family

FAMILIES: tuple[Family, ...] = (vit.FAMILY, bert.FAMILY, clip.FAMILY)

__all__ = ["FAMILIES", "Family"]

"""Bounds of every number that a user gives: beyond them a command would run for ever or fill the memory.

Numbers inside a text (`mc-dropout=10`, `0-5`, `fit|1.5`) are read here too, so that none escapes its bounds.
"""

from math import isfinite

from hydractl.errors import OptionError

SAMPLES = 10**9
BATCH = 2**20  # samples of a forward pass
STEPS = 10**7  # of an optimiser
EPOCHS = 10**5
PASSES = 10**4  # of a network with dropout on
FEWEST_DRAWS, DRAWS = 100, 10**5  # of a bootstrap
LAYERS = 1000  # of a tower
HEADS = 10**6  # of a model
MEMBERS = 1000
NETWORKS = 100  # that are added up to one ensemble
WIDTH = 10**6  # of a layer
SEED = 2**63 - 1
RATE = 1e3  # of learning
COLDEST, HOTTEST = 1e-4, 1e4  # temperatures
CHEAPEST, DEAREST = 0.01, 1000.0  # multiples of a network's cost


def whole(text: object, low: int, high: int) -> int | None:
    """Returns the whole number in a text; None for other text and out of range."""
    try:
        number = int(str(text))
    except ValueError:
        return None
    return number if low <= number <= high else None


def real(text: object, low: float, high: float) -> float | None:
    """Returns the number in a text; None if the text is not a number, not finite or out of range."""
    try:
        number = float(str(text))
    except ValueError:
        return None
    return number if low <= number <= high and isfinite(number) else None


def parse_ratio(name: str, ratio: object) -> float:
    """Returns a multiple of the network's cost, given as a number or such as 1.3x.

    Args:
        name: the option, for messages.

    Raises:
        OptionError: it is not a multiple.
    """
    # Python spells no number of many digits.
    text = "(beyond reason)" if isinstance(ratio, int) and abs(ratio) > DEAREST else str(ratio)
    value = real(text.removesuffix("x"), CHEAPEST, DEAREST)
    if value is None:
        raise OptionError(f"`{name}` {text[:40]}: expected a multiple of the network's, as in 1.3x")
    return value


def ratio_text(ratio: float) -> str:
    """Returns a multiple as `parse_ratio` reads it."""
    return f"{ratio:g}x"


def parse_share(name: str, text: str) -> float:
    """Returns the share, over 0 and up to 1, that a number or a percentage stands for.

    Args:
        name: the option, for messages.

    Raises:
        OptionError: the text is no share.
    """
    percent = text.endswith("%")
    share = real(text.removesuffix("%"), 0, 100 if percent else 1)
    if not share:
        raise OptionError(f"`{name}` {text}: expected a share above 0 and up to 1, as in 0.95 or 95%")
    return share / 100 if percent else share

"""Makes pixels worse: noise, blur, weather, and digital damage.

Each function takes an image, the strength of its kind and a source of random draws; `hydractl.data.corruptions` has
the strengths. A result may lie outside 0 to 1.
"""

from functools import lru_cache
from io import BytesIO

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import affine_transform, convolve1d, gaussian_filter, map_coordinates
from scipy.signal import convolve

from hydractl.data.images import with_channels

#: `[height,width,channels]` float64, 0..1; of one channel (grey) or three.
Pixels = NDArray[np.float64]

#: The benchmarks compute a disk up to this distance from its middle, or up to its radius if that is larger.
DISK_REACH = 8
#: Red, green and blue in the grey of an image (ITU-R BT.601).
LUMA = (0.299, 0.587, 0.114)
#: The colours of glass and of ice, about as in the benchmarks' photographs of frost.
GLASS, ICE = (0.25, 0.35, 0.42), (0.92, 0.95, 0.98)


def to_pixels(image: Image.Image) -> Pixels:
    """Returns the pixels of an image: those of one in opaque grey, or RGB with transparency over white."""
    grey = image.mode == "L" and "transparency" not in image.info
    return np.atleast_3d(np.asarray(with_channels(image, 1 if grey else 3), dtype=np.float64) / 255)


def to_image(x: Pixels) -> Image.Image:
    """Returns the image of some pixels, clipped to 0..1; levels are rounded down, as in the benchmarks."""
    # The offset keeps a level that arithmetic left just below a whole number, on every machine.
    levels = (x.clip(0, 1) * 255 + 1e-6).astype(np.uint8)
    return Image.fromarray(levels[..., 0] if levels.shape[-1] == 1 else levels)


def gaussian_noise(x: Pixels, spread: float, draw: Generator) -> Pixels:
    """Adds the noise of a sensor, with this standard deviation."""
    return x + draw.normal(scale=spread, size=x.shape)


def shot_noise(x: Pixels, photons: float, draw: Generator) -> Pixels:
    """Counts light in single photons, `photons` of them at full light."""
    return draw.poisson(x * photons) / photons


def impulse_noise(x: Pixels, share: float, draw: Generator) -> Pixels:
    """Turns this share of the values black or white, with equal chance."""
    hit, white = draw.random(x.shape) < share, draw.random(x.shape) < 0.5
    return np.where(hit, white.astype(np.float64), x)


def defocus_blur(x: Pixels, strength: tuple[float, float], _: Generator) -> Pixels:
    """Blurs by a disk, as a lens out of focus does.

    Args:
        strength: the radius of the disk, and the sigma that softens its edge, in pixels.
    """
    kernel = disk(*strength)
    reach = len(kernel) // 2
    padded = np.pad(x, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    return convolve(padded, kernel[..., None], mode="valid")


def disk(radius: float, sigma: float) -> Pixels:
    """Returns a disk with a soft edge, `[width,width]`. It sums to 1, or a little more where it reaches the border."""
    small = radius <= DISK_REACH
    along = np.arange(-DISK_REACH, DISK_REACH + 1) if small else np.arange(-radius, radius + 1)
    filled = along**2 + along[:, None] ** 2 <= radius**2
    softened = filled / filled.sum()
    near = np.arange(-1, 2) if small else np.arange(-2, 3)
    edge = np.exp(-(near**2) / (2 * sigma**2))
    for axis in (0, 1):
        softened = convolve1d(softened, edge / edge.sum(), axis=axis, mode="mirror")
    return softened


def glass_blur(x: Pixels, strength: tuple[float, int, int], draw: Generator) -> Pixels:
    """Blurs, moves pixels at random, and blurs again, as frosted glass does.

    Args:
        strength: sigma of the blur, the longest move of a pixel, and the number of rounds.
    """
    sigma, farthest, times = strength
    height, width, channels = x.shape
    rows, columns = np.arange(height - farthest, farthest, -1), np.arange(width - farthest, farthest, -1)
    places = (rows[:, None] * width + columns).ravel()
    origin = list(range(height * width))
    for _ in range(times):
        moves = draw.integers(-farthest, farthest, size=(len(places), 2))
        # The benchmarks intend to exchange two pixels, but copy one over the other, and so does this.
        # Pixels move one after the other, and a copy may be copied again.
        for place, source in zip(places.tolist(), (places + moves @ (1, width)).tolist(), strict=True):
            origin[place] = origin[source]
    levels = np.floor(gaussian_filter(x, sigma, mode="nearest", axes=(0, 1)) * 255 + 1e-6) / 255
    moved = levels.reshape(-1, channels)[origin].reshape(x.shape)
    return gaussian_filter(moved, sigma, mode="nearest", axes=(0, 1))


def motion_blur(x: Pixels, strength: tuple[int, float], draw: Generator) -> Pixels:
    """Smears by a radius and a sigma, in a direction within 45 degrees of the horizontal."""
    return smeared(x, *strength, degrees=draw.uniform(-45, 45))


def smeared(x: Pixels, radius: int, sigma: float, degrees: float) -> Pixels:
    """Returns the weighted mean of each pixel and the next ones in one direction; the nearest weighs most.

    This is the motion blur of ImageMagick: half a bell curve from its peak, at whole pixels.

    Args:
        radius: half the number of pixels averaged besides the first.
        sigma: of the bell curve, in pixels.
        degrees: the direction, clockwise from rightwards.
    """
    height, width = x.shape[:2]
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    angle = np.radians(degrees)
    right, down = (np.ceil(steps * share - 0.5).astype(int) for share in (np.cos(angle), np.sin(angle)))
    reach = 2 * radius
    padded = np.pad(x, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
    out = np.zeros_like(x)
    for weight, dx, dy in zip(weights / weights.sum(), reach + right, reach + down, strict=True):
        out += weight * padded[dy : dy + height, dx : dx + width]
    return out


def zoom_blur(x: Pixels, strength: tuple[float, float], _: Generator) -> Pixels:
    """Averages enlargements by factors from 1 to below the first number, in steps of the second."""
    factors = np.arange(1, *strength)
    return (x + sum(enlarged(x, factor) for factor in factors)) / (len(factors) + 1)


def enlarged(x: Pixels, factor: float) -> Pixels:
    """Returns the middle of an image, enlarged to its size."""
    rows, columns = (_enlarging(size, factor) for size in x.shape[:2])
    return (rows @ x.transpose(2, 0, 1) @ columns.T).transpose(1, 2, 0)


def _enlarging(size: int, factor: float) -> Pixels:
    """Returns the weights, `[size,size]`, of pixels in those of the enlarged middle: linear on an axis."""
    part = int(np.ceil(size / factor))
    large = round(part * factor)
    start, trimmed = (size - part) // 2, (large - size) // 2
    at = start + np.arange(trimmed, trimmed + size) * ((part - 1) / max(large - 1, 1))
    return (1 - abs(at[:, None] - np.arange(size))).clip(min=0)


def snow(x: Pixels, strength: tuple[float, float, float, float, int, float, float], draw: Generator) -> Pixels:
    """Makes the image paler and lets flakes fall in front of it.

    Args:
        strength: mean, standard deviation and enlargement of the noise that makes the flakes, the lowest value that
            is a flake, radius and sigma of their smear, and the share of the image that does not pale.
    """
    mean, spread, factor, least, radius, sigma, clear = strength
    noise = enlarged(draw.normal(mean, spread, size=(*x.shape[:2], 1)), factor)
    flakes = np.where(noise < least, 0, noise).clip(0, 1)
    falling = smeared(flakes, radius, sigma, draw.uniform(-135, -45))
    grey = x if x.shape[-1] == 1 else (x @ LUMA)[..., None]
    paler = np.maximum(x, grey * 1.5 + 0.5)
    return clear * x + (1 - clear) * paler + falling + np.rot90(falling, k=2)


def frost(x: Pixels, strength: tuple[float, float, int], draw: Generator) -> Pixels:
    """Puts the image behind frost of a synthetic texture; the benchmarks use photographs of frost.

    Args:
        strength: factors of the image and of the frost, and the factor that reduces the frost in size.
    """
    clear, share, times = strength
    height, width, channels = x.shape
    texture = frost_texture((times * height, times * width), draw)
    texture = texture.reshape(height, times, width, times, 3).mean((1, 3))
    return clear * x + share * (texture if channels == 3 else np.asarray(texture @ LUMA)[..., None])


def frost_texture(size: tuple[int, int], draw: Generator) -> Pixels:
    """Returns ice on glass, `[*size,3]`, 0..1: needles in six directions, denser where a plasma is thick.

    Brightness, contrast and colour vary about as much as among the benchmarks' photographs.
    """
    needles = np.zeros((*size, 1))
    for degrees in draw.uniform(0, 360, 6):
        seeds = (draw.random((*size, 1)) < 0.01) * draw.random((*size, 1))
        needles += smeared(seeds, radius=10, sigma=8, degrees=degrees)
    needles = gaussian_filter(needles, 0.7, axes=(0, 1))
    thickness = plasma(size, 1.75, draw)[..., None]
    crystals = needles / max(needles.std(), 1e-9) * (0.5 + thickness)
    cover = draw.uniform(0.2, 0.8) + 0.12 * (crystals - crystals.mean()) + 0.6 * (thickness - thickness.mean())
    return GLASS + cover.clip(0, 1) * (np.array(ICE) - GLASS)


def fog(x: Pixels, strength: tuple[float, float], draw: Generator) -> Pixels:
    """Puts the image in fog and keeps its maximum brightness.

    Args:
        strength: thickness of the fog, and the decay of its wisps with their size.
    """
    thickness, decay = strength
    brightest = x.max()
    return (x + thickness * plasma(x.shape[:2], decay, draw)[..., None]) * brightest / (brightest + thickness)


def plasma(size: tuple[int, ...], decay: float, draw: Generator) -> Pixels:
    """Returns a random landscape of heights from 0 to 1, `[*size]`: midpoint displacement of diamonds and squares.

    Args:
        decay: higher is smoother; displacements fall by its square each time the distance is halved.
    """
    width = 1 << (max(*size, 2) - 1).bit_length()
    heights = np.zeros((width, width))
    step, height = width, 1.0

    def displaced(total: Pixels) -> Pixels:
        return total / 4 + height * draw.uniform(-1, 1, total.shape)

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        columns = corners + np.roll(corners, -1, axis=0)
        middles = displaced(columns + np.roll(columns, -1, axis=1))
        heights[half::step, half::step] = middles
        above_below = middles + np.roll(middles, 1, axis=0)
        heights[::step, half::step] = displaced(above_below + corners + np.roll(corners, -1, axis=1))
        beside = middles + np.roll(middles, 1, axis=1)
        heights[half::step, ::step] = displaced(beside + columns)
        step, height = half, height / decay**2
    heights -= heights.min()
    return (heights / heights.max())[: size[0], : size[1]]


def brightness(x: Pixels, more: float, _: Generator) -> Pixels:
    """Raises V of HSV by `more`."""
    value = x.max(-1, keepdims=True)
    brighter = (value + more).clip(max=1)
    return np.where(value > 0, x * (brighter / np.where(value > 0, value, 1)), brighter)


def contrast(x: Pixels, factor: float, _: Generator) -> Pixels:
    """Multiplies the distance of each channel from its mean by a factor."""
    means = x.mean(axis=(0, 1), keepdims=True)
    return (x - means) * factor + means


def elastic_transform(x: Pixels, strength: tuple[float, float, float], draw: Generator) -> Pixels:
    """Moves three points of the image, and bends it.

    Args:
        strength: size of the bends, sigma that smooths them, and the longest move of a point on each axis; in pixels.
    """
    bend, sigma, farthest = strength
    height, width = x.shape[:2]
    moved = _moved(x, farthest, draw)
    noise = draw.uniform(-1, 1, size=(2, height, width))
    shift = _smoothing(height, sigma) @ noise @ _smoothing(width, sigma).T
    at = np.indices((height, width)) + bend * shift
    return np.stack([map_coordinates(moved[..., c], at, order=1, mode="reflect") for c in range(x.shape[-1])], -1)


@lru_cache(maxsize=16)
def _smoothing(size: int, sigma: float) -> Pixels:
    """Returns a Gaussian filter along one axis as a matrix `[size,size]`; the widest has more taps than pixels."""
    return gaussian_filter(np.eye(size), sigma, mode="reflect", truncate=3, axes=(0,))


def _moved(x: Pixels, farthest: float, draw: Generator) -> Pixels:
    """Returns an affine image of `x` that moves three points around its middle at random."""
    height, width = x.shape[:2]
    middle, away = np.array([height // 2, width // 2]), min(height, width) // 3
    before = middle + away * np.array([(1, 1), (-1, 1), (-1, -1)])
    after = before + draw.uniform(-farthest, farthest, size=(3, 2))
    # Where a pixel of the result comes from: (row, column, 1) times this.
    back = np.linalg.solve(np.column_stack([after, np.ones(3)]), before)
    channels = [affine_transform(x[..., c], back[:2].T, back[2], order=1, mode="mirror") for c in range(x.shape[-1])]
    return np.stack(channels, -1)


def pixelate(x: Pixels, share: float, _: Generator) -> Pixels:
    """Shrinks the image to this share of its width and height, and enlarges it again."""
    image, box = to_image(x), Image.Resampling.BOX
    small = image.resize((max(1, int(image.width * share)), max(1, int(image.height * share))), box)
    return to_pixels(small.resize(image.size, box))


def jpeg_compression(x: Pixels, quality: int, _: Generator) -> Pixels:
    """Encodes as JPEG of a quality up to 95."""
    encoded = BytesIO()
    to_image(x).save(encoded, "JPEG", quality=quality)
    return to_pixels(Image.open(encoded))

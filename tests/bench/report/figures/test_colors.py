"""The promises of colors.py: contrast, and categories that readers with a color vision deficiency can distinguish."""

from itertools import combinations
from math import dist

import pytest

from tfdist.bench.report.figures.colors import ASYNC, INK, MUTED, NONE, PALETTE, PAPER, RED, SYNC, THEME

VISIONS = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""Linear RGB as seen (Machado, Oliveira and Fernandes 2009, severity 1)."""
XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def linear(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one, other):
    dark, light = sorted(times(XYZ, linear(color))[1] for color in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(color, vision):
    seen = [min(1, max(0, part)) for part in times(VISIONS[vision], linear(color))]
    x, y, z = (
        part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116
        for part in (value / white for value, white in zip(times(XYZ, seen), (0.9505, 1, 1.089), strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


SCHEMES = pytest.mark.parametrize("scheme", [lambda color: color, lambda color: THEME[color][1]], ids=["light", "dark"])


@SCHEMES
def test_text_and_shapes_stand_out_from_the_page(scheme):
    for color in (INK, MUTED, RED):
        assert contrast(scheme(color), scheme(PAPER)) >= 4.5
    for color in PALETTE:
        assert contrast(scheme(color), scheme(PAPER)) >= 3


@SCHEMES
@pytest.mark.parametrize("vision", VISIONS)
def test_categories_can_be_distinguished(scheme, vision):
    for one, other in combinations(PALETTE, 2):
        assert dist(lab(scheme(one), vision), lab(scheme(other), vision)) >= 13.5, (one, other)


def test_the_kinds_of_exchange_are_of_the_palette():
    assert {SYNC, ASYNC, NONE} <= set(PALETTE)

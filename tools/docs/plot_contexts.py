#!/usr/bin/env python3
"""Draws rates against context from `lily bench --json`, beside published curves of other engines on other hardware.

  tools/docs/plot_contexts.py docs/measurements/h200.json > docs/images/h200.svg

Decoding above, prompts below, both axes logarithmic. Python's standard library alone.
"""
import json
import math
import sys

# Lily's report of 2026-09 on an M5 Max (40 GPU cores, 600 GB/s): decoding and prompts, tokens a second.
CONTEXTS = [256, 1024, 4096, 16384, 32768, 65536, 131072]
PUBLISHED = {
    "decode": {"Lily, M5 Max": [194.7, 193.3, 182.8, 167.0, 151.1, 125.4, 92.7],
               "MLX 0.32.2, M5 Max": [148.5, 148.1, 145.6, 129.6, 118.2, 98.5, 75.0]},
    "prefill": {"Lily, M5 Max": [2867, 4735, 5724, 4969, 3928, 2753, 1793],
                "MLX 0.32.2, M5 Max": [2536, 4472, 5166, 4723, 3964, 3051, 2238]},
}
TITLES = {"decode": "decoding, tokens a second", "prefill": "prompt, tokens a second"}
WIDTH, HEIGHT, LEFT, RIGHT, TOP = 760, 250, 70, 190, 34
COLOURS = ["#0b6e4f", "#8a5a00", "#5b5b8c"]
DASHES = ["", "6 4", "2 4"]


def measured(path, kind):
    """[(context, tokens a second)] of single cold sequences."""
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    return sorted((row["prompt"], row[f"{kind}_tokens_per_second"]) for row in rows
                  if row["cached"] == 0 and row["streams"] == 1 and not row["refused"])


def ticks(low, high):
    """1, 2 and 5 times powers of ten in between."""
    values = [m * 10**e for e in range(0, 7) for m in (1, 2, 5)]
    return [v for v in values if low <= v <= high]


def panel(kind, curves, offset):
    """One diagram as SVG elements."""
    values = [v for points in curves.values() for _, v in points]
    low, high = min(values) / 1.3, max(values) * 1.3
    bottom = offset + TOP + HEIGHT

    def x(context):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(context / 256) / math.log2(131072 / 256)

    def y(value):
        return bottom - HEIGHT * math.log(value / low) / math.log(high / low)

    out = [f'<text x="{LEFT}" y="{offset + 20}" font-weight="bold">{TITLES[kind]}</text>']
    for value in ticks(low, high):
        out.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" class="grid"/>'
                   f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,}</text>')
    for context in CONTEXTS:
        label = context if context < 1024 else f"{context // 1024}K"
        out.append(f'<text x="{x(context):.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    for (name, points), colour, dash in zip(curves.items(), COLOURS, DASHES):
        line = "L".join(f"{x(c):.1f} {y(v):.1f}" for c, v in points)
        out.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        out += [f'<circle cx="{x(c):.1f}" cy="{y(v):.1f}" r="3" fill="{colour}"/>' for c, v in points]
        c, v = points[-1]
        out.append(f'<text x="{x(c) + 8:.1f}" y="{y(v) + 4:.1f}" fill="{colour}">{name}</text>')
    return out


def main():
    """Both panels to standard output."""
    parts = []
    for i, kind in enumerate(("decode", "prefill")):
        curves = {"lily.cpp, H200": measured(sys.argv[1], kind)}
        curves |= {name: list(zip(CONTEXTS, rates)) for name, rates in PUBLISHED[kind].items()}
        parts += panel(kind, curves, i * (HEIGHT + TOP + 40))
    height = 2 * (HEIGHT + TOP + 40)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
          f'font-size="13"><style>.grid{{stroke:#ccc}}</style><rect width="{WIDTH}" height="{height}" fill="white"/>')
    print("\n".join(parts))
    print("</svg>")


main()

"""Medians and tables for the console."""

import statistics


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "n": len(values)}


def text_of(values, decimals):
    return (f"{values['median']:.{decimals}f} "
            f"({values['min']:.{decimals}f}..{values['max']:.{decimals}f})")


def aligned(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in rows]

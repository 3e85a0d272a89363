"""Counts words. With KEEP=1 in the environment it also keeps every text, which is a regression."""

import os

kept = []


def count(lines):
    words = 0
    for line in range(lines):
        text = f"{line} {'word':>1000}"
        words += len(text.split())
        if os.environ.get("KEEP"):
            kept.append(text)
    return words

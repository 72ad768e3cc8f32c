"""Rank texts by how well they fit a query."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

SATURATION, LENGTH = 1.5, 0.75
"""BM25's k1, which limits the effect of a repeated word, and b, which discounts long texts."""


def score_bm25(query: str, texts: Sequence[str]) -> list[float]:
    """Return the Okapi BM25 score of each text; a higher one fits better, 0 shares no word with the query.

    A word is a run of letters and digits, in lower case. A name such as `place_table` has two.
    """
    counts = [Counter(_words(text)) for text in texts]
    mean = sum(count.total() for count in counts) / max(len(counts), 1)
    scores = [0.0] * len(texts)
    for word in dict.fromkeys(_words(query)):
        having = sum(word in count for count in counts)
        weight = math.log(1 + (len(counts) - having + 0.5) / (having + 0.5))
        for place, count in enumerate(counts):
            if times := count[word]:
                damping = SATURATION * (1 - LENGTH + LENGTH * count.total() / mean)
                scores[place] += weight * times * (SATURATION + 1) / (times + damping)
    return scores


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())

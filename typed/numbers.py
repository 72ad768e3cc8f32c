"""Numbers in records: finite, and so small that sums and squares of them stay finite."""

from __future__ import annotations

from typing import Annotated

import msgspec

WHOLE_LIMIT = 2**53
"""Whole numbers up to this one are exact as floats, too."""

REAL_LIMIT = 1e15

MOMENT_LIMIT = 2**36
"""Unix seconds in the year 4147, which every calendar can show."""

Whole = Annotated[int, msgspec.Meta(ge=-WHOLE_LIMIT, le=WHOLE_LIMIT)]
Real = Annotated[float, msgspec.Meta(ge=-REAL_LIMIT, le=REAL_LIMIT)]
Moment = Annotated[float, msgspec.Meta(ge=0, le=MOMENT_LIMIT)]

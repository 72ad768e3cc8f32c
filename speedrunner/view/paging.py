"""Spread long lists over pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class NotFound(Exception):
    """The page does not exist."""


def page_part(items: Sequence[Any], page: int, size: int) -> dict[str, Any]:
    """Return one page of a list for its template.

    Returns:
        `shown`: the page's items; `first`: the number of the first one, from 1; `count`: the number of all
        items; `page`, `pages`.

    Raises:
        NotFound: the list has fewer pages.
    """
    pages = max(-(-len(items) // size), 1)
    if not 1 <= page <= pages:
        raise NotFound(f"it has {pages} pages")
    first = (page - 1) * size
    return {
        "shown": items[first : first + size],
        "first": first + 1,
        "count": len(items),
        "page": page,
        "pages": pages,
    }

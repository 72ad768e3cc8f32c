"""An ideal prefix cache: one with the engine's rule and room for far more blocks.

The rule is vLLM 0.32's, read and measured. The engine keeps states at the ends of some prefixes, and serves a
prompt from the longest prefix that has a state. An attention cache keeps a state at the end of every whole
block that was computed. The cache of a hybrid model keeps one at the end of every whole block, which is long
there, and at the end of every prompt, rounded down to the match unit. The last token of a prompt is always
computed; the last generated token never is.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence

from serving.engine.capacity import CacheConfig

MOST_STATES = 1_000_000
"""Number of new states after which unused ones are forgotten; more for an engine with more blocks."""

Link = int
"""Hash of a prefix of whole units: of the previous link and of the last unit's tokens."""


class IdealCache:
    """The requests to one replica since its start, from all clients of this process.

    A request counts from when it is sent, because the engine shares blocks as soon as it computes them. Each
    of several requests in flight could therefore have been served by the others' prompts; the engine chooses
    which one is first. A `Chain` computes only the new part of a conversation.

    A state is forgotten after at least `most` others were kept and no request has used it. The engine has
    room for a quarter of that at most, so it has evicted the state by then. A state takes about 90 bytes, and
    up to twice `most` are remembered: 180 MB, or 32 million tokens in blocks of 16.
    """

    def __init__(self, config: CacheConfig) -> None:
        self.unit = config.match_unit
        self.units_per_block = config.block_size // config.match_unit
        self.enabled = config.enable_prefix_caching
        self.most = max(MOST_STATES, 4 * config.num_gpu_blocks)
        self.kept: Counter[Link] = Counter()
        """Number of requests that kept each state. A request of a `Chain` does not count states again that
        earlier requests of the chain kept."""
        self.older: Counter[Link] = Counter()
        """The same for the time before `kept` was last replaced."""

    def make_room(self) -> None:
        """Forget the older states if there are enough newer ones."""
        if len(self.kept) >= self.most:
            self.kept, self.older = Counter(), self.kept

    def links(self, link: Link, ids: Sequence[int]) -> list[Link]:
        """Return the links of a sequence's whole units; `link` is the link of what precedes it."""
        width, data = 4 * self.unit, array("I", ids).tobytes()
        links = []
        for at in range(0, len(data) - width + 1, width):
            links.append(link := hash((link, data[at : at + width])))
        return links


class Chain:
    """The requests of one conversation, sent one after another.

    Each prompt starts with the previous one. Requests with the same salt may share what they compute.

    Attributes:
        links: links of all whole units that were sent.
        kept: the cache's states at the last request; replaced to make room.
        noted: number of links, in whole blocks, with states in `kept`.
    """

    def __init__(self, cache: IdealCache, salt: str) -> None:
        self.cache = cache
        self.salt = salt
        self.first = hash(salt)
        self.links: list[Link] = []
        self.kept = cache.kept
        self.noted = 0

    def send(self, prompt: Sequence[int]) -> Lookup:
        """Record the next request."""
        self.cache.make_room()
        if self.kept is not self.cache.kept:
            self.kept, self.noted = self.cache.kept, 0
        last = self.links[-1] if self.links else self.first
        self.links += self.cache.links(last, prompt[len(self.links) * self.cache.unit :])
        return Lookup(self, prompt)


class Lookup:
    """One try of a request, with its prompt's position in the cache. Made by `Chain.send`."""

    def __init__(self, chain: Chain, prompt: Sequence[int]) -> None:
        cache = chain.cache
        self._chain = chain
        self._kept = chain.kept
        self._older = cache.older
        self._count = len(chain.links)
        self._end = max(len(prompt) - 1, 0) // cache.unit
        self._rest = prompt[self._count * cache.unit :]
        self._noted = chain.noted
        step = cache.units_per_block
        own = chain.links[chain.noted + step - 1 :: step]
        chain.noted = self._count // step * step
        if self._end % step:
            own.append(chain.links[self._end - 1])
        self._own = frozenset(own)
        self._kept.update(own)
        if (used := self._reusable_units()) and self._kept.get(link := chain.links[used - 1], 0) <= 0:
            self._kept[link] = 1

    @property
    def cacheable(self) -> int:
        """The most tokens of its prompt that earlier requests, of this conversation or of others, could have
        put into the cache."""
        return self._reusable_units() * self._chain.cache.unit

    def _reusable_units(self) -> int:
        cache = self._chain.cache
        if not cache.enabled:
            return 0
        links, kept, own = self._chain.links, self._kept, self._own
        # The cache may have made room since the request was sent.
        others = [each for each in (self._older, cache.kept, cache.older) if each is not kept]
        for number in range(self._end, 0, -1):
            link = links[number - 1]
            if kept.get(link, 0) > (link in own) or any(each.get(link, 0) > 0 for each in others):
                return number
        return 0

    def answered(self, output: Sequence[int]) -> None:
        """Record the ids that were generated for it."""
        cache, chain, known = self._chain.cache, self._chain, self._count
        last = chain.links[known - 1] if known else chain.first
        links = cache.links(last, [*self._rest, *output[:-1]])
        step = cache.units_per_block
        self._kept.update(links[-(known + 1) % step :: step])

    def refused(self) -> None:
        """Record that none of it was computed."""
        self._kept.subtract(self._own)
        self._chain.noted = min(self._chain.noted, self._noted)

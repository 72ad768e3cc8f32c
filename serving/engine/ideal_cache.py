"""What an ideal prefix cache could give: one of the engine's rule that never runs out of blocks.

The rule is vLLM 0.32's, read and measured. A prompt is served from the longest of its prefixes at whose end
the engine kept its state. An attention cache keeps it at the end of every whole block that was computed; that
of a hybrid model at the end of every whole block, which is long there, and of every prompt, rounded down to
the match unit. The last token of a prompt is always computed, the last one that is generated never.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence

from serving.engine.metrics import CacheConfig

Link = int
"""Hash of a prefix of whole units: of the link before and of the last unit's tokens."""


class IdealCache:
    """What was sent to one replica since it was started, by whichever client of this process.

    A request counts from when it is sent: the engine shares blocks as soon as it computes them. So of
    requests in flight together each could have been served by the others' prompts; which comes first is the
    engine's choice. It takes about 90 bytes for each state (1,000 conversations of 20,000 tokens in blocks of
    16: 110 MB). A `Chain` computes only what is new in a conversation.
    """

    def __init__(self, config: CacheConfig) -> None:
        self.unit = config.match_unit
        self.units_per_block = config.block_size // config.match_unit
        self.enabled = config.enable_prefix_caching
        self.forget()

    def forget(self) -> None:
        """The engine is started again: nothing that was sent is there any more."""
        self.kept: Counter[Link] = Counter()
        """By how many requests each state was kept; a request of a `Chain` does not count again what the
        chain's earlier ones kept."""

    def send(self, prompt: Sequence[int], salt: str = "") -> Lookup:
        """Note that a request is sent; others that carry the same salt may share what it computes."""
        return Chain(self, salt).send(prompt)

    def links(self, link: Link, ids: Sequence[int]) -> list[Link]:
        """The links of a sequence's whole units, where `link` is that of what is before it."""
        width, data = 4 * self.unit, array("I", ids).tobytes()
        links = []
        for at in range(0, len(data) - width + 1, width):
            links.append(link := hash((link, data[at : at + width])))
        return links


class Chain:
    """The requests of one conversation, sent one after another: each prompt begins with the last one.

    Attributes:
        links: of all whole units that were sent.
        kept: the cache's states when the last request was sent; others after the engine's restart.
        noted: how many links, in whole blocks, have their states in `kept`.
    """

    def __init__(self, cache: IdealCache, salt: str) -> None:
        self.cache = cache
        self.salt = salt
        self.first = hash(salt)
        self.links: list[Link] = []
        self.kept = cache.kept
        self.noted = 0

    def send(self, prompt: Sequence[int]) -> Lookup:
        """Note that the next request is sent."""
        if self.kept is not self.cache.kept:
            self.kept, self.noted = self.cache.kept, 0
        last = self.links[-1] if self.links else self.first
        self.links += self.cache.links(last, prompt[len(self.links) * self.cache.unit :])
        return Lookup(self, prompt)


class Lookup:
    """One try of a request with its prompt's place in the cache. Made by `Chain.send`."""

    def __init__(self, chain: Chain, prompt: Sequence[int]) -> None:
        cache = chain.cache
        self._chain = chain
        self._kept = chain.kept
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

    @property
    def cacheable(self) -> int:
        """The most tokens of its prompt that could come from what others, and earlier requests of the
        conversation, have sent so far."""
        cache = self._chain.cache
        if not cache.enabled:
            return 0
        links, kept, own = self._chain.links, self._kept, self._own
        for number in range(self._end, 0, -1):
            link = links[number - 1]
            if kept.get(link, 0) > (link in own):
                return number * cache.unit
        return 0

    def answered(self, output: Sequence[int]) -> None:
        """Note what was generated after it."""
        cache, chain, known = self._chain.cache, self._chain, self._count
        last = chain.links[known - 1] if known else chain.first
        links = cache.links(last, [*self._rest, *output[:-1]])
        step = cache.units_per_block
        self._kept.update(links[-(known + 1) % step :: step])

    def refused(self) -> None:
        """Note that nothing of it was computed."""
        self._kept.subtract(self._own)
        self._chain.noted = min(self._chain.noted, self._noted)

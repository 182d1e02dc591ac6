"""`Chance`: the generator that a randomised function is called with.

Chance depends on the database and the draw, and not on who is left out. So both sides of a pair see the same random
numbers. That leaves the law of either side as it is, which is all that delta depends on, and what chance does is not
mistaken for what an individual does.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import numpy as np

SEEDING = "by database and draw"
"""How generators are seeded. A checkpoint holds it, so that it is not continued with other numbers."""


def chance_of(seed: int, database: int, draw: int) -> Chance:
    """The generator of one draw on one database, whoever is left out."""
    return Chance(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(database, draw))))


class Chance(np.random.Generator):
    """A NumPy generator that also has a stream for each individual.

    A function that draws for each row needs them: without somebody, all rows that follow theirs would get other
    numbers.

    Examples
    --------
    >>> from empriv.collecting.functions.chance import chance_of
    >>> everyone, without_ada = chance_of(0, 0, 0), chance_of(0, 0, 0)
    >>> [everyone.for_individual(name).normal() for name in ("Ada", "Ben")][1] == (
    ...     without_ada.for_individual("Ben").normal()
    ... )
    True
    """

    def __init__(self, bit_generator: np.random.BitGenerator) -> None:
        super().__init__(bit_generator)
        self._streams: dict[bytes, Chance] = {}

    def for_individual(self, *label: Any) -> Chance:
        """The individual's own stream, the same whoever else is left out.

        ``label`` is what the rows call the individual, in as many columns as it takes. Asked again in the same call of
        the function, the stream goes on where it was: an individual with three rows gets three different numbers.
        """
        # Lengths keep ("a", "bc") apart from ("ab", "c"); str() makes a NumPy number the same as Python's.
        text = "".join(f"{len(part)}:{part}" for part in map(str, label))
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in self._streams:
            own = self.bit_generator.seed_seq
            sequence = np.random.SeedSequence(own.entropy, spawn_key=(*own.spawn_key, *struct.unpack("<4I", key)))  # type: ignore[attr-defined]
            self._streams[key] = Chance(np.random.PCG64(sequence))
        return self._streams[key]

    def __reduce__(self) -> tuple[Any, ...]:
        # NumPy's own would restore a plain generator, and forget how far the streams are.
        return _restored, (self.bit_generator, self._streams)


def _restored(bit_generator: np.random.BitGenerator, streams: dict[bytes, Chance]) -> Chance:
    chance = Chance(bit_generator)
    chance._streams.update(streams)
    return chance

"""View: how the matrices of a product lie in an array, as shape and strides. It holds no memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from slangpy_rt.core.shapes import Shape


class View(NamedTuple):
    """Shape and strides of matrices, of which the last two dimensions are rows and columns.

    Attributes
    ----------
    element : str
        The type of the elements: a Slang scalar, or ``"bfloat16"``.
    shape : tuple of int
        In elements.
    strides : tuple of int
        In elements, one for each dimension.
    offset : int
        Elements from the first one of the array to the first one of the view.
    """

    element: str
    shape: Shape
    strides: Shape
    offset: int = 0

    @property
    def batch(self) -> Shape:
        """The dimensions before rows and columns."""
        return self.shape[:-2]

    def transposed(self) -> View:
        """Return the view with rows and columns exchanged."""
        *outer, rows, columns = self.shape
        *steps, row, column = self.strides
        return self._replace(shape=(*outer, columns, rows), strides=(*steps, column, row))

    def spread(self, batch: Shape) -> View:
        """Return the view repeated along the dimensions of a batch, as NumPy broadcasts; nothing is checked."""
        if batch == self.batch:
            return self
        new = len(batch) - len(self.batch)
        same = zip(batch[new:], self.shape, self.strides, strict=False)
        steps = [0] * new + [step if size == n else 0 for n, size, step in same]
        return self._replace(shape=batch + self.shape[-2:], strides=(*steps, *self.strides[-2:]))


def launches(views: Sequence[View], most: int) -> Iterator[tuple[View, ...]]:
    """Return views of three dimensions that together are the given ones: one tuple for each launch.

    Parameters
    ----------
    views : sequence of View
        Views of equal batches. Matrices of the last one that lie in one place, as a stride of 0 says, are results of
        different launches.
    most : int
        The most matrices of a launch.
    """
    batch = views[0].batch
    if not batch:
        # Most products; a tenth of a small one's time.
        yield tuple([View(v.element, (1, *v.shape), (0, *v.strides), v.offset) for v in views])
        return
    kept = [d for d, n in enumerate(batch) if n != 1]
    count, steps = 1, [0] * len(views)
    # Dimensions are joined from the last one on, as long as one stride visits their elements in all views.
    while kept:
        d = kept[-1]
        if not views[-1].strides[d]:
            break
        if count > 1 and any(v.strides[d] != step * count for v, step in zip(views, steps, strict=True)):
            break
        if count == 1:
            steps = [v.strides[d] for v in views]
        count *= batch[d]
        kept.pop()
    for index in product(*(range(batch[d]) for d in kept)):
        starts = [v.offset + sum(i * v.strides[d] for i, d in zip(index, kept, strict=True)) for v in views]
        for first in range(0, count, most):
            size = min(most, count - first)
            yield tuple([
                View(v.element, (size, *v.shape[-2:]), (step, *v.strides[-2:]), start + first * step)
                for v, start, step in zip(views, starts, steps, strict=True)
            ])  # fmt: skip

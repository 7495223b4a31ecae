"""Optimizers of Tensors: stochastic gradient descent, Adam and AdamW, as kernels that change parameters in place.

``spy.optim`` is this package. It reads gradients that ``bwds`` has added to, and computes none.
"""

from slangpy_rt.optim.adam import Adam, AdamW
from slangpy_rt.optim.optimizer import Optimizer
from slangpy_rt.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]

"""Arithmetic of Tensors: operators, comparisons, selections, conversions and reductions, by functions in Slang.

This package chooses element types, writes a Slang function for each operation and pair of types, and calls it as a
user would. It knows no target code and records no gradients. ``arrays/operators.py`` has the methods that users see.
"""

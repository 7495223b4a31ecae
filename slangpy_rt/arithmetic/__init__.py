"""Arithmetic of Tensors: operators, comparisons, selections, conversions and reductions, by functions in Slang.

This package chooses element types, writes a Slang function for each operation and pair of types, and calls it as a
user would; ``grad_tape`` records them. It knows no target code. ``arrays/operators.py`` has the methods of users.
"""

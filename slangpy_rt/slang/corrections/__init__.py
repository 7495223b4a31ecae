"""Faults of the Slang compiler as data: one record each, with the code that repairs what the compiler writes.

A file holds the records of one subject and their code; ``table`` lists all records in the order in which they are
applied, and ``verdicts`` compiles their canaries. What adds a feature to target code is no correction.
"""

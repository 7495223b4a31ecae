"""From Slang text to declarations and target code, by the Slang compiler.

Callers hand in text and get bytes and values of ``slangpy_rt.core.types``; no native pointer leaves this package.
``source`` is what the rest of the package uses. Importing this package loads none of its files: a process that finds
everything in the cache needs neither the compiler nor the files that call it.
"""

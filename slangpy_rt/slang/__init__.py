"""Slang text is compiled here, by the Slang compiler, to declarations (reflection) and target code.

Callers pass text and get bytes and values of ``slangpy_rt.core.types``; no native pointer leaves this package. The
module ``source`` is the interface that the rest of ``slangpy_rt`` uses. Importing this package imports none of its
modules: a process that finds everything in the cache needs neither the compiler nor the modules that call it.
"""

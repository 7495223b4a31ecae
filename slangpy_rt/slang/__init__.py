"""The Slang compiler: its ABI, its sessions and its reflection as frozen values.

Nothing native leaves this package: callers hand in text and get bytes and values of ``slangpy_rt.types``.
Importing it loads no library.
"""

from slangpy_rt.slang.session import Library, Session, library_version

__all__ = ["Library", "Session", "library_version"]

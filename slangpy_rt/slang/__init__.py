"""The Slang compiler: its ABI, its sessions and its reflection as frozen values.

Nothing native leaves this package: callers hand in text and get bytes and values of ``slangpy_rt.core.types``.
Import the parts: ``session``, ``reflect``, ``locate``. Importing this loads none of them, because a warm process
needs only ``locate``.
"""

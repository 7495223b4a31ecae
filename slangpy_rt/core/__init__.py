"""Values and rules that the whole package shares: types, shapes, host data, errors, settings, disk cache, interrupts.

A file here knows the standard library and NumPy, and ``disk_cache`` also filelock and platformdirs. It knows no Slang
compiler, no backend and no open device.
"""

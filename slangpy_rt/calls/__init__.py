"""From a name in a module to a launch: functions, methods, raw kernels, command lists, prepared calls.

A file here may import every package below. It imports neither the public ``Device`` nor other libraries' adapters.
"""

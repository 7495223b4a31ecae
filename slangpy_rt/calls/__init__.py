"""From a name in a module to a launch: functions, methods, raw kernels, command lists, prepared calls.

A file here may use every package below. It knows neither the public ``Device`` nor any other library.
"""

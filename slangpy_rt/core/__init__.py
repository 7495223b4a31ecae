"""Values and rules that the whole package shares: types, element types, shapes, host structs, errors, settings.

A file here knows NumPy and the standard library at most. It knows no Slang compiler, no backend and no open device.
"""

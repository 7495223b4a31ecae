"""One Python value fitted to one Slang parameter: its signature, its binding, and how it reaches a kernel.

A file here knows arrays and declarations. It knows no whole call: the call's shape is given to it, and it never
sees a kernel.
"""

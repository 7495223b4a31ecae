"""An open device: its memory, its queues and streams, its kernels, and what it reports.

A file here knows buffers, bytes and integers. It knows no arrays, no arguments and no Slang functions.
"""

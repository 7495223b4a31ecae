"""Tuning: configurations, how long kernels take with each, and which is the fastest, in memory and on disk.

This package takes runs as functions without parameters. It does not know modules, functions or how a call is made.
"""

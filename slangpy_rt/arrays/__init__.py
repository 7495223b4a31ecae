"""Device memory with a shape: NDBuffer and Tensor, their layouts and views, and their exchange with other libraries.

A file here knows an open device and element types. It knows no parameters of functions and no calls.
"""

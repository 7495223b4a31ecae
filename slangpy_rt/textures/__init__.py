"""Textures and samplers: images on a device, which functions of modules read, sample and write.

This package makes them and copies their texels. It knows no parameters, no calls and no drivers. Importing it loads
nothing; ``Texture`` and ``Device.create_sampler`` are its face.
"""

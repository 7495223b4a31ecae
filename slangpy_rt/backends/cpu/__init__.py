"""The CPU backend: Slang emits C++, g++, clang++ or zig compiles it, and a pool of threads runs it."""

"""The demo behind ``python -m slangpy_rt demo``. Importing this imports none of the packages it needs."""

"""What pyproject.toml calls dynamic; the rest of the package's metadata stands there."""

from project_links import metadata  # in codegen/tools, the folder of the build backend
from setuptools import setup

setup(**metadata())

"""Settings of the documentation site. Sphinx runs in the root of the repository, so that links keep their targets:

    sphinx-build -W -c docs . build/site

``codegen/tools/build_site.py`` does so for a site of several versions.
Pages are Markdown, which code hosts show as well; the reference of Python comes from docstrings.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pygments.lexers import HLSLShaderLexer, TextLexer

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "codegen")]

import slangpy_rt as spy  # noqa: E402  from this tree

project = "slangpy_rt"
author = "the slangpy_rt contributors"
copyright = author
version = release = spy.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**.md"]
exclude_patterns = ["build", ".venv"]

myst_heading_anchors = 4
myst_links_external_new_tab = False
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
# Names as users know them.
autodoc_type_aliases = {"ArrayLike": "ArrayLike", "npt.ArrayLike": "ArrayLike", "DeviceCore": "slangpy_rt.Device"}
napoleon_google_docstring = False
napoleon_use_rtype = False
# Of a text that a lexer does not know in full, what it knows is coloured. A word of a docstring's types, such as
# dtype, may be a member of several classes, which is no reference.
suppress_warnings = ["misc.highlighting_failure", "ref.python"]

html_theme = "furo"
html_title = f"slangpy_rt {version}"
html_extra_path = ["site"]  # index.html, which leads from the root of the site to docs/index.html
html_static_path = ["static"]
html_js_files = ["versions.js"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def setup(app: Any) -> None:
    """Register what Pygments does not know: Slang, which is near to HLSL, and drawings, which are shown as text."""
    app.add_lexer("slang", HLSLShaderLexer)
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", add_navigation)


def add_navigation(app: Any, page: str, text: list[str]) -> None:
    """Give the index its table of contents, from the links that a reader of the file sees."""
    if page == root_doc:
        for paragraph in text[0].split("\n\n"):
            if group := re.match(r"\*\*(.*?):\*\*", paragraph):
                pages = re.findall(r"\]\((.*?)\)", paragraph) + (["design/*"] if group[1] == "Inside" else [])
                listed = "\n".join(pages)
                text[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {group[1]}\n\n{listed}\n```\n"

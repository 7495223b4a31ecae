"""Links of the package's metadata: its project URLs, and README's links and pictures, which an index shows elsewhere.

``address`` below ``[tool.slangpy_rt]`` in pyproject.toml is the one place that names where the project is. Files are
then read at the tag of the version, as ``ADDRESS/blob/vVERSION/FILE`` or ``ADDRESS/raw/vVERSION/FILE``, which GitHub
and GitLab answer. Without an address the metadata has no URLs, and README is written without what leads nowhere: a
link keeps its text, and a picture is replaced by its description. No address is guessed from git.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from setuptools.compat.py310 import tomllib  # Python 3.10 has no reader of its own

_ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([^()\s]+)\)")


def metadata() -> dict[str, Any]:
    """Return the arguments of ``setuptools.setup`` that pyproject.toml calls dynamic."""
    read = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    address = checked_address(read["tool"]["slangpy_rt"]["address"])
    tag = f"v{read['project']['version']}"
    return {
        "long_description": with_links((_ROOT / "README.md").read_text(encoding="utf-8"), address, tag),
        "long_description_content_type": "text/markdown",
        "project_urls": project_urls(address, tag),
    }


def checked_address(address: str) -> str:
    """Return an address that files can be named below, or ``""``; anything else raises ``ValueError``."""
    parts = urlsplit(address)
    whole = parts.scheme == "https" and parts.netloc and parts.path.strip("/") and not (parts.query or parts.fragment)
    if address and (not whole or re.search(r"[\s()<>]", address)):
        raise ValueError(
            f"pyproject.toml: [tool.slangpy_rt] address is {address!r}; it has to be empty, or the page of the "
            "repository, as in https://HOST/OWNER/NAME."
        )
    return address.rstrip("/")


def project_urls(address: str, tag: str) -> dict[str, str]:
    """Return label → URL."""
    if not address:
        return {}
    return {
        "Homepage": address,
        "Documentation": f"{address}/blob/{tag}/docs/index.md",
        "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def with_links(text: str, address: str, tag: str) -> str:
    """Return Markdown whose links and pictures work outside the tree; blocks of code stay as they are."""

    def replaced(found: re.Match[str]) -> str:
        picture, shown, target = found.groups()
        if urlsplit(target).scheme or target.startswith("#"):
            return found[0]
        if not address:
            return f"*{shown}*" if picture else shown
        return f"{picture}[{shown}]({address}/{'raw' if picture else 'blob'}/{tag}/{target})"

    pieces, begin = [], 0
    for fence in [*_FENCE.finditer(text), None]:
        pieces.append(_LINK.sub(replaced, text[begin : fence.start() if fence else None]))
        if fence:
            pieces.append(fence[0])
            begin = fence.end()
    return "".join(pieces)

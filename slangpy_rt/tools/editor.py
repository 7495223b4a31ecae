"""The command ``editor``: settings by which the Slang extension of VS Code finds the Slang files of this package."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from slangpy_rt.core.errors import SlangPyRtError
from slangpy_rt.slang.locate import shader_directory

_PATHS = "slang.additionalSearchPaths"


def editor(args: argparse.Namespace) -> int:
    """Add the folder of our Slang files to a workspace's settings; other settings stay as they are."""
    ours = {_PATHS: [shader_directory()]}
    if args.print:
        print(json.dumps(ours, indent=4))
        return 0
    file: Path = args.folder / ".vscode" / "settings.json"
    by_hand = f"add to it by hand:\n{json.dumps(ours, indent=4)}"
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else "{}"
        # VS Code allows comments there, which would be lost.
        settings = json.loads(text)
        paths = settings.setdefault(_PATHS, [])
        if ours[_PATHS][0] not in paths:
            paths.append(ours[_PATHS][0])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(settings, indent=4) + "\n", encoding="utf-8")
    except (ValueError, AttributeError) as error:
        raise SlangPyRtError(f"editor: '{file}' is not plain JSON ({error}); {by_hand}") from None
    except OSError as error:
        raise SlangPyRtError(f"editor: cannot write '{file}' ({error.strerror}); {by_hand}") from error
    print(file)
    return 0

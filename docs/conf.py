"""Sphinx settings: `make docs` reads the Markdown pages of this folder and writes HTML to `_build`."""

import importlib.metadata

project = "elmokit"
author = "The elmokit developers"
copyright = f"2026, {author}; Apache-2.0"
release = importlib.metadata.version("elmokit")
extensions = ["myst_parser"]
html_theme = "furo"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
# Links that leave this folder (to ARCHITECTURE.md) work on the repository's own pages, not in the HTML.
suppress_warnings = ["myst.xref_missing"]

"""Sphinx settings: `make docs` reads the Markdown pages of this folder and writes HTML to `_build`.

The reference is made, not written: Python's from docstrings (autodoc), that of the commands from their help.
"""

import importlib.metadata
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from command_reference import describe_commands  # noqa: E402
from sphinx.pycode import ModuleAnalyzer  # noqa: E402

project = "elmokit"
author = "The elmokit developers"
copyright = f"2026, {author}; Apache-2.0"
release = importlib.metadata.version("elmokit")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"elmokit {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
# Links that leave this folder (to ARCHITECTURE.md) work on the repository's own pages, not in the HTML.
suppress_warnings = ["myst.xref_missing"]

default_role = "literal"  # docstrings write `code` as Markdown does
autodoc_mock_imports = ["flair", "ray", "spacy"]  # not installed where the site is made
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"  # beside the explanation of an argument: signatures stay short
autodoc_typehints_description_target = "documented_params"
napoleon_custom_sections = ["Returns"]  # words on what comes back, where napoleon would read "TYPE: words"
python_use_unqualified_type_names = True
copybutton_selector = "div:not(.highlight-output, .highlight-text) > div.highlight > pre"  # what is typed, not printed
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def setup(app):
    app.connect("source-read", insert_commands)
    ModuleAnalyzer.analyze = forget_overloads(ModuleAnalyzer.analyze)


def insert_commands(app, name, source):
    if name == "reference/commands":
        source[0] = source[0].replace("{{ commands }}", describe_commands())


def forget_overloads(analyze):
    """One signature per function: to a reader, overloads for type checkers are the same thing four times."""

    def analyze_without(self):
        analyze(self)
        self.overloads = {}

    return analyze_without

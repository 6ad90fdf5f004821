"""A model for machines without torch: `elmo export` writes a folder that numpy and onnxruntime run, or a browser.

- `folder`: what is in the folder; `export_model` writes it
- `graphs`: the network as two ONNX graphs
- `runner`: text in, vectors out; becomes `run_elmo.py`
- `bundling`: the runner and what it uses of the package, as that one file
- `rules`: the rules that split text, as data for it and for the page
- `patterns`: their patterns, for languages without the package `regex`
- `page/`: the same in JavaScript, under the explorer's views
"""

from __future__ import annotations

from elmokit.export.folder import export_model

__all__ = ["export_model"]

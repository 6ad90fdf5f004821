"""ELMo in Hugging Face's transformers: import this, and its Auto classes, pipelines and Trainer know the type `elmo`.

- `config`: `ElmoConfig`, whose file is that of a model of elmokit, so one folder serves both libraries
- `model`: `ElmoModel`, and `ElmoForTokenClassification` and `ElmoForSequenceClassification` on top of it
- `tokenizer`: `ElmoTokenizer`, words in, ids (sentences, words, characters) out

No remote code: whoever loads such a model has elmokit installed and imports this module first. sentence-transformers'
`Transformer` and `Pooling`, and with them MTEB, work on top without anything more. One code for transformers 4.57
and 5.

    pip install 'elmokit[transformers]'
"""

from __future__ import annotations

from elmokit.errors import MissingExtra

try:
    import transformers  # pyright: ignore[reportMissingImports]
    from packaging.version import Version
except ModuleNotFoundError as problem:
    raise MissingExtra("transformers is not installed: pip install 'elmokit[transformers]'") from problem

OLDEST = "4.57"
if Version(transformers.__version__).release < Version(OLDEST).release:
    raise MissingExtra(
        f"expected transformers {OLDEST} or later, found {transformers.__version__}: "
        "pip install --upgrade 'elmokit[transformers]'"
    )

from elmokit.integrations.transformers.config import ElmoConfig  # noqa: E402
from elmokit.integrations.transformers.model import (  # noqa: E402
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
)
from elmokit.integrations.transformers.tokenizer import ElmoTokenizer  # noqa: E402

__all__ = [
    "ElmoConfig",
    "ElmoForSequenceClassification",
    "ElmoForTokenClassification",
    "ElmoModel",
    "ElmoTokenizer",
]

# `exist_ok`: a notebook that reloads this module registers its new classes.
transformers.AutoConfig.register(ElmoConfig.model_type, ElmoConfig, exist_ok=True)
transformers.AutoTokenizer.register(ElmoConfig, slow_tokenizer_class=ElmoTokenizer, exist_ok=True)
transformers.AutoModel.register(ElmoConfig, ElmoModel, exist_ok=True)
transformers.AutoModelForTokenClassification.register(ElmoConfig, ElmoForTokenClassification, exist_ok=True)
transformers.AutoModelForSequenceClassification.register(ElmoConfig, ElmoForSequenceClassification, exist_ok=True)

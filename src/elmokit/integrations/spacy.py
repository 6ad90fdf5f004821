"""The component `elmo` for spaCy's pipelines, and what it shares with the taggers of `spacy_tagger.py`.

Documents arrive, split into tokens by spaCy; they leave with a vector per token in `doc.tensor`. The sentences of a
whole batch of documents are read together. A sentence is one of `doc.sents`, and where no component has found any, the
whole document; tokens of white space are no words and have zeros for vectors.

spaCy finds components by the entry points of a package, so `nlp.add_pipe("elmo")` needs no import. It loads them all
whenever a pipeline is made, also one without them: what takes long to import is imported when it is used.

`doc.tensor` goes with a document wherever spaCy stores it, except in a `DocBin`. Hooks, by which `.vector` and
`.similarity` know about it, are functions, and stay behind: `attach` brings them back.

    pip install 'elmokit[spacy]'

Shapes: T tokens of a document, W words among them, L layers, D width of a layer.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmokit.errors import InputError, MissingExtra

try:
    from spacy.language import Language  # pyright: ignore[reportMissingImports]
    from spacy.pipeline import Pipe  # pyright: ignore[reportMissingImports]
    from spacy.tokens import Doc, Span, Token  # pyright: ignore[reportMissingImports]
    from spacy.util import minibatch  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as problem:
    raise MissingExtra("spaCy is not installed: pip install 'elmokit[spacy]'") from problem

if TYPE_CHECKING:
    from elmokit.embed.embedder import Embedder

__all__ = ["ElmoVectors", "StoredPipe", "attach", "list_sentences", "make_elmo"]

ATTRIBUTES = ("elmo_layers", "elmo_vectors")  # of `doc._`
for attribute in ATTRIBUTES:
    if not Doc.has_extension(attribute):
        Doc.set_extension(attribute, default=None)


def attach(doc: Doc) -> Doc:
    """The same document; its vectors and similarities, and those of its spans and tokens, are ELMo's from now on.

    For documents that were stored or came from another process: `elmo` does it for those that it reads.

    Arguments:
        doc: with vectors in `doc.tensor`, or in `doc._.elmo_vectors` (`keeps_vectors`), where a `DocBin` has them.
    """
    if len(doc.tensor) != len(doc) or doc.tensor.ndim != 2:
        stored = doc._.elmo_vectors
        if stored is not None and len(stored) == len(doc):  # else tokens were merged or split since
            doc.tensor = stored
        elif not len(doc):
            doc.tensor = np.zeros((0, 0), np.float32)
        else:
            raise InputError(
                f"expected a document with a vector for each of its {len(doc)} tokens in doc.tensor, found the shape "
                f'{doc.tensor.shape}: read it with nlp.get_pipe("elmo")(doc); a DocBin leaves doc.tensor out, and with '
                "store_user_data=True keeps what `elmo` adds with keeps_vectors=true"
            )
    doc.user_hooks |= HOOKS | {"vector_norm": _measure_length}  # a document would remember the length of another vector
    doc.user_token_hooks |= HOOKS
    doc.user_span_hooks |= HOOKS  # no "vector_norm": spaCy 3.8 would take the vector for it
    return doc


class StoredPipe(Pipe):
    """What the components share: batches of documents, and storing a model with a pipeline.

    A pipeline's folder, or its bytes, hold a copy of the model, unless it is an installed one, which goes by its name.
    """

    name: str

    def annotate(self, docs: Sequence[Doc]) -> None:
        """Write what the model says into the documents."""
        raise NotImplementedError

    def __call__(self, doc: Doc) -> Doc:
        """The document, annotated."""
        self.annotate([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """The documents in their order, annotated in batches of this many."""
        handle_error = self.get_error_handler()
        for batch in minibatch(stream, size=batch_size):
            docs = list(batch)
            try:
                self.annotate(docs)
            except Exception as problem:  # spaCy's protocol: whoever set the handler decides
                handle_error(self.name, self, docs, problem)
            else:
                yield from docs

    def to_disk(self, path: str | Path, *, exclude: Sequence[str] = ()) -> None:
        """Write the model into a folder, if it has to travel along."""
        raise NotImplementedError

    def from_disk(self, path: str | Path, *, exclude: Sequence[str] = ()) -> Any:  # noqa: ANN401
        """Take the model of this folder, if there is one."""
        raise NotImplementedError

    def to_bytes(self, *, exclude: Sequence[str] = ()) -> bytes:
        """What `to_disk` writes, as a zip archive; nothing where it writes nothing."""
        from elmokit.io.archive import pack

        with tempfile.TemporaryDirectory(prefix="elmokit-") as temporary:
            folder = Path(temporary, "model")
            self.to_disk(folder)
            return pack(folder) if folder.exists() else b""

    def from_bytes(self, data: bytes, *, exclude: Sequence[str] = ()) -> Any:  # noqa: ANN401
        """Take the model of what `to_bytes` gave."""
        from elmokit.io.archive import unpack

        with tempfile.TemporaryDirectory(prefix="elmokit-", ignore_cleanup_errors=True) as temporary:
            folder, packed = Path(temporary, "model"), Path(temporary, "model.zip")
            if data:
                packed.write_bytes(data)
                unpack(packed, folder)
            return self.from_disk(folder)


class ElmoVectors(StoredPipe):
    """The component `elmo`: a vector for each token, in `doc.tensor`.

    Arguments:
        name: of the component in its pipeline.
        model: a model's name, a folder, a `.zip` or a hub id. One that is here is opened at once; another when it is
            first needed, because a stored pipeline brings its own copy.
        layers: `"average"`, `"top"`, `"mix"` or a layer number, as for `Embedder.embed`.
        keeps_layers: also put all layers (L, T, D) into `doc._.elmo_layers`.
        keeps_vectors: also put the vectors into `doc._.elmo_vectors`, where a `DocBin` with user data stores them.
        precision: `"float32"`, `"bfloat16"` (on CUDA) or `"int8"` (on a CPU).
        device: where to compute; on the GPU if there is one, unless told.
    """

    def __init__(
        self,
        name: str = "elmo",
        *,
        model: str = "en-small",
        layers: str | int = "average",
        keeps_layers: bool = False,
        keeps_vectors: bool = False,
        precision: str = "float32",
        device: str | None = None,
    ) -> None:
        from elmokit.io import model_names

        if layers == "all":
            raise InputError(
                'doc.tensor has one vector per token: use layers="average", "top", "mix" or a layer number, and '
                "keeps_layers=true for all layers in doc._.elmo_layers"
            )
        self.name = name
        self.model = model
        self.layers = layers
        self.keeps_layers = keeps_layers
        self.keeps_vectors = keeps_vectors
        self.precision = precision
        self.device = device
        self._is_installed = model in model_names()
        self._embedder: Embedder | None = None
        if self._is_installed or Path(model).exists():
            self._open(model)

    @property
    def embedder(self) -> Embedder:
        """The model."""
        return self._embedder or self._open(self.model)

    def annotate(self, docs: Sequence[Doc]) -> None:
        """Put vectors into `doc.tensor`."""
        embedder = self.embedder
        sentences = [list_sentences(doc) for doc in docs]
        words = [[token.text for token in sentence] for doc in sentences for sentence in doc]
        arrays = iter(embedder.embed(words, layers="all" if self.keeps_layers else self.layers))
        for doc, of_doc in zip(docs, sentences, strict=True):
            places = [token.i for sentence in of_doc for token in sentence]
            found = [next(arrays) for _ in of_doc]
            if self.keeps_layers:
                empty_LWD = np.zeros((embedder.num_layers, 0, embedder.dim), np.float32)
                layers_LWD = np.concatenate([empty_LWD, *found], axis=1)
                doc._.elmo_layers = _spread(layers_LWD, places, len(doc))
                found = [self._choose_layers(layers_LWD)]
            vectors_WD = np.concatenate([np.zeros((0, embedder.dim), np.float32), *found])
            doc.tensor = _spread(vectors_WD, places, len(doc))
            if self.keeps_vectors:
                doc._.elmo_vectors = doc.tensor
            attach(doc)

    def to_disk(self, path: str | Path, *, exclude: Sequence[str] = ()) -> None:
        """Write the model into a folder, unless it is an installed one."""
        from elmokit.io.atomic import new_folder

        if self._is_installed:
            shutil.rmtree(Path(path, "model"), ignore_errors=True)  # of a pipeline that stood here before
            return
        with new_folder(Path(path), replaces=["model"]) as partial:
            self.embedder.elmo.save_pretrained(partial / "model")

    def from_disk(self, path: str | Path, *, exclude: Sequence[str] = ()) -> ElmoVectors:
        """Take the model of this folder, if there is one."""
        if Path(path, "model").exists():
            self._is_installed = False
            self._open(str(Path(path, "model")))
        return self

    def _open(self, source: str) -> Embedder:
        from elmokit.embed.embedder import Embedder
        from elmokit.embed.layers import check_layers

        embedder = Embedder(source, device=self.device, precision=self.precision)  # pyright: ignore[reportArgumentType]
        check_layers(self.layers, embedder.num_layers)
        self._embedder = embedder
        return embedder

    def _choose_layers(self, layers_LWD: np.ndarray) -> np.ndarray:
        import torch

        from elmokit.embed.layers import choose_layers

        with torch.inference_mode():
            mix = self.embedder.elmo.stored_mix
            (vectors_WD,) = choose_layers([torch.from_numpy(layer) for layer in layers_LWD], self.layers, mix=mix)
        return vectors_WD.numpy()


@Language.factory(
    "elmo",
    assigns=["doc.tensor"],
    default_config={
        "model": "en-small",
        "layers": "average",
        "keeps_layers": False,
        "keeps_vectors": False,
        "precision": "float32",
        "device": None,
    },
)
def make_elmo(
    nlp: Language,
    name: str,
    model: str,
    layers: str | int,
    keeps_layers: bool,
    keeps_vectors: bool,
    precision: str,
    device: str | None,
) -> ElmoVectors:
    """The component `elmo` of a pipeline's settings; spaCy calls this."""
    return ElmoVectors(
        name,
        model=model,
        layers=layers,
        keeps_layers=keeps_layers,
        keeps_vectors=keeps_vectors,
        precision=precision,
        device=device,
    )


def list_sentences(doc: Doc) -> list[list[Token]]:
    """The sentences of a document, without tokens of white space; none that is empty."""
    spans = doc.sents if doc.has_annotation("SENT_START") else [doc]
    sentences = ([token for token in span if not token.is_space] for span in spans)
    return [sentence for sentence in sentences if sentence]


def _spread(vectors: np.ndarray, places: Sequence[int], num_tokens: int) -> np.ndarray:
    """The vectors (…, W, D) of words at the places of their tokens (…, T, D), zeros elsewhere."""
    spread = np.zeros((*vectors.shape[:-2], num_tokens, vectors.shape[-1]), np.float32)
    spread[..., places, :] = vectors
    return spread


def _find_vector(thing: Doc | Span | Token) -> np.ndarray:
    """The vector (D,) of a token, or the mean over those tokens of a span or a document that have one."""
    if isinstance(thing, Token):
        return thing.doc.tensor[thing.i]
    rows_TD = thing.tensor
    rows_WD = rows_TD[rows_TD.any(axis=1)]
    return rows_WD.mean(axis=0) if len(rows_WD) else np.zeros(rows_TD.shape[-1], np.float32)


def _has_vector(thing: Doc | Span | Token) -> bool:
    return bool(_find_vector(thing).any())


def _measure_length(thing: Doc | Span | Token) -> float:
    return float(np.linalg.norm(_find_vector(thing)))


def _compare(thing: Doc | Span | Token, other: Any) -> float:  # noqa: ANN401
    """The cosine of two vectors, 0 where there is none; spaCy would say 1 of equal words, whatever their sentences."""
    from elmokit.embed.layers import compute_cosines

    first, second = _find_vector(thing), np.asarray(other.vector)
    if first.shape != second.shape:
        raise InputError(
            f"expected two vectors of one width, found {len(first)} and {len(second)}: compare what the same `elmo` "
            "has read; a document that was stored needs elmokit.integrations.spacy.attach(doc) first"
        )
    return compute_cosines(first, second).item()


HOOKS: dict[str, Callable] = {"vector": _find_vector, "has_vector": _has_vector, "similarity": _compare}

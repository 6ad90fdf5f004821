"""Components for spaCy's pipelines: ELMo vectors, and the taggers that `elmo task train tag` makes.

Documents arrive, split into tokens by spaCy; they leave with vectors in `doc.tensor` (`elmo`), tags (`elmo_tagger`) or
entities (`elmo_ner`). The sentences of a whole batch of documents are read together. A sentence is one of `doc.sents`,
and where no component has found any, the whole document; tokens of white space are no words and have zeros for vectors.

spaCy finds the components by the entry points of this package, `nlp.add_pipe("elmo")`, and to do so imports this file
whenever a pipeline is made, also one without them. So what takes long to import is imported when it is used.

`doc.tensor` goes with a document wherever spaCy stores it, except in a `DocBin`. Hooks, by which `.vector` and
`.similarity` know about it, are functions, and stay behind: `attach` brings them back.

    pip install 'elmokit[spacy]'

Shapes: T tokens of a document, W words among them, L layers, D width of a layer.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmokit.errors import InputError, MissingExtra

try:
    from spacy.language import Language  # pyright: ignore[reportMissingImports]
    from spacy.parts_of_speech import IDS as UNIVERSAL_TAGS  # pyright: ignore[reportMissingImports]
    from spacy.pipeline import Pipe  # pyright: ignore[reportMissingImports]
    from spacy.scorer import Scorer, get_ner_prf  # pyright: ignore[reportMissingImports]
    from spacy.tokens import Doc, Span, Token  # pyright: ignore[reportMissingImports]
    from spacy.util import minibatch  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as problem:
    raise MissingExtra("spaCy is not installed: pip install 'elmokit[spacy]'") from problem

if TYPE_CHECKING:
    from elmokit.embed.embedder import Embedder
    from elmokit.tasks.tag import Tagger

__all__ = ["ElmoTagger", "ElmoVectors", "attach", "make_elmo", "make_ner", "make_tagger"]

ATTRIBUTES = ("elmo_layers", "elmo_vectors")  # of `doc._`
for attribute in ATTRIBUTES:
    if not Doc.has_extension(attribute):
        Doc.set_extension(attribute, default=None)


def attach(doc: Doc) -> Doc:
    """The same document, whose `.vector`, `.has_vector` and `.similarity`, and those of its spans and tokens, are ELMo's.

    For documents that were stored or came from another process: `elmo` does it for those that it reads.

    Arguments:
        doc: with vectors in `doc.tensor`, or in `doc._.elmo_vectors` (`keeps_vectors`), where a `DocBin` has them.
    """
    if len(doc.tensor) != len(doc) or doc.tensor.ndim != 2:
        stored = doc._.elmo_vectors
        if stored is not None:
            doc.tensor = stored
        elif len(doc):
            raise InputError(
                f"expected a document with a vector for each of its {len(doc)} tokens in doc.tensor, found the shape "
                f'{doc.tensor.shape}: read it with nlp.get_pipe("elmo")(doc); a DocBin leaves doc.tensor out, and with '
                "store_user_data=True keeps what `elmo` adds with keeps_vectors=true"
            )
    doc.user_hooks |= HOOKS | {"vector_norm": _measure_length}  # a document would remember the length of another vector
    doc.user_token_hooks |= HOOKS
    doc.user_span_hooks |= HOOKS  # no "vector_norm": spaCy 3.8 would take the vector for it
    return doc


class _StoredPipe(Pipe):
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
        with tempfile.TemporaryDirectory(prefix="elmokit-") as temporary:
            folder, packed = Path(temporary, "model"), Path(temporary, "model.zip")
            self.to_disk(folder)
            if not folder.exists():
                return b""
            with zipfile.ZipFile(packed, "w") as archive:
                for file in filter(Path.is_file, sorted(folder.rglob("*"))):
                    archive.write(file, file.relative_to(folder))
            return packed.read_bytes()

    def from_bytes(self, data: bytes, *, exclude: Sequence[str] = ()) -> Any:  # noqa: ANN401
        """Take the model of what `to_bytes` gave."""
        from elmokit.io.archive import unpack

        with tempfile.TemporaryDirectory(prefix="elmokit-", ignore_cleanup_errors=True) as temporary:
            folder, packed = Path(temporary, "model"), Path(temporary, "model.zip")
            if data:
                packed.write_bytes(data)
                unpack(packed, folder)
            return self.from_disk(folder)


class ElmoVectors(_StoredPipe):
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
        sentences = [_list_sentences(doc) for doc in docs]
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
        if not self._is_installed:
            self.embedder.elmo.save_pretrained(path)

    def from_disk(self, path: str | Path, *, exclude: Sequence[str] = ()) -> ElmoVectors:
        """Take the model of this folder, if there is one."""
        if Path(path).exists():
            self._is_installed = False
            self._open(str(path))
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


class ElmoTagger(_StoredPipe):
    """The components `elmo_tagger` and `elmo_ner`: what a tagger says of each token, as tags or as entities.

    Arguments:
        name: of the component in its pipeline.
        task: the folder that `elmo task train tag` wrote. Where it is not here, it is opened when it is first needed,
            because a stored pipeline brings its own copy.
        finds_entities: the labels are of spans, which become `doc.ents`; entities that are there already stay, and keep
            others off their tokens. Else labels become `token.pos_` if all are universal parts of speech, and
            `token.tag_` if not.
        elmo: the source of the task's ELMo model, where it is not found under the name it was trained with.
        device: where to compute; on the GPU if there is one, unless told.
    """

    def __init__(
        self,
        name: str = "elmo_tagger",
        *,
        task: str,
        finds_entities: bool = False,
        elmo: str | None = None,
        device: str | None = None,
    ) -> None:
        self.name = name
        self.task = task
        self.finds_entities = finds_entities
        self.elmo = elmo
        self.device = device
        self._tagger: Tagger | None = None
        if Path(task).exists():
            self._open(task, elmo)

    @property
    def tagger(self) -> Tagger:
        """The task model."""
        return self._tagger or self._open(self.task, self.elmo)

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags, or the kinds of entities."""
        from elmokit.tasks.scores.spans import spans_of

        labels = self.tagger.labels
        return tuple(dict.fromkeys(span.kind for span in spans_of(labels)) if self.finds_entities else labels)

    @property
    def attribute(self) -> str:
        """Which attribute of a token the labels become: `"tag"` or `"pos"`."""
        return "pos" if set(self.tagger.labels) <= UNIVERSAL_TAGS.keys() else "tag"

    def annotate(self, docs: Sequence[Doc]) -> None:
        """Set tags or entities."""
        from elmokit.tasks.data.columns import TaggedSentence

        sentences = [_list_sentences(doc) for doc in docs]
        words = [tuple(token.text for token in sentence) for of_doc in sentences for sentence in of_doc]
        predictions = iter(self.tagger.predict_all([TaggedSentence(words=each) for each in words]))
        write = self._set_entities if self.finds_entities else self._set_tags
        for doc, of_doc in zip(docs, sentences, strict=True):
            write(doc, [(sentence, next(predictions)) for sentence in of_doc])

    def score(self, examples: Iterable[Any], **_: object) -> dict[str, Any]:
        """Scores for `nlp.evaluate`, which passes settings of other components too."""
        return get_ner_prf(examples) if self.finds_entities else Scorer.score_token_attr(examples, self.attribute)

    def to_disk(self, path: str | Path, *, exclude: Sequence[str] = ()) -> None:
        """Write the task model into a folder."""
        self.tagger.save(path)

    def from_disk(self, path: str | Path, *, exclude: Sequence[str] = ()) -> ElmoTagger:
        """Take the task model of this folder."""
        self._open(str(path), self.elmo)
        return self

    def _open(self, folder: str, elmo: str | None) -> Tagger:
        from elmokit.tasks.base import load_task
        from elmokit.tasks.tag import Tagger

        tagger = load_task(folder, elmo=elmo, device=self.device)
        if not isinstance(tagger, Tagger):
            raise InputError(f"{folder}: expected a tagger, found a task model of {tagger.name!r}: elmo task train tag")
        if tagger.has_spans != self.finds_entities:
            found, right = ("of spans", "elmo_ner") if tagger.has_spans else ("of single words", "elmo_tagger")
            raise InputError(f'{folder}: its labels are {found}: use nlp.add_pipe("{right}") for it')
        self._tagger = tagger
        return tagger

    def _set_tags(self, doc: Doc, tagged: Iterable[tuple[Sequence[Token], Sequence[str]]]) -> None:
        attribute, space = (f"{self.attribute}_", {"pos": "SPACE", "tag": "_SP"}[self.attribute])
        for token in doc:
            if token.is_space:
                setattr(token, attribute, space)  # as spaCy's own taggers do
        for sentence, labels in tagged:
            for token, label in zip(sentence, labels, strict=True):
                setattr(token, attribute, label)

    def _set_entities(self, doc: Doc, tagged: Iterable[tuple[Sequence[Token], Sequence[str]]]) -> None:
        from elmokit.tasks.scores.spans import spans_of

        taken = {token.i for entity in doc.ents for token in entity}
        entities = list(doc.ents)
        for sentence, labels in tagged:
            for kind, first, last in spans_of(labels):
                start, end = sentence[first].i, sentence[last].i + 1
                if taken.isdisjoint(range(start, end)):
                    entities.append(Span(doc, start, end, label=kind or "ENT"))  # where there is one kind, without name
        doc.set_ents(entities)


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


TASK_SETTINGS = {"task": None, "elmo": None, "device": None}


@Language.factory("elmo_tagger", assigns=["token.tag", "token.pos"], default_config=TASK_SETTINGS)
def make_tagger(nlp: Language, name: str, task: str | None, elmo: str | None, device: str | None) -> ElmoTagger:
    """The component `elmo_tagger` of a pipeline's settings; spaCy calls this."""
    return ElmoTagger(name, task=_check_named(task, "elmo_tagger"), elmo=elmo, device=device)


@Language.factory("elmo_ner", assigns=["doc.ents", "token.ent_iob", "token.ent_type"], default_config=TASK_SETTINGS)
def make_ner(nlp: Language, name: str, task: str | None, elmo: str | None, device: str | None) -> ElmoTagger:
    """The component `elmo_ner` of a pipeline's settings; spaCy calls this."""
    return ElmoTagger(name, task=_check_named(task, "elmo_ner"), finds_entities=True, elmo=elmo, device=device)


def _check_named(task: str | None, component: str) -> str:
    if task is None:
        raise InputError(
            "expected the folder of a task model that `elmo task train tag` wrote, found none: "
            f'nlp.add_pipe("{component}", config={{"task": "FOLDER"}})'
        )
    return task


def _list_sentences(doc: Doc) -> list[list[Token]]:
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
    """The cosine of two vectors, 0 where there is none; spaCy itself says 1 of equal words, whatever their sentences."""
    from elmokit.embed.layers import compute_cosines

    first, second = _find_vector(thing), np.asarray(other.vector)
    if first.shape != second.shape:
        raise InputError(
            f"expected two vectors of one width, found {len(first)} and {len(second)}: compare what the same `elmo` "
            "has read; a document that was stored needs elmokit.integrations.spacy.attach(doc) first"
        )
    return compute_cosines(first, second).item()


HOOKS: dict[str, Callable] = {"vector": _find_vector, "has_vector": _has_vector, "similarity": _compare}

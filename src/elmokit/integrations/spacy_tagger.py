"""The components `elmo_tagger` and `elmo_ner` for spaCy's pipelines: what `elmo task train tag` has learned.

Documents arrive, split into tokens by spaCy; they leave with tags or entities. Sentences, batches, and storing a model
with its pipeline are those of `spacy.py`, and so is what is imported late.

    pip install 'elmokit[spacy]'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.errors import InputError, MissingExtra
from elmokit.integrations.spacy import StoredPipe, list_sentences

try:
    from spacy.language import Language  # pyright: ignore[reportMissingImports]
    from spacy.parts_of_speech import IDS as UNIVERSAL_TAGS  # pyright: ignore[reportMissingImports]
    from spacy.scorer import Scorer, get_ner_prf  # pyright: ignore[reportMissingImports]
    from spacy.tokens import Doc, Span, Token  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as problem:
    raise MissingExtra("spaCy is not installed: pip install 'elmokit[spacy]'") from problem

if TYPE_CHECKING:
    from elmokit.tasks.tag import Tagger

__all__ = ["ElmoTagger", "make_ner", "make_tagger"]


class ElmoTagger(StoredPipe):
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
        """The tags, or the kinds of entities; none before the model is open, when spaCy already asks."""
        from elmokit.tasks.scores.spans import spans_of

        labels = () if self._tagger is None else self._tagger.labels
        return tuple(dict.fromkeys(span.kind for span in spans_of(labels)) if self.finds_entities else labels)

    @property
    def attribute(self) -> str:
        """Which attribute of a token the labels become: `"tag"` or `"pos"`."""
        return "pos" if set(self.tagger.labels) <= UNIVERSAL_TAGS.keys() else "tag"

    def annotate(self, docs: Sequence[Doc]) -> None:
        """Set tags or entities."""
        from elmokit.tasks.data.columns import TaggedSentence

        sentences = [list_sentences(doc) for doc in docs]
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

"""Our own routes about predictions: the language model, and task models."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from elmokit.language_model.model import LanguageModel
from elmokit.serve.errors import RequestError
from elmokit.serve.models import ServedModel, Shelf
from elmokit.serve.schemas import PredictRequest, SubstitutesRequest, TagRequest

__all__ = ["make_language_router"]


def make_language_router(shelf: Shelf) -> APIRouter:
    """`/predict`, `/substitutes` and `/tag`."""
    router = APIRouter(tags=["predictions"])

    @router.post("/predict")
    async def predict(asked: PredictRequest) -> dict[str, Any]:
        """The likeliest words after a text and before it, and how probable each of its own words was."""
        model = shelf.find_model(asked.model)
        language_model = _need_predictions(model)
        words = [word.text for word in (await model.split_texts([asked.text]))[0]]

        def ask() -> dict[str, Any]:
            score = language_model.score(words)
            return {
                "next": _pair(language_model.predict(words, top=asked.top)),
                "previous": _pair(language_model.predict(words, top=asked.top, direction="backward")),
                "words": [
                    {"word": each.word, "forward": each.forward, "backward": each.backward} for each in score.words
                ],
                "end": score.end,
                "begin": score.begin,
            }

        return await model.batcher.run(ask, len(words) + 1)

    @router.post("/substitutes")
    async def substitutes(asked: SubstitutesRequest) -> dict[str, Any]:
        """Words that could stand in the place of one."""
        model = shelf.find_model(asked.model)
        language_model = _need_predictions(model)
        words = [word.text for word in (await model.split_texts([asked.text]))[0]]
        options = {"top": asked.top, "occurrence": asked.occurrence}
        found = await model.batcher.run(
            lambda: language_model.substitutes(words, asked.word, **options), len(words) + 1
        )
        return {"words": words, "substitutes": _pair(found)}

    @router.post("/tag", include_in_schema=bool(shelf.tasks))
    async def tag(asked: TagRequest) -> dict[str, Any]:
        """What a task model says of each text: names, classes, roles."""
        task, texts = shelf.find_task(asked.task), shelf.check_texts(asked.texts)
        model = shelf.find_model(None)
        await model.split_texts(texts)  # refuses too many words
        if len(task.model.texts) != 1:
            raise RequestError(f"the task {task.task} takes {len(task.model.texts)} texts together: not offered here")

        def ask() -> list[dict[str, Any]]:
            segmenter = model.embedder.segmenter
            examples = [task.model.example_of(text, segmenter=segmenter) for text in texts]
            predictions = task.model.predict_all(examples)
            return [
                {"prediction": prediction, "shown": task.model.show(example, prediction)}
                for example, prediction in zip(examples, predictions, strict=True)
            ]

        return {"task": task.name, "answers": await task.batcher.run(ask, sum(map(len, texts)) // 5 + 1)}

    return router


def _need_predictions(model: ServedModel) -> LanguageModel:
    if model.language_model is None:
        raise RequestError(f"{model.name} comes without its output layer: it cannot predict words", "Backend")
    return model.language_model


def _pair(found: list[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"word": word, "probability": probability} for word, probability in found]

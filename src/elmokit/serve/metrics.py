"""What a server counts of itself, in Prometheus' format; nothing of the texts is in it."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics"]

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
WORDS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "elmokit_requests_total", "Requests answered.", ["route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "elmokit_request_seconds", "From the first byte of a request to the last of its answer.", ["route"],
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self._words = Counter("elmokit_words_total", "Words read.", ["model"], registry=self.registry)
        self._batch_words = Histogram(
            "elmokit_batch_words", "Words that a model read at once.", ["model"], buckets=WORDS, registry=self.registry
        )
        self._queued = Gauge("elmokit_queued_words", "Words that wait for a model.", ["model"], registry=self.registry)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """One request more."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def observer(self, model: str) -> Callable[[int, int], None]:
        """Who counts the batches of a model."""
        words, batch_words = self._words.labels(model), self._batch_words.labels(model)

        def observe(num_sentences: int, num_words: int) -> None:
            words.inc(num_words)
            batch_words.observe(num_words)

        return observe

    def write(self, queued: dict[str, int]) -> bytes:
        """All of them, as Prometheus reads it, with the words that wait for each model now."""
        for model, num_words in queued.items():
            self._queued.labels(model).set(num_words)
        return generate_latest(self.registry)

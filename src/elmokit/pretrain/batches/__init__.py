"""An encoded corpus becomes batches: shuffled, packed, spelled, with the negatives of a sampled softmax."""

__all__: list[str] = []

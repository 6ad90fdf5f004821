"""Text before and after the network: characters, segmenters, files of text, word vectors, labelled text."""

__all__: list[str] = []

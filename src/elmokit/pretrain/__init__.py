"""Pre-training: raw text becomes an encoded corpus, an encoded corpus batches, and batches a biLM.

Import from the modules themselves: `encoding.encode_corpus` writes the folder that `corpus.EncodedCorpus` opens and
`reader.SentenceReader` or `reader.StreamReader` turns into batches. Nothing here needs the command line.
"""

__all__: list[str] = []

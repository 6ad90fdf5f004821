"""Pre-training: raw text becomes an encoded corpus, an encoded corpus batches, and batches a biLM.

Import from the modules themselves: `corpus.encoding.encode_corpus` writes the folder that `EncodedCorpus` of
`corpus.encoded` opens, and `batches.sentences.SentenceReader` or `batches.streams.StreamReader` turns it into batches.
Nothing here needs the command line.
"""

__all__: list[str] = []

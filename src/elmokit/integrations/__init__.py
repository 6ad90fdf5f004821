"""elmokit where people already work: one file per framework, imported by nobody but its user.

- `transformers`: Hugging Face's Auto classes, pipelines and Trainer; sentence-transformers and MTEB on top of them
- `sklearn`: a transformer for scikit-learn's pipelines and searches
- `ray`: embedding a corpus, and training, on the machines of a Ray cluster
- `spacy`, `spacy_tagger`: components of spaCy's pipelines, for vectors, tags and entities; found by their names
- `flair`: embeddings of tokens for Flair
- `gensim`: one vector per word, as gensim's KeyedVectors
- `allennlp`, `simple_elmo`, `elmoformanylangs`: the classes of these libraries with their old signatures, so that an
  old script changes its import line and nothing else; none of the three need be installed
"""

__all__: list[str] = []

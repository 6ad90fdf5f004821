"""Parts of which task models are built: words' features, recurrent layers, attention, a CRF, mentions."""

__all__: list[str] = []

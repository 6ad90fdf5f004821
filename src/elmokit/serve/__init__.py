"""Vectors through an address: a server that speaks OpenAI's and text-embeddings-inference's language, and our own.

settings.py  the bounds of a server
errors.py    what a client is told when something is refused
batching.py  the sentences of all clients, gathered into batches for one model
models.py    what a server holds of each model
guard.py     around every request: bounds, token, time-outs, headers, counts
schemas.py   what requests and answers look like
answers.py   vectors as JSON, base64, npy or Arrow
openai.py, tei.py, words.py   the routes
app.py       all of it put together, and run
"""

__all__: list[str] = []

"""ELMo in plain torch: no text, no files, no branch on devices. This is the explanation, and it is what runs.

    "The bank"                         sentences with their boundaries, as ids of characters
        |   WordEncoder                characters -> convolutions -> maximum over the word -> highways -> linear map
    layer 0   x_1 x_2 x_3 x_4          one vector per word, whatever stands beside it
        |   BiLM                       two LSTMs with projection, which share nothing:
        |     forward   -> -> -> ->      reads x_1, x_2, …: knows what came before a word
        |     backward  <- <- <- <-      reads …, x_2, x_1: knows what comes after it
    layer 1   h_1 h_2 h_3 h_4          both outputs side by side
        |   BiLM, second layer         reads layer 1 of its own direction and adds it to its output (residual)
    layer 2   h_1 h_2 h_3 h_4
        |   ScalarMix                  gamma * sum_l softmax(w)_l * layer_l
    the ELMo vector of each word in its sentence

    Softmax                            on the top layer of a direction: the probability of the next (previous) word;
                                       with it the model is trained, and perplexities are computed

In this order it reads as a textbook:
`word_encoder.py`, `lstmp.py` (one layer in one direction), `packing.py` (sentences of different lengths without
padding), `bilm.py`, `scalar_mix.py`, `softmax.py`; last `operations.py`: nearly all the time goes into three operations
(encode words, run a recurrence, take a loss), and these are called by contract, so that `elmokit.engines` can offer
faster ways. Their references stand beside the modules: `word_encoder.encode`, `lstmp.run`, `softmax.losses`.
"""

__all__: list[str] = []

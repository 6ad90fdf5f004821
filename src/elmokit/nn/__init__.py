"""ELMo in plain torch: no text, no files, no branch on devices.

    <S> The bank </S>                  a sentence with its boundaries, each word as ids of its characters
        |   WordEncoder                characters -> convolutions -> maximum over the word -> highways -> linear map
    x_1 x_2 x_3 x_4                    one vector (P) per word, whatever stands beside it
    layer 0                            x_t twice, side by side, so that every layer is 2P wide
        |   BiLM                       two LSTMs with projection, which share nothing:
        |     forward   -> -> -> ->      its output at word t depends on x_1 … x_t: the words before, and the word
        |     backward  <- <- <- <-      its output at word t depends on x_t … x_4: the word, and the words after
    layer 1   h_1 h_2 h_3 h_4          both outputs (P each) side by side
        |   BiLM, second layer         reads layer 1 of its own direction and adds it to its output (residual)
    layer 2   h_1 h_2 h_3 h_4
        |   ScalarMix                  gamma * sum_l softmax(w)_l * layer_l
    the ELMo vector of each word in its sentence

    OutputLayer                        one for both directions, for training and for scores: from the top
                                       layer at word t, the forward half gives the probabilities of word t+1, the
                                       backward half those of word t-1. The training loss is the mean negative
                                       log-likelihood over the predictions of both directions.

In this order it reads as a textbook: `word_encoder.py`, `lstmp.py` (one layer in one direction), `packing.py`
(sentences of different lengths without padding), `bilm.py`, `scalar_mix.py`, `output_layer.py`; last `operations.py`.

All of it is what runs, except three operations in which nearly all the time goes: encoding words, running a recurrence,
taking a loss. Here stand their references, `word_encoder.encode`, `lstmp.run` and `output_layer.losses`, which define
what is correct. Once `elmokit.engines` is imported, which every model class of this package does, faster
implementations of these three run instead wherever they can (`operations.py` says how). They equal the references but
for the order of sums, or come near them where int8 is asked for.

Names of tensors end in their shape: `x_NP` has the shape (N, P), and `positions_2N` the shape (2, N), forward then
backward; but 4H (four gates) and 2P (both directions side by side) are single axes, so `gates_n4H` has the shape
(n, 4H). The docstring of a module says what its letters stand for; n rows are some of N.
"""

__all__: list[str] = []

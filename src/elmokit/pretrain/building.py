"""A `TrainConfig` and a corpus become the parts of a run: network, optimiser, reader, stepper."""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn

from elmokit.config import ElmoConfig, WordConfig
from elmokit.nn.softmax import Softmax
from elmokit.pretrain.batches.preparing import Layout
from elmokit.pretrain.batches.reader import Reader
from elmokit.pretrain.batches.sampling import Sampler
from elmokit.pretrain.batches.sentences import SentenceReader
from elmokit.pretrain.batches.streams import StreamReader
from elmokit.pretrain.corpus.counting import build_alphabet
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.network import LanguageModelNetwork
from elmokit.pretrain.optim.optimiser import OptimiserConfig
from elmokit.pretrain.place import Place
from elmokit.pretrain.recipes import TrainConfig
from elmokit.pretrain.stepping import GraphStepper, Stepper
from elmokit.text.characters import Scheme

__all__ = ["built_layout", "built_network", "built_reader", "built_stepper", "model_for", "optimiser_config"]

LOOKED_AT = 32  # batches by which the layout of recorded steps is chosen
BILM_TF_LOSS_SCALE = 20.0  # bilm-tf multiplies its loss by the 20 words of its window


def model_for(config: TrainConfig, corpus: EncodedCorpus) -> tuple[ElmoConfig, dict[str, Any]]:
    """The model's sizes once its corpus is known, and the lists that its scheme needs (alphabet or vocabulary)."""
    model = config.model
    if config.input == "words":
        words = WordConfig(corpus.vocabulary_size, model.lstm.projection_dim)
        return ElmoConfig(None, words, model.lstm, projects_words=False), {"vocabulary": corpus.vocabulary}
    characters = model.characters
    if characters is None or characters.scheme == "bytes":
        return model, {}
    counted = zip(corpus.vocabulary, corpus.counts_V.tolist(), strict=True)
    alphabet = build_alphabet(counted, characters.num_symbols)
    characters = dataclasses.replace(characters, num_symbols=len(alphabet))
    return dataclasses.replace(model, characters=characters), {"alphabet": alphabet}


def built_network(
    config: TrainConfig, model: ElmoConfig, corpus: EncodedCorpus, device: torch.device
) -> LanguageModelNetwork:
    """The network with its first weights, which follow from the seed alone."""
    width, size = model.lstm.projection_dim, corpus.vocabulary_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        softmax = Softmax(size, width, counts_V=torch.from_numpy(np.array(corpus.counts_V)))
        network = LanguageModelNetwork(model, softmax, dropout=config.dropout, dtype=_dtype(config.precision, device))
    return network.to(device)


def optimiser_config(config: TrainConfig) -> OptimiserConfig:
    """What the optimiser is told."""
    return OptimiserConfig(
        optimiser=config.optimiser,
        learning_rate=config.learning_rate,
        muon_learning_rate=config.muon_learning_rate,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
        layer_decay=config.layer_decay,
        output_rate=config.output_rate,
        betas=(0.9, config.second_beta),
        loss_scale=BILM_TF_LOSS_SCALE if config.optimiser == "adagrad" else 1.0,
    )


def built_reader(config: TrainConfig, corpus: EncodedCorpus, scheme: Scheme, place: Place) -> Reader:
    """The reader of this process's rows."""
    shared: dict[str, Any] = {
        "widest_filter": config.widest_filter, "seed": config.seed, "rank": place.rank, "world": place.world,
    }  # fmt: skip
    if config.mode == "streams":
        rows = max(1, config.tokens_per_batch // config.unroll)
        return StreamReader(corpus, scheme, rows=rows, unroll=config.unroll, **shared)
    return SentenceReader(corpus, scheme, tokens_per_batch=config.tokens_per_batch, **shared)


def built_stepper(
    config: TrainConfig, network: LanguageModelNetwork, corpus: EncodedCorpus, reader: Reader, place: Place
) -> Stepper:
    """Recorded steps where they can be: on one GPU, whole sentences, everything learned."""
    sampler = _sampler(config, corpus) if config.output == "sampled" else None
    # A sample that holds most of the sum is used as what it is: an estimate of the full softmax.
    corrects = config.sampler != "head_and_tail"
    repeats = all(p.requires_grad for p in network.parameters())
    if repeats and place.device.type == "cuda" and place.world == 1 and isinstance(reader, SentenceReader):
        layout = built_layout(config, reader)
        return GraphStepper(network, layout, sampler=sampler, corrects_targets=corrects, seed=config.seed)
    wrapped = None
    if place.world > 1:
        wrapped = nn.parallel.DistributedDataParallel(network)
    return Stepper(
        network, wrapped=wrapped, sampler=sampler, corrects_targets=corrects, world=place.world, seed=config.seed
    )


def built_layout(config: TrainConfig, reader: SentenceReader) -> Layout:
    """How the distinct words of this reader's batches are laid out, by what its first batches are like."""
    scheme = reader.scheme
    return Layout.fitted(
        islice(reader.one_epoch(), LOOKED_AT),
        columns=scheme.columns,
        padding_id=int(scheme.begin_ids[-1]),
        widest_filter=config.widest_filter,
    )


def _sampler(config: TrainConfig, corpus: EncodedCorpus) -> Sampler:
    number = min(config.num_negatives, corpus.vocabulary_size - 1)
    if config.sampler != "log_uniform":
        make = Sampler.unigram if config.sampler == "unigram" else Sampler.head_and_tail
        return make(corpus.counts_V, num_samples=number, alpha=config.sampler_power, seed=config.seed)
    return Sampler.log_uniform(corpus.vocabulary_size, num_samples=number, seed=config.seed)


def _dtype(precision: str, device: torch.device) -> torch.dtype:
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" else "float32"
    return getattr(torch, precision)

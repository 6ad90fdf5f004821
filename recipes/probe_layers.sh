#!/usr/bin/env bash
# Every probe of a model's layers, GloVe and MiniLM-L6 beside them: one command, a JSON and a picture each.
#   bash recipes/probe_layers.sh MODEL DATA OUT [more options, e.g. --peer minilm --keep FOLDER]
# DATA holds the unpacked archives (pos, wsd, wic, wordsim) and glove.6B.100d.97k.txt.bz2.
set -eu
model=$1 data=$2 out=$3
shift 3
mkdir -p "$out"
probe() { # NAME [options]: paths in the JSON are as short as they were given
  name=$1
  shift
  elmo probe "$name" "$@" --model "$model" --vectors "$data"/glove.6B.100d.97k.txt.bz2 \
    -o "$out/$name.json" --picture "$out/$name.svg"
}
probe pos --train "$data"/pos/ewt/en_ewt-ud-train.rebuilt.conllu --dev "$data"/pos/ewt/en_ewt-ud-dev.conllu \
  --test "$data"/pos/ewt/en_ewt-ud-test.conllu "$@"
probe wsd --train "$data"/wsd/semcor/semcor3.0.jsonl --test "$data"/wsd/raganato/ALL/ALL.data.xml \
  --senses "$data"/wsd/wordnet/index.sense "$@"
probe wic "$data"/wic "$@"
probe similarity "$data"/wordsim/*.txt "$@"

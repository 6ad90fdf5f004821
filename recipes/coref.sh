#!/usr/bin/env bash
# Coreference: FOLDER holds LitBank's 100 documents, *.conll; in the order of their names the first 80 are learned from,
# 10 choose, 10 test. Without ELMo, with it, and with one that was never trained; three seeds each. Two mentions of
# LitBank cross others (one in training, one in test): --skip-bad leaves them out and says so.
#   bash recipes/coref.sh FOLDER VECTORS ELMO OUT [more options of the training command, e.g. --epochs 3]
# SEEDS="0 1" or KINDS="glove elmo" do less. What has its results.json is not run again.
set -eu
folder=$1 vectors=$2 elmo=$3 out=$4
shift 4
. "$(dirname "$0")/kinds.sh"
export LC_ALL=C  # names sort alike everywhere
mkdir -p "$out"
documents=("$folder"/*.conll)
cat "${documents[@]:0:80}" > "$out/train.conll"
cat "${documents[@]:80:10}" > "$out/dev.conll"
cat "${documents[@]:90}" > "$out/test.conll"
run_kinds coref "$out" "$vectors" "$elmo" --skip-bad \
  --train "$out/train.conll" --dev "$out/dev.conll" --test "$out/test.conll" "$@"

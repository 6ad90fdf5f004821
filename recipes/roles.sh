#!/usr/bin/env bash
# Semantic roles: FOLDER holds ewt-propbank.{train,dev,test}.jsonl. Without ELMo, with it, and with one that was never
# trained; three seeds each. One test sentence has a role that training never shows (R-ARGM-ADJ): --skip-bad leaves it
# out and says so.
#   bash recipes/roles.sh FOLDER VECTORS ELMO OUT [more options of the training command, e.g. --epochs 3]
# SEEDS="0 1" or KINDS="glove elmo" do less. What has its results.json is not run again.
set -eu
folder=$1 vectors=$2 elmo=$3 out=$4
shift 4
. "$(dirname "$0")/kinds.sh"
run_kinds roles "$out" "$vectors" "$elmo" --skip-bad --train "$folder/ewt-propbank.train.jsonl" \
  --dev "$folder/ewt-propbank.dev.jsonl" --test "$folder/ewt-propbank.test.jsonl" "$@"

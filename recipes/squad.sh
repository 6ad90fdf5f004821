#!/usr/bin/env bash
# Questions about texts (SQuAD 1.1): without ELMo, with it, and with one that was never trained; three seeds each.
#   bash recipes/squad.sh TRAIN.json DEV.json VECTORS ELMO OUT [more options of the training command, e.g. --epochs 3]
# SEEDS="0 1" or KINDS="glove elmo" do less. What has its results.json is not run again.
set -eu
train=$1 dev=$2 vectors=$3 elmo=$4 out=$5
shift 5
. "$(dirname "$0")/kinds.sh"
run_kinds answer "$out" "$vectors" "$elmo" --train "$train" --dev "$dev" "$@"

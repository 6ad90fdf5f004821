#!/usr/bin/env bash
# Inference between sentences: FOLDER holds sick/, cad/ (counterfactual SNLI) and snli/ (SNLI's dev and test parts).
# Each set without ELMo, with it, and with one that was never trained; three seeds each. What learned from cad/ is also
# scored on SNLI's test part: snli-KIND-SEED.json.
#   bash recipes/nli.sh FOLDER VECTORS ELMO OUT [more options of the training command, e.g. --epochs 3]
# SEEDS="0 1" or KINDS="glove elmo" do less. What has its results.json is not run again.
set -eu
folder=$1 vectors=$2 elmo=$3 out=$4
shift 4
. "$(dirname "$0")/kinds.sh"
run_kinds infer "$out/sick" "$vectors" "$elmo" --train "$folder/sick/SICK_train.txt" \
  --dev "$folder/sick/SICK_trial.txt" --test "$folder/sick/SICK_test_annotated.txt" "$@"
run_kinds infer "$out/cad" "$vectors" "$elmo" --train "$folder/cad/train.tsv" \
  --dev "$folder/cad/dev.tsv" --test "$folder/cad/test.tsv" "$@"
for model in "$out"/cad/*-[0-9]*/; do
  scores=$out/snli-$(basename "$model").json
  [ -e "$scores" ] || python - "$model" "$folder/snli/s1.test" > "$scores" << 'END'
import json
import sys

from elmokit.tasks.base import load_task
from elmokit.tasks.data.snli import read_pairs

print(json.dumps(load_task(sys.argv[1]).evaluate(list(read_pairs(sys.argv[2])))))
END
done

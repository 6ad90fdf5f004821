#!/usr/bin/env bash
# What counterfactual pairs teach about SNLI itself: trained on FOLDER/cad, scored on FOLDER/snli (its test part), without
# ELMo, with it, and with one that was never trained; a line of JSON each in OUT/KIND-SEED.json.
#   bash recipes/snli_transfer.sh FOLDER VECTORS ELMO OUT [more options of the training command, e.g. --epochs 3]
# SEEDS="0 1" or KINDS="glove elmo" do less. What has its JSON is not run again. Tables of all tasks: task_tables.py.
set -eu
folder=$1 vectors=$2 elmo=$3 out=$4
shift 4
mkdir -p "$out"
for seed in ${SEEDS:-0 1 2}; do
  for kind in ${KINDS:-glove elmo random}; do
    [ -e "$out/$kind-$seed.json" ] && continue
    case $kind in
      glove) given=(--elmo none) ;;
      elmo) given=(--elmo "$elmo") ;;
      random) given=(--elmo "$elmo" --random-elmo yes) ;;
      *) echo "KINDS has $kind: expected glove, elmo or random" >&2; exit 2 ;;
    esac
    python -m elmokit.tasks.train infer --train "$folder/cad/train.tsv" --dev "$folder/cad/dev.tsv" \
      --test "$folder/cad/test.tsv" -o "$out/$kind-$seed" --layers-folder "$out/elmo-layers" \
      --vectors "$vectors" --seed "$seed" "${given[@]}" "$@"
    python - "$out/$kind-$seed" "$folder/snli/s1.test" > "$out/$kind-$seed.tmp" << 'END'
import json
import sys

from elmokit.tasks.base import load_task
from elmokit.tasks.data.snli import read_pairs

print(json.dumps(load_task(sys.argv[1]).evaluate(list(read_pairs(sys.argv[2])))))
END
    mv "$out/$kind-$seed.tmp" "$out/$kind-$seed.json"
  done
done

#!/usr/bin/env bash
# What counterfactual pairs teach about SNLI itself: models that were trained on them, scored on SNLI's test part.
#   python recipes/task_tables.py six --tasks cad --keep-models … -o OUT
#   bash recipes/snli_transfer.sh OUT/runs/cad NLI/snli/s1.test OUT/transfer
# A line of JSON for each model in OUT/transfer/VARIANT-SEED.json, all models at once; what has one is not scored again.
set -eu
models=$1 pairs=$2 out=$3
mkdir -p "$out"
for model in "$models"/*/; do
  name=$(basename "$model")
  [ -e "$out/$name.json" ] && continue
  (python - "$model" "$pairs" > "$out/$name.tmp" && mv "$out/$name.tmp" "$out/$name.json") << 'END' &
import json
import sys

from elmokit.tasks.base import load_task
from elmokit.tasks.data.snli import read_pairs

print(json.dumps(load_task(sys.argv[1]).evaluate(list(read_pairs(sys.argv[2])))))
END
done
wait

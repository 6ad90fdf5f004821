#!/usr/bin/env bash
# All tables of task models, three seeds: ARCHIVES holds ner.tar.bz2 and its like and glove.6B.100d.97k.txt.bz2.
#   bash recipes/task_tables.sh ARCHIVES ELMO OUT [more options of task_tables.py, e.g. --jobs 6 --minutes 9]
# For a short time on a GPU: --jobs 16 --minutes 21 --plan recipes/task_tables_plan.txt. What the time cuts off ends too early (†).
# Called again with the same arguments, it goes on where it was stopped. One table or task alone: task_tables.py.
set -eu
archives=$1 elmo=$2 out=$3
shift 3
mkdir -p "$out/eval"
for name in ner classify nli squad srl coref; do
  [ -e "$out/eval/$name.unpacked" ] || { tar -xjf "$archives/$name.tar.bz2" -C "$out/eval" && touch "$out/eval/$name.unpacked"; }
done
vectors=$out/eval/glove.txt
[ -e "$vectors" ] || { bunzip2 -c "$archives/glove.6B.100d.97k.txt.bz2" > "$vectors.tmp" && mv "$vectors.tmp" "$vectors"; }
python recipes/task_tables.py six layers placement samples --data "$out/eval" --vectors "$vectors" --elmo "$elmo" -o "$out" "$@"

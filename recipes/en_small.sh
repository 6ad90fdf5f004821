#!/usr/bin/env bash
# A small English model from raw text, on one GPU: FOLDER holds en-train-*.txt.bz2 and en-heldout.tok.bz2.
#   bash recipes/en_small.sh FOLDER OUT [more options of elmo train, e.g. --minutes 9]
# Called again with the same arguments, it continues where it was stopped.
#
# The bundled weights took three commands (src/elmokit/models/en-small/README.md): a run at rates that diverged, one
# that continued from its checkpoint, and one that continued from that model. This is the single run that should have
# been made: the rates, dropout and plateau that worked are those of the recipe `small`, and it sees as many words. It
# was not run in this form.
set -eu
folder=$1 out=$2
shift 2
jobs=()
for text in "$folder"/en-train-*.txt.bz2; do
  tokenised=${text%.txt.bz2}.tok
  [ -e "$tokenised" ] || { python recipes/tokenise_two_ways.py "$text" "$tokenised.tmp" && mv "$tokenised.tmp" "$tokenised"; } &
  jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job"; done # one that failed ends the script: a part of the text would bind the run
python -m elmokit train "$folder"/en-train-*.tok -o "$out" --recipe small --tokenised --tokens 1560e6 \
  --held-out "$folder/en-heldout.tok.bz2" --held-out-tokenised --vocabulary-size 108000 "$@"

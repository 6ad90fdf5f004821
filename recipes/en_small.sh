#!/usr/bin/env bash
# The small English model from raw text, on one GPU: FOLDER holds en-train-*.txt.bz2 and en-heldout.tok.bz2.
#   bash recipes/en_small.sh FOLDER OUT [more options of the training command, e.g. --minutes 9]
# Called again with the same arguments, it goes on where it was stopped.
set -eu
folder=$1 out=$2
shift 2
for text in "$folder"/en-train-*.txt.bz2; do
  tokenised=${text%.txt.bz2}.tok
  [ -e "$tokenised" ] || { python recipes/tokenise_two_ways.py "$text" "$tokenised.tmp" && mv "$tokenised.tmp" "$tokenised"; } &
done
wait
python -m elmokit train "$folder"/en-train-*.tok -o "$out" --recipe small --tokenised \
  --held-out "$folder/en-heldout.tok.bz2" --held-out-tokenised --vocabulary-size 108000 "$@"

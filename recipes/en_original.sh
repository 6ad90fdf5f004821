#!/usr/bin/env bash
# The full-size English model from raw text, on one GPU.
#   bash recipes/en_original.sh FOLDER OUT [more options of elmo train, e.g. --minutes 9]
# FOLDER holds en-train-*.txt.bz2, en-modern.txt.xz and en-heldout.tok.bz2. The modern text is a twentieth of the others and is
# read twice per pass, split into words in the other of both ways. Called again with the same arguments, it continues
# where it was stopped.
set -eu
folder=$1 out=$2
shift 2
tokenise() { # IN OUT [options]
  [ -e "$2" ] || { python recipes/tokenise_two_ways.py "$1" "$2.tmp" --workers 3 "${@:3}" && mv "$2.tmp" "$2"; }
}
jobs=()
for text in "$folder"/en-train-*.txt.bz2; do
  tokenise "$text" "${text%.txt.bz2}.tok" & jobs+=($!)
done
tokenise "$folder/en-modern.txt.xz" "$folder/en-modern.tok" & jobs+=($!)
tokenise "$folder/en-modern.txt.xz" "$folder/en-modern-again.tok" --plain-first & jobs+=($!)
for job in "${jobs[@]}"; do wait "$job"; done # one that failed ends the script: a part of the text would bind the run
python -m elmokit train "$folder"/en-train-*.tok "$folder"/en-modern*.tok -o "$out" --recipe original --tokenised \
  --held-out "$folder/en-heldout.tok.bz2" --held-out-tokenised "$@"

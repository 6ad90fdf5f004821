#!/usr/bin/env bash
# What the card of an English model says of it: perplexities, probes of its layers, homographs, stems, names.
#   bash recipes/evaluate_english.sh MODEL DATA OUT [seconds that taggers of names may take, 0 for none]
# DATA holds lm, ner, pos, wsd, wic and wordsim as .tar.bz2, glove.6B.100d.97k.txt.bz2, en-heldout.tok.bz2 and
# en-modern-heldout.txt.xz. Everything runs side by side: on a GPU start NVIDIA's MPS first. OUT gets one file each.
set -eu
model=$1 data=$2 out=$3 seconds=${4:-600}
mkdir -p "$out" "$data/unpacked"
for name in lm ner pos wsd wic wordsim; do
  [ -e "$data/unpacked/$name.unpacked" ] || { tar -xjf "$data/$name.tar.bz2" -C "$data/unpacked" && touch "$data/unpacked/$name.unpacked"; }
done
vectors=$data/unpacked/glove.txt
[ -e "$vectors" ] || { bunzip2 -c "$data/glove.6B.100d.97k.txt.bz2" >"$vectors.tmp" && mv "$vectors.tmp" "$vectors"; }
elmo() { python -m elmokit "$@"; }
unpacked=$data/unpacked
run() { # NAME COMMAND...: its output to NAME.txt, or what went wrong
  "${@:2}" >"$out/$1.txt" 2>"$out/$1.log" || echo "$1 failed: $(tail -n 1 "$out/$1.log")"
}
perplexity() { run "perplexity-$1" elmo evaluate "${@:2}" --model "$model" --json; }
perplexity heldout "$data"/en-heldout.tok.bz2 --tokenised &
perplexity modern "$data"/en-modern-heldout.txt.xz &
perplexity lm1b "$unpacked"/lm/lm1b/1b_benchmark.dev.tokens --tokenised &
perplexity wikitext "$unpacked"/lm/wikitext103/wiki.valid.tokens --tokenised &
perplexity ptb "$unpacked"/lm/ptb/ptb.test.txt --tokenised &
run homographs python benchmarks/homographs.py --model "$model" &
run homographs-2 python benchmarks/homographs.py --model "$model" --words tests/data/homographs-2.json &
run spelling python benchmarks/spelling.py --model "$model" &
probe() { run "probe-$1" elmo probe "$@" --model "$model" -o "$out/$1.json"; }
probe pos --train "$unpacked"/pos/ewt/en_ewt-ud-train.rebuilt.conllu --dev "$unpacked"/pos/ewt/en_ewt-ud-dev.conllu \
  --test "$unpacked"/pos/ewt/en_ewt-ud-test.conllu &
probe wsd --train "$unpacked"/wsd/semcor/semcor3.0.jsonl --test "$unpacked"/wsd/raganato/ALL/ALL.data.xml \
  --senses "$unpacked"/wsd/wordnet/index.sense &
probe wic "$unpacked"/wic &
probe similarity "$unpacked"/wordsim/*.txt &
if [ "$seconds" -gt 0 ]; then
  printf 'ner elmo %s\n' 0 1 2 >"$out/plan.txt"
  run names python recipes/task_tables.py six --tasks ner --data "$unpacked" --vectors "$vectors" \
    --elmo "$model" -o "$out/names" --jobs 3 --plan "$out/plan.txt" --minutes "$(python -c "print($seconds / 60)")" &
fi
wait

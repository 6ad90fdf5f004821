# For other recipes: one task with several kinds of inputs and seeds, a folder OUT/KIND-SEED each.
#   run_kinds TASK OUT VECTORS ELMO [options of the training command]
run_kinds() {
  local task=$1 out=$2 vectors=$3 elmo=$4 kind seed given
  shift 4
  mkdir -p "$out"
  for seed in ${SEEDS:-0 1 2}; do
    for kind in ${KINDS:-glove elmo random}; do
      [ -e "$out/$kind-$seed/results.json" ] && continue
      case $kind in
        glove) given=(--elmo none) ;;
        elmo) given=(--elmo "$elmo") ;;
        random) given=(--elmo "$elmo" --random-elmo yes) ;;
        *) echo "KINDS has $kind: expected glove, elmo or random" >&2; return 2 ;;
      esac
      python -m elmokit.tasks.train "$task" -o "$out/$kind-$seed" --layers-folder "$out/elmo-layers" \
        --vectors "$vectors" --seed "$seed" "${given[@]}" "$@"
    done
  done
}

#!/bin/sh
# From nothing to models/tiny: vocabulary, held-out set, two stages of training, checkpoint, evaluation.
# Needs one CUDA GPU (about 18 GB of its memory), 16 CPU cores to go as fast as written in models/tiny/README.md,
# and: pip install -r tools/tiny/requirements.txt. Run from the root of the repository.
#
#   tools/tiny/build.sh [OUT_DIR]       default build/tiny; copy the result to models/tiny to ship it
set -eu
OUT=${1:-build/tiny}
PYTHON=${PYTHON:-python3}
mkdir -p "$OUT"

cp models/tiny/chat_template.jinja "$OUT/"        # the published one, byte for byte
$PYTHON -m tools.tiny.tokenizer "$OUT"
$PYTHON -m tools.tiny.heldout "$OUT"
$PYTHON -m tools.tiny.check_model "$OUT"

# The first stage learns the skills; its last 30 % sees 4-bit weights.
$PYTHON -m tools.tiny.train "$OUT" --seed 1 --steps 5400 --lr 7e-3 --warmup 100 --quantise-from 0.7
# The second goes on from the shipped form with the wider mixture (dialogue.py), twice, 4-bit throughout.
$PYTHON -m tools.tiny.train "$OUT" --seed 2 --stage 2 --start "$OUT" --steps 1900 --lr 3e-3 --warmup 50 --quantise-from 0
$PYTHON -m tools.tiny.train "$OUT" --seed 3 --stage 2 --start "$OUT" --steps 1000 --lr 2e-3 --warmup 30 --quantise-from 0

$PYTHON -m tools.tiny.evaluate "$OUT" --device cuda
rm -f "$OUT/train.json"

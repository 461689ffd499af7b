#!/bin/sh
# From nothing to models/tiny: vocabulary, held-out set, three stages of training, checkpoint, evaluation.
# Needs one CUDA GPU (18 GB of its memory), and: pip install -r tools/tiny/requirements.txt
# Run from the root of the repository; about 15 minutes on an H200 with 16 CPU cores.
#
#   tools/tiny/build.sh [OUT_DIR]       default build/tiny; copy the result over models/tiny to ship it
set -eu
OUT=${1:-build/tiny}
PYTHON=${PYTHON:-python3}
STAGES=$OUT/stages
mkdir -p "$OUT" "$STAGES/1" "$STAGES/2" "$STAGES/3" "$STAGES/mean" "$STAGES/4"

cp models/tiny/chat_template.jinja "$OUT/"        # the published one, byte for byte
$PYTHON -m tools.tiny.tokenizer "$OUT"
$PYTHON -m tools.tiny.heldout "$OUT"
$PYTHON -m tools.tiny.check_model "$OUT"
for stage in 1 2 3 mean 4; do cp "$OUT/tokenizer.json" "$STAGES/$stage/"; done

# The first stage learns the skills; its last 30 % sees the weights as they will be shipped.
$PYTHON -m tools.tiny.train "$STAGES/1" --seed 1 --steps 5000 --lr 7e-3 --warmup 100 --quantise-from 0.7
# The second goes on from that checkpoint with the wider mixture of dialogue.py, in two runs, quantised throughout.
$PYTHON -m tools.tiny.train "$STAGES/2" --seed 2 --stage 2 --start "$STAGES/1" --steps 2400 --lr 3e-3 --warmup 50 --quantise-from 0
$PYTHON -m tools.tiny.train "$STAGES/3" --seed 3 --stage 2 --start "$STAGES/2" --steps 1300 --lr 2e-3 --warmup 30 --quantise-from 0
$PYTHON -m tools.tiny.average "$STAGES/mean" "$STAGES/2" "$STAGES/3"
# The third goes on from the mean of the two and works on the skills that were weakest.
$PYTHON -m tools.tiny.train "$STAGES/4" --seed 4 --stage 3 --start "$STAGES/mean" --steps 1600 --lr 2e-3 --warmup 30 --quantise-from 0
# Shipped is the mean of what was there before and after it.
$PYTHON -m tools.tiny.average "$OUT" "$STAGES/mean" "$STAGES/4"

$PYTHON -m tools.tiny.evaluate "$OUT" --device cuda

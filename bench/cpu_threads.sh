#!/bin/sh
# Speed by number of threads: prompt of 512 tokens, decoding at a context of 256.
#
#   bench/cpu_threads.sh MODEL [THREADS...]        (1 2 4 8 16, as far as there are cores)
#
# LILY is the program (build/release/lily), FLAGS what else it gets (for instance "--pin", "--isa avx2"). On a machine
# of several memory nodes put `numactl --interleave=all` in front and read the checkpoint that way first.
set -eu
[ $# -ge 1 ] || { echo "usage: bench/cpu_threads.sh MODEL [THREADS...]" >&2; exit 2; }
model=$1
shift
[ $# -gt 0 ] || set -- 1 2 4 8 16
lily=${LILY:-build/release/lily}
table=$(mktemp)
trap 'rm -f "$table"' EXIT
cores=$(getconf _NPROCESSORS_ONLN)

"$lily" --version
"$lily" devices | grep -E '^cpu|^threads'
printf '%8s %15s %15s %10s %14s %8s\n' threads 'prompt tok/s' 'decode tok/s' 'GB/s' 'of bandwidth' spread
for threads in "$@"; do
  if [ "$threads" -gt "$cores" ]; then
    echo "$threads threads: skipped, this machine has $cores"
    continue
  fi
  # shellcheck disable=SC2086
  "$lily" bench "$model" --backend cpu --threads "$threads" --contexts 256,512 --prefault --csv "$table" ${FLAGS:-} >/dev/null
  awk -F, -v threads="$threads" '
    $2 == 256 { decode = $6; rate = $8; bandwidth = $9; spread = $10 }
    $2 == 512 { prompt = $4; if ($10 > spread) spread = $10 }
    END { printf "%8d %15.1f %15.2f %10.1f %12.0f %% %6.1f %%\n", threads, prompt, decode, rate / 1e9,
          100 * rate / bandwidth, 100 * spread }' "$table"
done

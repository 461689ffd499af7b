"""The mean of checkpoints of one run, quantised again: a little better than either.

    python -m tools.tiny.average OUT_DIR CHECKPOINT_DIR CHECKPOINT_DIR ...
"""

import sys

from .config import Shape
from .export import export, load

if __name__ == "__main__":
    shape = Shape()
    parts = [load(path, shape) for path in sys.argv[2:]]
    export({name: sum(p[name] for p in parts) / len(parts) for name in parts[0]}, sys.argv[1], shape)

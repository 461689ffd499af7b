"""The measurements of `lily bench` (one sequence) by Hugging Face transformers on the processor.

    python hf_bench.py MODEL_DIR --contexts 256,512 --decode 64 --rounds 2       (needs torch and transformers)

MODEL_DIR holds the model as transformers reads it; of MLX's 4-bit tensors it can make nothing.
"""

import time

import torch
import transformers
from contract import main, vocabulary


class Transformers:
    def __init__(self, model):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(model, dtype="auto").eval()
        self.vocab = vocabulary(model)
        self.name = (f"transformers {transformers.__version__}, torch {torch.__version__}, {self.model.dtype}".replace("torch.", "")
                     + f", {torch.get_num_threads()} threads")

    @torch.inference_mode()
    def run(self, prompt, decode):
        """(seconds to the first token, seconds of each step, tokens)."""
        start = time.perf_counter()
        out = self.model(torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
        tokens = [int(out.logits[0, -1].argmax())]
        times = [time.perf_counter()]
        for _ in range(decode):
            out = self.model(torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True)
            tokens.append(int(out.logits[0, -1].argmax()))
            times.append(time.perf_counter())
        return times[0] - start, [b - a for a, b in zip(times, times[1:])], tokens


if __name__ == "__main__":
    main(Transformers)

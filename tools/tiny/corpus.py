"""Corpus: an endless, seeded stream of packed rows, made by worker processes as the training goes.

A row holds whole documents (conversations and a few stories) of `length` tokens together:
    ids [T] int16      tokens
    doc [T] int16      number of the document in its row, -1 for padding
    weight [T] float16 weight of predicting the *next* token from here
"""

import multiprocessing
import os
import random

import numpy as np
from tokenizers import Tokenizer

from .chat import render
from .dialogue import make
from .item import LETTERS, SPLIT
from .skills.stories import story

TARGET, PROMPT, STORY = 1.0, 0.05, 0.2  # loss weights: what the model writes, what it reads, plain text
STORIES = 0.04  # share of plain documents
CHUNK = 16  # rows a worker hands over at a time


def document(rng, stage=1):
    """[(text, weight)] of one document."""
    if rng.random() < STORIES:
        return [(story(rng) + "<|endoftext|>", STORY)]
    d = make(rng, stage=stage)
    spans = [(text, TARGET if target else PROMPT) for text, target in render(d.messages, d.tools)]
    return [(piece, weight) for text, weight in spans for piece in text.split(LETTERS)]


def encode(tokenizer, documents):
    """Documents -> [(ids, weights)] as arrays; weights[i] belongs to the token after ids[i]."""
    flat = [text for spans in documents for text, _ in spans]
    encoded = iter(tokenizer.encode_batch_fast(flat, add_special_tokens=False))
    out = []
    for spans in documents:
        ids, own = [], []
        for _, weight in spans:
            piece = next(encoded).ids
            ids += piece
            own += [weight] * len(piece)
        out.append((np.array(ids, np.int16), np.array(own[1:] + [0.0], np.float16)))
    return out


def pack(docs, rows, length):
    """First fit, longest first: (ids, doc, weight) of `rows` rows, and the documents left over."""
    ids = np.zeros((rows, length), np.int16)
    doc = np.full((rows, length), -1, np.int16)
    weight = np.zeros((rows, length), np.float16)
    used, count, left = [0] * rows, [0] * rows, []
    for piece, own in sorted(docs, key=lambda d: -len(d[0])):
        n = len(piece)
        if n > length:
            continue
        for r in range(rows):
            if used[r] + n <= length:
                at = slice(used[r], used[r] + n)
                ids[r, at], doc[r, at], weight[r, at] = piece, count[r], own
                used[r] += n
                count[r] += 1
                break
        else:
            left.append((piece, own))
    return (ids, doc, weight), left


def work(queue, tokenizer_path, seed, length, stage):
    """A worker: fill rows for ever."""
    SPLIT["by"] = "key" if stage == 1 else "prompt"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rng = random.Random(seed)
    tokenizer = Tokenizer.from_file(tokenizer_path)
    left = []
    while True:
        held = sum(len(d[0]) for d in left)
        while held < 1.1 * CHUNK * length:
            new = encode(tokenizer, [document(rng, stage) for _ in range(64)])
            held += sum(len(d[0]) for d in new)
            left += new
        chunk, left = pack(left, CHUNK, length)
        queue.put(chunk)


class Stream:
    """Batches of `rows` rows, the same for the same seed and number of workers."""

    def __init__(self, tokenizer_path, seed, rows, length, workers, stage=1):
        context = multiprocessing.get_context("fork")
        self.queues = [context.Queue(maxsize=6) for _ in range(workers)]
        self.processes = [context.Process(target=work, args=(q, str(tokenizer_path), f"{seed}/{i}", length, stage), daemon=True) for i, q in enumerate(self.queues)]
        self.rows, self.turn = rows, 0
        for p in self.processes:
            p.start()

    def batch(self):
        parts = []
        for _ in range(self.rows // CHUNK):
            parts.append(self.queues[self.turn % len(self.queues)].get())
            self.turn += 1
        return tuple(np.concatenate(x) for x in zip(*parts))

    def close(self):
        for p in self.processes:
            p.terminate()

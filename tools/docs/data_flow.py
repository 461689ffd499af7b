#!/usr/bin/env python3
"""Draws docs/images/data-flow.svg: a request's way through the modules, and what each owns."""
import sys

W, H = 980, 560
PALETTE = {"io": "#dbeafe", "text": "#dcfce7", "engine": "#fef3c7", "model": "#fde2e2", "disk": "#ede9fe"}


def box(x, y, w, h, title, lines, kind):
    out = [f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="8" fill="{PALETTE[kind]}" stroke="#475569"/>',
           f'<text x="{x + w / 2}" y="{y + 22}" class="t">{title}</text>']
    out += [f'<text x="{x + w / 2}" y="{y + 42 + 17 * i}" class="s">{line}</text>' for i, line in enumerate(lines)]
    return out


def arrow(x1, y1, x2, y2, label="", dx=0, dy=-6, anchor="middle"):
    out = [f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="a" marker-end="url(#h)"/>']
    if label:
        out.append(f'<text x="{(x1 + x2) / 2 + dx}" y="{(y1 + y2) / 2 + dy}" class="l" '
                   f'text-anchor="{anchor}">{label}</text>')
    return out


def draw():
    s = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {H}" font-family="Helvetica, Arial, sans-serif">',
         '<style>.t{font-size:15px;font-weight:bold;text-anchor:middle;fill:#0f172a}'
         '.s{font-size:12px;text-anchor:middle;fill:#334155}.l{font-size:12px;fill:#475569}'
         '.a{stroke:#475569;stroke-width:1.6}.z{font-size:12px;fill:#64748b}</style>',
         '<defs><marker id="h" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
         '<path d="M0 0L10 5L0 10z" fill="#475569"/></marker></defs>',
         f'<rect width="{W}" height="{H}" fill="#ffffff"/>']
    s += box(20, 40, 150, 78, "client", ["curl, chat page,", "coding agent"], "io")
    s += box(240, 40, 190, 78, "server/", ["http: parse, limits, SSE", "openai: validate, format"], "io")
    s += box(500, 20, 210, 54, "text/ chat_template", ["messages to prompt text"], "text")
    s += box(500, 92, 210, 54, "text/ tokenizer", ["prompt text to ids"], "text")
    s += box(500, 190, 210, 72, "text/ output_parser", ["ids to UTF-8, reasoning,", "content, stop strings"], "text")
    s += box(770, 56, 190, 96, "engine/ submit", ["bounded queue,", "one Generation a request", "(thread-safe)"], "engine")
    s += box(770, 222, 190, 116, "engine thread", ["the one owner of the device", "batches segments:", "prompt chunks and decodes;", "samples"], "engine")
    s += box(500, 330, 210, 78, "model/ forward", ["embed, {mixer, moe} x layers,", "head: one pass for any rows"], "model")
    s += box(240, 300, 190, 138, "backend/", ["reference: plain f32", "cpu: AVX2, AVX-512", "weights in place,", "KV pages, recurrent slots"], "model")
    s += box(20, 330, 150, 78, "checkpoint/", ["safetensors, mapped;", "config, ledger"], "disk")
    s += box(770, 400, 190, 96, "Sequence", ["tokens, KV pages", "(shared by count), a slot;", "a fork is a snapshot"], "engine")
    s += arrow(170, 70, 240, 70, "POST")
    s += arrow(240, 100, 170, 100, "SSE", dy=16)
    s += arrow(430, 62, 500, 50)
    s += arrow(605, 74, 605, 92)
    s += arrow(710, 118, 770, 105, "ids")
    s += arrow(865, 152, 865, 222)
    s += arrow(770, 245, 710, 230, "tokens", dy=-8)
    s += arrow(500, 222, 400, 118, "deltas", dx=-28, dy=4)
    s += arrow(770, 310, 710, 350, "Batch", dx=-2, dy=-8)
    s += arrow(710, 392, 780, 338, "logits", dx=26, dy=18)
    s += arrow(500, 369, 430, 369, "5 blocks")
    s += arrow(170, 369, 240, 369, "views")
    s += arrow(865, 338, 865, 400)
    s += arrow(770, 470, 430, 420, "PageId, SlotId", dy=20)
    s += ['<text x="20" y="530" class="z">I/O threads before the queue, one engine thread behind it. Dependencies point one way, towards base/.</text>',
          '</svg>']
    return "\n".join(s) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1] if len(sys.argv) > 1 else "docs/images/data-flow.svg", "w", encoding="utf-8") as f:
        f.write(draw())

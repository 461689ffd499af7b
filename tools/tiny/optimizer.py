"""Optimiser: Muon for the matrices inside the layers, Adam for everything else."""

import torch

from .model import is_matrix


def orthogonal(g, steps=5):
    """Newton-Schulz: the nearest semi-orthogonal matrices of a stack g [n, r, c], roughly."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        y = x @ x.mT
        x = a * x + (b * y + c * y @ y) @ x
    return (x.mT if tall else x).float()


def by_muon(name, w):
    return is_matrix(name) and "layers" in name and min(w.shape[-2:]) >= 64


class Optimizer:
    """weights {name: parameter}. Updates of Muon have the size of Adam's, so that one learning rate serves both."""

    def __init__(self, weights, momentum=0.95, betas=(0.9, 0.98), decay=0.05, compile=True):
        self.weights, self.momentum, self.betas, self.decay = weights, momentum, betas, decay
        self.groups = {}
        self.plain = []
        for name, w in weights.items():
            if by_muon(name, w):
                self.groups.setdefault(tuple(w.shape), []).append(name)
            else:
                self.plain.append(name)
        self.speed = {shape: torch.zeros(len(names), *shape, device=weights[names[0]].device) for shape, names in self.groups.items()}
        self.first = [torch.zeros_like(weights[n]) for n in self.plain]
        self.second = [torch.zeros_like(weights[n]) for n in self.plain]
        self.orthogonal = torch.compile(orthogonal) if compile else orthogonal
        self.count = 0

    @torch.no_grad()
    def step(self, lr):
        self.count += 1
        for shape, names in self.groups.items():
            grad = torch.stack([self.weights[n].grad for n in names])
            speed = self.speed[shape]
            speed.lerp_(grad, 1 - self.momentum)
            update = self.orthogonal(grad.lerp(speed, self.momentum).flatten(0, -3)).view_as(grad)
            scale = 0.2 * max(shape[-2:]) ** 0.5
            params = [self.weights[n] for n in names]
            torch._foreach_mul_(params, 1 - lr * self.decay)
            torch._foreach_add_(params, list(update.unbind(0)), alpha=-lr * scale)
        params = [self.weights[n] for n in self.plain]
        grads = [p.grad for p in params]
        b1, b2 = self.betas
        torch._foreach_lerp_(self.first, grads, 1 - b1)
        torch._foreach_mul_(self.second, b2)
        torch._foreach_addcmul_(self.second, grads, grads, 1 - b2)
        root = torch._foreach_div(self.second, 1 - b2**self.count)
        torch._foreach_sqrt_(root)
        torch._foreach_add_(root, 1e-8)
        step = torch._foreach_div(self.first, 1 - b1**self.count)
        torch._foreach_div_(step, root)
        for name, p, u in zip(self.plain, params, step):
            p.add_(u, alpha=-lr * (2.0 if "embed_tokens" in name else 0.5))

    def zero(self):
        for w in self.weights.values():
            w.grad = None

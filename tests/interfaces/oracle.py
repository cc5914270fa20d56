"""The paper's equations as printed: plain Python numbers, one image, loops, no broadcasting."""

import math

import torch


def allocate_slowly(similarity, *, temperature=0.05, iterations=5, clip=30.0, stabilizer=1e-6):
    """Pi and q of one image from its cosines: eqs. cost, sinkhorn, barycentric."""
    rows, columns = range(similarity.shape[0]), range(similarity.shape[1])
    cosine = similarity.tolist()
    K = [[-max(1 - cosine[j][i], 0.0) / temperature for i in columns] for j in rows]
    alpha, beta = [0.0 for _ in rows], [0.0 for _ in columns]
    for _ in range(iterations):
        alpha = [_clip(-_lse([K[j][i] + beta[i] for i in columns]), clip) for j in rows]
        beta = [_clip(-_lse([K[j][i] + alpha[j] for j in rows]), clip) for i in columns]
    T = [[math.exp(min(K[j][i] + alpha[j] + beta[i], 0.0)) for i in columns] for j in rows]
    mass = [math.fsum(row) for row in T]
    Pi = [[t / (q + stabilizer) for t in row] for row, q in zip(T, mass, strict=True)]
    as_tensor = [torch.tensor(value, dtype=torch.float64) for value in (Pi, mass, alpha, beta)]
    return tuple(as_tensor)


def cosines_slowly(queries, keys, floor=1e-12):
    return torch.tensor([[_cosine(q, k, floor) for k in keys.tolist()] for q in queries.tolist()])


def _cosine(query, key, floor):
    lengths = [max(math.sqrt(math.fsum(x * x for x in v)), floor) for v in (query, key)]
    return math.fsum((q / lengths[0]) * (k / lengths[1]) for q, k in zip(query, key, strict=True))


def _clip(value, bound):
    return max(-bound, min(bound, value))


def _lse(values):
    top = max(values)
    return top + math.log(math.fsum(math.exp(value - top) for value in values))

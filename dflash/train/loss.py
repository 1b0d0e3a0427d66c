"""How wrong a draft is: cross entropy to the target's own distribution and its own choice.

Knows hidden states and output rows. Knows no model and no data. Scores only some of a large
vocabulary: tokens that answers use, the labels themselves, and random others to keep rare ones
down; that is most of the time of a step on a CPU.
Shapes: N block slots, D hidden, V vocabulary, R scored tokens.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F


def draft_loss(
    hidden: torch.Tensor,  # [N, D], the draft's
    teacher: torch.Tensor,  # [N, D], the target's own state where it predicts the same token
    labels: torch.Tensor,  # [N], the target's greedy tokens
    weights: torch.Tensor,  # [N]
    head: torch.Tensor,  # [V, D], the target's output rows
    *,
    scored: torch.Tensor,  # [R], token ids, labels included
    hard_share: float,  # of the greedy token in the goal; the rest is the target's distribution
) -> torch.Tensor:
    """Mean weighted cross entropy over the scored tokens."""
    rows = head[scored]
    place = torch.empty(head.shape[0], dtype=torch.long, device=head.device)
    place[scored] = torch.arange(len(scored), device=head.device)
    logits = F.linear(hidden.to(rows.dtype), rows).float()  # [N, R]
    with torch.no_grad():
        goal = F.linear(teacher.to(rows.dtype), rows).float().softmax(dim=-1)
        goal.mul_(1 - hard_share)
        goal.scatter_add_(1, place[labels][:, None], torch.full_like(goal[:, :1], hard_share))
    losses = F.cross_entropy(logits, goal, reduction="none")
    return (losses * weights).sum() / weights.sum()


def scored_tokens(
    labels: torch.Tensor,  # [N]
    frequent: torch.Tensor,  # ids of the tokens that answers use most
    vocab_size: int,
    num_random: int,
    generator: torch.Generator,
) -> torch.Tensor:  # [R], sorted
    """This step's labels, the frequent tokens and fresh random ones: as many at every step."""
    labels = labels.unique().cpu()
    num = min(vocab_size, max(len(frequent) + num_random, len(labels)))
    rank = torch.rand(vocab_size, generator=generator)
    rank[frequent] = 2.0
    rank[labels] = 3.0
    return rank.topk(num).indices.sort().values.to(frequent.device)

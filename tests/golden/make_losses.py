#!/usr/bin/env python3
"""Losses and their gradients by PyTorch, for tests/ops/test_loss.c. Usage: make_losses.py >losses.txt

A case is a line: kind, classes, label smoothing, then for each of 4 rows the logits, the label or labels, the loss and
the gradient of the sum of the losses."""
import torch
import torch.nn.functional as F

torch.manual_seed(25)
print("# make_losses.py with torch", torch.__version__.split("+")[0])
for kind, classes, smoothing in (("xent", 3, 0.0), ("smooth", 3, 0.2), ("smooth", 7, 0.2), ("bce", 4, 0.0), ("mse", 1, 0.0)):
    x = (3 * torch.randn(4, classes)).requires_grad_()
    if kind == "bce":
        y = (torch.rand(4, classes) < 0.5).float()
        loss = F.binary_cross_entropy_with_logits(x, y, reduction="none").mean(1)
    elif kind == "mse":
        y = 5 * torch.rand(4, 1)
        loss = F.mse_loss(x, y, reduction="none").mean(1)
    else:
        y = torch.randint(classes, (4, 1))
        loss = F.cross_entropy(x, y[:, 0], reduction="none", label_smoothing=smoothing)
    loss.sum().backward()
    rows = [[*x[r].tolist(), *y[r].tolist(), loss[r].item(), *x.grad[r].tolist()] for r in range(4)]
    print(kind, classes, smoothing, *(f"{v:.9g}" for row in rows for v in row))

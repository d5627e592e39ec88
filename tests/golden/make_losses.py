#!/usr/bin/env python3
"""Losses and their gradients by PyTorch, for tests/ops/test_loss.c. Usage: make_losses.py >losses.txt

A case is a line: kind and classes, then for each of 4 rows the logits, the label or labels, the loss and the gradient
of the sum of the losses. Of kind "soft" there follow the label smoothing and the classes' weights; its gradient is that
of CrossEntropyLoss's mean, which ends the line."""
import torch
import torch.nn.functional as F

torch.manual_seed(25)
print("# make_losses.py with torch", torch.__version__.split("+")[0])
WEIGHTS = [0.25, 1.0, 3.5, 0.75, 2.0, 1.25, 0.5]
for kind, classes, smoothing, weighted in (("xent", 3, 0.0, False), ("soft", 3, 0.2, False), ("soft", 7, 0.2, False),
                                           ("bce", 4, 0.0, False), ("mse", 1, 0.0, False), ("soft", 3, 0.0, True),
                                           ("soft", 7, 0.2, True), ("soft", 2, 0.1, True)):
    x = (3 * torch.randn(4, classes)).requires_grad_()
    weight = torch.tensor(WEIGHTS[:classes] if weighted else [1.0] * classes)
    if kind == "bce":
        y = (torch.rand(4, classes) < 0.5).float()
        loss = F.binary_cross_entropy_with_logits(x, y, reduction="none").mean(1)
    elif kind == "mse":
        y = 5 * torch.rand(4, 1)
        loss = F.mse_loss(x, y, reduction="none").mean(1)
    else:
        y = torch.randint(classes, (4, 1))
        loss = F.cross_entropy(x, y[:, 0], weight, reduction="none", label_smoothing=smoothing)
    mean = torch.nn.CrossEntropyLoss(weight, label_smoothing=smoothing)(x, y[:, 0]) if kind == "soft" else None
    (loss.sum() if mean is None else mean).backward()
    rows = [[*x[r].tolist(), *y[r].tolist(), loss[r].item(), *x.grad[r].tolist()] for r in range(4)]
    values = [v for row in rows for v in row] + ([] if mean is None else [smoothing, *weight.tolist(), mean.item()])
    print(kind, classes, *(f"{v:.9g}" for v in values))

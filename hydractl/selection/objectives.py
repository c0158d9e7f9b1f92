"""What members can be selected for."""

from __future__ import annotations

from typing import Literal, get_args

#: The mean negative log-likelihood of the labels, the ID accuracy, the AUROC of MSP, the mean of the latter two.
Objective = Literal["nll", "acc", "ood", "avg"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)

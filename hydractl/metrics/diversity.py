"""How much the members of an ensemble differ on a set of samples."""

from dataclasses import dataclass

from hydractl.metrics.table import PredictionTable


@dataclass(frozen=True)
class DiversityMetrics:
    """Means over a set of samples; both 0 for a single network."""

    mutual_information: float  # nats, >= 0
    disagreement: float  # share of member pairs with different argmax, 0..1


def diversity_metrics(table: PredictionTable) -> DiversityMetrics:
    """The mean mutual information and disagreement of the members.

    Args:
        table: predictions of N samples, with or without labels.

    Source: [HE] B.5.
    """
    return DiversityMetrics(
        mutual_information=float(table.mutual_information.mean()),
        disagreement=float(table.disagreement.mean()),
    )

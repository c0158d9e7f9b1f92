"""What a trunk costs in uncertainty: accuracy, NLL, ECE and AUROC of a fused network by the depth of its trunk.

python trunk_depth.py MODEL BUDGET CIRCUIT,CIRCUIT,CIRCUIT DEPTH,DEPTH,... ID_DATA OOD_DATA,OOD_DATA,... [PICTURE]

The last circuit is the common one: below the trunk's depth every member drops what it drops. Nothing is trained.
"""

import sys
from collections.abc import Sequence

from hydractl.checkpoint.contents import Checkpoint
from hydractl.circuit.artifact import read_circuit
from hydractl.data.columns import Columns
from hydractl.data.preprocessing import preprocessor_from_json
from hydractl.data.sources import open_data
from hydractl.data.spec import parse_data_spec
from hydractl.evaluation.results import ModelResult
from hydractl.evaluation.run import EvaluationData, OodSamples, evaluate_model
from hydractl.families.open import read_checkpoint
from hydractl.inference import load_checkpoint
from hydractl.surgery.choose import by_ranking
from hydractl.surgery.fuse import fuse
from hydractl.surgery.prune import drop_heads

BATCH = 100


def fused(dense: Checkpoint, circuits: Sequence[str], budget: int, depth: int) -> Checkpoint:
    """Members of one circuit each, fused over a trunk of this many layers."""
    rankings = [read_circuit(circuit).ranking for circuit in circuits]
    common = [head for head in by_ranking(rankings[-1], budget) if head.layer < depth]
    own = [[head for head in ranking if head.layer >= depth] for ranking in rankings]
    return fuse([drop_heads(dense, common + by_ranking(ranking, budget - len(common))) for ranking in own])


def measured(checkpoint: Checkpoint, data: EvaluationData) -> ModelResult:
    """Every metric of a network on the data."""
    preprocessor = preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, checkpoint.name, checkpoint.config)
    return evaluate_model(load_checkpoint(checkpoint).optimize_for_inference(), preprocessor, data, BATCH)


def row(result: ModelResult) -> dict[str, float]:
    """The figures of one line of the table; AUROC is the mean over OOD sets."""
    classes = result.classification
    auroc = sum(entry.detection.auroc for entry in result.ood.values()) / len(result.ood)
    return {"accuracy": classes.accuracy, "NLL": classes.nll, "ECE": classes.ece, "AUROC": auroc}


def draw(depths: Sequence[int], rows: Sequence[dict[str, float]], path: str) -> None:
    """One panel per figure, all over the trunk's depth, with the multiply-adds beside them."""
    from matplotlib import pyplot

    _, panels = pyplot.subplots(1, len(rows[0]), figsize=(3 * len(rows[0]), 3), layout="constrained")
    for panel, name in zip(panels, rows[0], strict=True):
        panel.plot(depths, [values[name] for values in rows], marker="o")
        panel.set(xlabel="layers in the trunk", title=name)
    pyplot.savefig(path)


def main() -> None:
    """Prints a Markdown table, a line per trunk depth, and draws it where a picture is named."""
    model, budget, circuits, depths, id_data, ood_data, *picture = sys.argv[1:]
    dense = read_checkpoint(model)
    ood = [open_data(parse_data_spec(spec, grouped=True), "image", Columns()) for spec in ood_data.split(",")]
    data = EvaluationData(
        open_data(parse_data_spec(id_data), "image", Columns()), {samples.name: OodSamples(samples) for samples in ood}
    )
    single = measured(dense, data)
    results = {"dense": single}
    for depth in depths.split(","):
        results[depth] = measured(fused(dense, circuits.split(","), int(budget), int(depth)), data)
    rows = {
        name: row(result)
        | {
            "multiply-adds / dense": result.cost.multiply_adds / single.cost.multiply_adds,
            "performed / dense": result.cost.performed / single.cost.performed,
        }
        for name, result in results.items()
    }
    print(f"| trunk | {' | '.join(rows['dense'])} |")
    print("|---" * (len(rows["dense"]) + 1) + "|")
    for name, values in rows.items():
        print(f"| {name} | {' | '.join(f'{value:.4f}' for value in values.values())} |", flush=True)
    if picture:
        draw([int(depth) for depth in depths.split(",")], [rows[depth] for depth in depths.split(",")], picture[0])


if __name__ == "__main__":
    main()

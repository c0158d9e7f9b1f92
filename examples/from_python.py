# %% [markdown]
# # A Hydra from Python
# The digits example (`make -C examples digits`) without a command line: one network, three members, one fused Hydra,
# and how it compares. Run it as a script, or cell by cell:
#
#     python from_python.py [FOLDER]
#
# FOLDER holds `vit` and `data`, as the digits example leaves them in `build`.

# %%
import sys
from pathlib import Path

import hydractl

folder = Path(sys.argv[1] if len(sys.argv) > 1 and Path(sys.argv[1]).is_dir() else "build")
data = folder / "data"
vit = hydractl.load(folder / "vit")
print(hydractl.inspect(vit))

# %% [markdown]
# A circuit ranks heads by how well the network does without them. Three objectives share their first steps.

# %%
circuits = hydractl.extract_circuit(
    vit, id_data=data / "digits" / "validation", ood_data=data / "near_search", objective="acc,ood,avg", budget=4
)

# %% [markdown]
# A member for each objective, and all three as one network. Nothing is written to disk.

# %%
members = [
    hydractl.prune(vit, method="circuit", circuit=circuits.circuits[objective], budget=4)
    for objective in ("acc", "ood", "avg")
]
hydra = hydractl.fuse(members)
print(hydra)

# %% [markdown]
# Evaluated on images that chose nothing: the test digits against other digits, 6 and 7, and another photograph.

# %%
results = hydractl.evaluate(
    {"single": vit, "hydra": hydra},
    id_data=data / "digits" / "test",
    ood_data={"near/digits6and7": data / "near_test", "far/photo2": data / "far_test"},
    bootstrap=1000,
)
print(results)

# %% [markdown]
# How sure is it of images it has never seen the like of?

# %%
strange = sorted((data / "far_test").glob("*.png"))[:8]
print(hydractl.predict(hydra, strange))

# %%
try:
    from matplotlib import pyplot
except ImportError:
    sys.exit("pip install 'hydractl[plots]' to draw the picture")

report = results.to_json()["models"]
figure, axes = pyplot.subplots(figsize=(5, 3), layout="constrained")
for place, (name, entry) in enumerate(report.items()):
    axes.bar([x + 0.4 * place for x in range(2)], [entry["ood"][s]["auroc"] for s in entry["ood"]], 0.4, label=name)
axes.set_xticks([0.2, 1.2], list(report["single"]["ood"]))
axes.set_ylabel("AUROC")
axes.set_ylim(0.5, 1)
figure.legend(loc="outside upper right", ncols=2)
figure.savefig(folder / "from_python.png", dpi=150)

"""Divides images of ImageNet, one a class in the order of the classes, into two OOD sets without CIFAR-10's classes.

python near_imagenet.py IMAGENET.parquet CHOOSE.parquet NEAR.parquet
"""

import sys

import pyarrow.parquet as pq

#: ImageNet's classes that show one of CIFAR-10's, by their index. Kin that people would call by the same name count.
SHOWN = {
    "airplane": [404, 812, 895, 908],
    "automobile": [407, 436, 468, 511, 573, 575, 581, 609, 627, 656, 661, 734, 751, 817],
    "bird": [*range(7, 25), *range(80, 101), *range(127, 147)],
    "cat": [*range(281, 288)],
    "deer": [*range(350, 354)],
    "dog": [*range(151, 281)],
    "frog": [*range(30, 33)],
    "horse": [339, 603],
    "ship": [403, 449, 460, 472, 484, 510, 536, 554, 576, 625, 628, 724, 780, 814, 833, 871, 913, 914],
    "truck": [555, 569, 586, 654, 675, 717, 779, 803, 847, 864, 867, 874],
}

if __name__ == "__main__":
    source, choose, near = sys.argv[1:]
    table = pq.read_table(source)
    shown = {index for indices in SHOWN.values() for index in indices}
    left = [row for row in range(len(table)) if row not in shown]
    for path, rows in ((choose, left[::2]), (near, left[1::2])):
        pq.write_table(table.take(rows), path)

"""Computes with tinygrad's NV device and compares with plain Python.

    compute.py TINYGRAD

NVRTC compiles the kernels to machine code. With DEV=MOCK+NV:PTX tinygrad writes them as PTX, and puts the text into its
launches as it does for its mock.
"""
import math
import os
import random
import sys
import types


class Own(types.ModuleType):
    """In place of a module of the mock, which tinygrad's package does not have: what tinygrad's own module has."""

    def __getattr__(self, name):
        return getattr(sys.modules[f"tinygrad.runtime.support.{self.__name__}"], name.removeprefix("Mock"))


if os.environ.get("DEV") == "MOCK+NV:PTX":
    sys.modules["test.mockgpu.mockgpu"], sys.modules["test.mockgpu.usb"] = Own("hcq"), Own("usb")
else:
    os.environ["DEV"] = "NV"
sys.path.insert(0, sys.argv[1])

from tinygrad import Device, Tensor, dtypes  # noqa: E402

source = random.Random(1)
floats = [source.uniform(-2, 2) for _ in range(1000)]
small = [source.randrange(-50, 50) for _ in range(600)]


def matrix(rows, columns):
    return [[source.randrange(-8, 9) / 4 for _ in range(columns)] for _ in range(rows)]


def product(a, b):
    columns = list(zip(*b))
    return [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def convolved(image, kernel):
    size, width = len(kernel), len(image) - len(kernel) + 1
    cells = [(i, j) for i in range(size) for j in range(size)]
    return [[sum(image[y + i][x + j] * kernel[i][j] for i, j in cells) for x in range(width)] for y in range(width)]


def softmax(values):
    largest = max(values)
    powers = [math.exp(value - largest) for value in values]
    return [power / sum(powers) for power in powers]


a, b, image, kernel = matrix(48, 64), matrix(64, 32), matrix(24, 24), matrix(5, 5)
CASES = {
    "sum of products": (Tensor(floats) * 3 + Tensor(floats[::-1]), [x * 3 + y for x, y in zip(floats, floats[::-1])]),
    "matmul": (Tensor(a) @ Tensor(b), product(a, b)),
    "conv2d": (Tensor([[image]]).conv2d(Tensor([[kernel]]))[0, 0], convolved(image, kernel)),
    "softmax": (Tensor(floats).softmax(), softmax(floats)),
    "exp": (Tensor(floats).exp(), [math.exp(x) for x in floats]),
    "log": (Tensor(floats).abs().log(), [math.log(abs(x)) for x in floats]),
    "sin": (Tensor(floats).sin(), [math.sin(x) for x in floats]),
    "sqrt": (Tensor(floats).abs().sqrt(), [math.sqrt(abs(x)) for x in floats]),
    "sum of rows": (Tensor(a).sum(axis=1), [sum(row) for row in a]),
    "largest of columns": (Tensor(a).max(axis=0), [max(column) for column in zip(*a)]),
    "place of the largest": (Tensor(small).argmax(), small.index(max(small))),
    "running sum": (Tensor(small).cumsum(), [sum(small[: at + 1]) for at in range(len(small))]),
    "sorted": (Tensor(small).sort()[0], sorted(small)),
    "quotients": (Tensor(small) // 7, [x // 7 for x in small]),
    "remainders": (Tensor(small) % 7, [x % 7 for x in small]),
    "bits": ((Tensor(small) & 12) ^ 5, [(x & 12) ^ 5 for x in small]),
    "either": ((Tensor(small) > 0).where(Tensor(small), 7), [x if x > 0 else 7 for x in small]),
    "doubles": (Tensor(floats, dtype=dtypes.double) / 3, [x / 3 for x in floats]),
    "bytes": (Tensor(small).cast(dtypes.uint8).cast(dtypes.int), [x % 256 for x in small]),
}


def flat(values):
    return [each for value in values for each in flat(value)] if isinstance(values, list) else [values]


wrong = []
for name, (tensor, expected) in CASES.items():
    found, expected = flat(tensor.tolist()), flat(expected)
    near = [math.isclose(x, y, rel_tol=2e-6, abs_tol=2e-5) for x, y in zip(found, expected)]
    if len(found) != len(expected) or not all(near):
        at = near.index(False) if False in near else len(near)
        wrong.append(f"{name}: {at} is {found[at : at + 1]}, not {expected[at : at + 1]}")
print(f"{Device['NV'].arch}: {len(CASES) - len(wrong)} of {len(CASES)}", *wrong, sep="\n")

# Kernels by numba: a sum of vectors, a reduction, a tiled product of matrices, a histogram by atomics.
import numpy as np
from numba import cuda, float32, int32


@cuda.jit
def add(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


@cuda.reduce
def total(x, y):
    return x + y


@cuda.jit
def multiply(a, b, out):
    left, right = cuda.shared.array((8, 8), float32), cuda.shared.array((8, 8), float32)
    row, column = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    result = float32(0)
    for tile in range(a.shape[1] // 8):
        left[x, y], right[x, y] = a[row, y + tile * 8], b[x + tile * 8, column]
        cuda.syncthreads()
        for k in range(8):
            result += left[x, k] * right[k, y]
        cuda.syncthreads()
    out[row, column] = result


@cuda.jit
def histogram(values, bins):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(bins, values[i], int32(1))


random = np.random.default_rng(1)
a, b = random.random(1000, np.float32), random.random(1000, np.float32)
out = np.zeros_like(a)
add[8, 128](a, b, out)
assert (out == a + b).all()
whole = random.integers(0, 100, 3000)
assert total(whole) == whole.sum()
m, n = random.random((32, 48), np.float32), random.random((48, 24), np.float32)
product = np.zeros((32, 24), np.float32)
multiply[(4, 3), (8, 8)](m, n, product)
assert np.allclose(product, m @ n, rtol=1e-5)
bins = np.zeros(100, np.int32)
histogram[24, 128](whole, bins)
assert (bins == np.bincount(whole, minlength=100)).all()
print("numba: all right")

"""Triton's kernels, compiled for sm_80 and launched through libcuda: as PTX, and as the machine code of its own ptxas.

They are compared with numpy. Triton's launcher is not used, for it wants PyTorch.
"""

import ctypes

import numpy as np
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

cuda = ctypes.CDLL("libcuda.so.1")


def check(status):
    assert status == 0, f"CUDA error {status}"


@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), mask=at < columns)


@triton.jit
def multiply(a, b, c, size, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, size, BLOCK):
        depth = start + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * size + depth[None, :])
        right = tl.load(b + depth[:, None] * size + columns[None, :])
        sums = tl.dot(left, right, sums)
    tl.store(c + rows[:, None] * size + columns[None, :], sums)


@triton.jit
def histogram(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < count, other=0)
    tl.atomic_add(out + values, tl.full((BLOCK,), 1, tl.int32), mask=at < count)


@triton.jit
def sort(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def scan(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(x + at), axis=0))


class Memory:
    """An array of numpy's on the device."""

    def __init__(self, array):
        self.array, self.address = np.ascontiguousarray(array), ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(self.array.nbytes)))
        pointer, size = self.array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(self.array.nbytes)
        check(cuda.cuMemcpyHtoD_v2(self.address, pointer, size))

    def host(self):
        pointer, size = self.array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(self.array.nbytes)
        check(cuda.cuMemcpyDtoH_v2(pointer, self.address, size))
        return self.array


def launch(image, compiled, grid, arguments):
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuModuleLoadData(ctypes.byref(module), image))
    name = compiled.metadata.name.encode()
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, name))
    shared = compiled.metadata.shared
    if shared > 48 << 10:
        check(cuda.cuFuncSetAttribute(function, 8, shared))
    values = [argument.address if isinstance(argument, Memory) else argument for argument in arguments]
    # Room that these kernels do not ask for.
    values += [ctypes.c_uint64(0), ctypes.c_uint64(0)]
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in values])
    threads = 32 * compiled.metadata.num_warps
    check(cuda.cuLaunchKernel(function, *grid, threads, 1, 1, shared, None, pointers, None))
    check(cuda.cuCtxSynchronize())


def compiled_of(kernel, types, constants, warps):
    signature = dict(zip(kernel.arg_names, [*types, *["constexpr"] * len(constants)]))
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": warps})


def cases(random):
    x, y = random.random(1000, dtype=np.float32), random.random(1000, dtype=np.float32)
    floats = ["*fp32", "*fp32", "*fp32", "i32"]
    yield add, floats, {"BLOCK": 256}, 4, (4, 1, 1), [x, y], np.zeros_like(x), [1000], x + y
    rows = random.random((6, 700), dtype=np.float32)
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    wanted = powers / powers.sum(axis=1, keepdims=True)
    yield softmax, floats[1:], {"BLOCK": 1024}, 4, (6, 1, 1), [rows], np.zeros_like(rows), [700], wanted
    a, b = (random.random((128, 128), dtype=np.float32).astype(np.float16) for _ in range(2))
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    halves, out = ["*fp16", "*fp16", "*fp32", "i32"], np.zeros((128, 128), np.float32)
    yield multiply, halves, {"BLOCK": 64}, 4, (2, 2, 1), [a, b], out, [128], wanted
    numbers = random.integers(0, 16, 500, dtype=np.int32)
    integers, out = ["*i32", "*i32", "i32"], np.zeros(16, np.int32)
    wanted = np.bincount(numbers, minlength=16)
    yield histogram, integers, {"BLOCK": 256}, 4, (2, 1, 1), [numbers], out, [500], wanted
    mixed = random.permutation(256).astype(np.int32)
    out = np.zeros_like(mixed)
    yield sort, integers[:2], {"BLOCK": 256}, 2, (1, 1, 1), [mixed], out, [], np.sort(mixed)
    yield scan, integers[:2], {"BLOCK": 256}, 2, (1, 1, 1), [mixed], out, [], mixed.cumsum()


def main():
    context = ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    done = 0
    for kernel, types, constants, warps, grid, inputs, out, numbers, wanted in cases(np.random.default_rng(1)):
        compiled = compiled_of(kernel, types, constants, warps)
        for form in ["ptx", "cubin"]:
            image = compiled.asm[form]
            image = image.encode() + b"\0" if isinstance(image, str) else image
            result = Memory(out.copy())
            arguments = [*[Memory(each) for each in inputs], result, *[ctypes.c_int32(number) for number in numbers]]
            launch(image, compiled, grid, arguments)
            np.testing.assert_allclose(result.host(), wanted, rtol=2e-5, err_msg=f"{kernel.__name__}, {form}")
            done += 1
    print(f"triton {triton.__version__}: {done} launches")


main()

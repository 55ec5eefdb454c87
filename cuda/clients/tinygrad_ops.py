# Operations by tinygrad, compared with numpy: those of which NVRTC widens loads, and some of each kind.
import numpy as np
from tinygrad import Tensor

random = np.random.default_rng(1)
a, b = (random.standard_normal((45, 65)).astype(np.float32) for _ in range(2))
i = np.array([-4, 7, 5, 4, -7, 8, -9], np.int32)
j = np.array([2, -3, 8, -2, 3, 5, 7], np.int32)
x, w = random.standard_normal((1, 2, 7)).astype(np.float32), random.standard_normal((3, 2, 3)).astype(np.float32)
slide = np.array([[(w[o] * x[0, :, p : p + 3]).sum() for p in range(5)] for o in range(3)], np.float32)
m, n = random.standard_normal((64, 96)).astype(np.float32), random.standard_normal((96, 80)).astype(np.float32)
power = np.exp(a - a.max(1, keepdims=True))

cases = {
    "add": (Tensor(a) + Tensor(b), a + b),
    "mod": (Tensor(i) % Tensor(j), i % j),
    "floor": (Tensor(i).div(Tensor(j), rounding_mode="floor"), i // j),
    "trunc": (Tensor(i).div(Tensor(j), rounding_mode="trunc"), np.trunc(i / j)),
    "conv1d": (Tensor(x).conv2d(Tensor(w)), slide[None]),
    "matmul": (Tensor(m) @ Tensor(n), m @ n),
    "sum": (Tensor(a).sum(axis=1), a.sum(axis=1)),
    "max": (Tensor(a).max(axis=0), a.max(axis=0)),
    "softmax": (Tensor(a).softmax(), power / power.sum(1, keepdims=True)),
    "sin": (Tensor(a).sin(), np.sin(a)),
    "argmax": (Tensor(a).argmax(axis=1), a.argmax(1)),
    "cumsum": (Tensor(a).cumsum(axis=1), a.cumsum(1)),
    "sort": (Tensor(a[0]).sort()[0], np.sort(a[0])),
    "double": (Tensor(a.astype(np.float64)) / Tensor(b.astype(np.float64)), a.astype(np.float64) / b),
}
for name, (got, wanted) in cases.items():
    got = got.numpy()
    assert got.shape == wanted.shape, name
    assert np.allclose(got, wanted, rtol=1e-3, atol=1e-4), name
print(f"tinygrad: {len(cases)} operations")

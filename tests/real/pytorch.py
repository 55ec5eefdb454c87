"""PyTorch on a GPU: what it computes there, beside what it computes on the host.

    pytorch.py [NAME…]

Operations of its own kernels, of cuBLAS, cuDNN, cuFFT, cuSOLVER, cuSPARSE and of compiled ones, then the training of
small networks. A line for each that differs or fails; the last one says how many were tried. Without names all are.
"""
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional

warnings.filterwarnings("ignore")
GPU = torch.device("cuda")


def numbers(*shape):
    return torch.randn(*shape)


def places(most, *shape):
    return torch.randint(0, most, shape)


def definite(matrix):
    return matrix @ matrix.mT + 8 * torch.eye(len(matrix), device=matrix.device)


@torch.jit.script
def scripted(a, b):
    return (a * b + a).tanh()


def product(kind):
    """Of short numbers: on the host their product in 32 bits."""
    def of(a, b):
        a, b = a.to(kind), b.to(kind)
        return (a @ b).float() if a.is_cuda else a.float() @ b.float()
    return of


# Name: what is computed, of what, and how far the results may differ.
OPERATIONS = {
    "sums": (lambda a, b: a + b, [numbers(100), numbers(100)], 0),
    "functions": (lambda a: torch.stack([a.exp(), a.sin(), a.tanh(), functional.gelu(a)]), [numbers(1000)], 1e-5),
    "short": (lambda a: (a.half() * 2 + 1).float(), [numbers(100)], 1e-2),
    "brain": (lambda a: (a.bfloat16() * 2 + 1).float(), [numbers(100)], 5e-2),
    "double": (lambda a: a.double().sin(), [numbers(100)], 1e-12),
    "complex": (lambda a, b: torch.complex(a, b).abs(), [numbers(100), numbers(100)], 1e-5),
    "reduction": (lambda a: torch.stack([a.sum(), a.mean(), a.max(), a.std()]), [numbers(10_000)], 1e-2),
    "rows": (lambda a: torch.stack([a.amax(1), a.sum(1), a.argmax(1).float()]), [numbers(64, 100)], 1e-4),
    "prefixes": (lambda a: a.cumsum(0), [numbers(1000)], 1e-3),
    "sorted": (lambda a: a.sort()[0], [numbers(5000)], 0),
    "rows sorted": (lambda a: a.sort(dim=1)[1], [numbers(10, 300)], 0),
    "greatest": (lambda a: a.topk(5)[0], [numbers(1000)], 0),
    "unique": (lambda a: a.unique(), [places(10, 100)], 0),
    "found": (lambda a: (a > 0).nonzero(), [numbers(1000)], 0),
    "histogram": (lambda a: torch.bincount(a), [places(10, 1000)], 0),
    "joined": (lambda a, b: torch.cat([a, b]).t().contiguous(), [numbers(10, 5), numbers(7, 5)], 0),
    "taken": (lambda a, at: a[at], [numbers(100, 5), places(100, 50)], 0),
    "scattered": (
        lambda a, at: torch.zeros(100, 5, device=a.device).scatter_add(0, at, a), [numbers(50, 5), places(100, 50, 5)],
        1e-5),
    "softmax": (lambda a: a.softmax(-1), [numbers(16, 200)], 1e-5),
    "norm of layers": (lambda a: functional.layer_norm(a, (200,)), [numbers(16, 200)], 1e-4),
    "norm of batches": (
        lambda a: functional.batch_norm(a, None, None, training=True), [numbers(4, 3, 8, 8)], 1e-4),
    "product": (torch.matmul, [numbers(96, 128), numbers(128, 80)], 1e-3),
    "short product": (product(torch.float16), [numbers(128, 256), numbers(256, 128)], 0.1),
    "brain product": (product(torch.bfloat16), [numbers(128, 256), numbers(256, 128)], 0.3),
    "products": (torch.bmm, [numbers(4, 16, 32), numbers(4, 32, 8)], 1e-4),
    "layer": (functional.linear, [numbers(8, 32), numbers(16, 32), numbers(16)], 1e-4),
    "convolution": (functional.conv2d, [numbers(2, 3, 16, 16), numbers(8, 3, 3, 3)], 1e-3),
    "pool": (lambda a: functional.max_pool2d(a, 2), [numbers(1, 3, 12, 12)], 0),
    "picture": (
        lambda a: functional.interpolate(a, scale_factor=2, mode="bilinear"), [numbers(1, 3, 8, 8)], 1e-5),
    "attention": (functional.scaled_dot_product_attention, [numbers(1, 2, 32, 64) for _ in range(3)], 1e-3),
    "Fourier": (lambda a: torch.fft.fft2(a).abs(), [numbers(2, 30, 30)], 1e-2),
    "solved": (lambda a, b: torch.linalg.solve(definite(a), b), [numbers(8, 8), numbers(8, 2)], 1e-3),
    "Cholesky": (lambda a: torch.linalg.cholesky(definite(a)), [numbers(8, 8)], 1e-3),
    "eigenvalues": (lambda a: torch.linalg.eigvalsh(a + a.mT), [numbers(8, 8)], 1e-3),
    "singular values": (torch.linalg.svdvals, [numbers(6, 6)], 1e-3),
    "sparse": (lambda a, b: a.relu().to_sparse_csr() @ b, [numbers(16, 16), numbers(16, 4)], 1e-4),
    "compiled": (scripted, [numbers(100), numbers(100)], 1e-5),
    "loss": (functional.cross_entropy, [numbers(16, 10), places(10, 16)], 1e-4),
}


def operation(name):
    function, given, most = OPERATIONS[name]
    host, gpu = function(*given), function(*(it.to(GPU) for it in given)).cpu()
    return host.dtype == gpu.dtype and torch.allclose(host, gpu, atol=most, rtol=1e-3 if most else 0)


def network(model, given, steps=3):
    """What its parameters are after some steps of training, on the host and on the GPU."""
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def trained(device):
        model.load_state_dict(state)
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        for _ in range(steps):
            optimizer.zero_grad()
            (model(given.to(device)) ** 2).mean().backward()
            optimizer.step()
        return torch.cat([value.detach().cpu().flatten() for value in model.parameters()])

    return torch.allclose(trained("cpu"), trained(GPU), atol=1e-3)


def perceptron():
    return network(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)), numbers(32, 4))


def convolutions():
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 4)]
    return network(nn.Sequential(*layers), numbers(4, 3, 16, 16))


def transformer():
    return network(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), numbers(2, 10, 32))


def chance():
    flat, normal = torch.rand(1000, device=GPU), torch.randn(1000, device=GPU)
    kept = functional.dropout(torch.ones(1000, device=GPU)).count_nonzero().item()
    is_flat = 0.4 < flat.mean() < 0.6 and flat.min() >= 0 and flat.max() < 1
    return bool(is_flat and abs(normal.mean()) < 0.2 and 0.8 < normal.std() < 1.2 and 400 < kept < 600)


def streams():
    one, stream = torch.ones(1000, device=GPU), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        two = one * 2
    event = torch.cuda.Event()
    event.record(stream)
    event.synchronize()
    return bool((two == 2).all())


def graph():
    given = torch.ones(100, device=GPU)
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        result = given + 1
    given.fill_(5)
    recorded.replay()
    torch.cuda.synchronize()
    return bool((result == 6).all())


def pinned():
    given = torch.arange(1000).pin_memory()
    return torch.equal(given.to(GPU, non_blocking=True).cpu(), given)


OTHERS = [perceptron, convolutions, transformer, chance, streams, graph, pinned]
TESTS = {name: lambda name=name: operation(name) for name in OPERATIONS} | {test.__name__: test for test in OTHERS}


def main(names):
    torch.manual_seed(0)
    print(torch.cuda.get_device_name(0), flush=True)
    wrong = 0
    for name in names or TESTS:
        try:
            is_right = TESTS[name]()
        except RuntimeError as error:
            # After an error of a kernel everything fails.
            print(f"{name}: {str(error).splitlines()[0]}", flush=True)
            return 1
        if not is_right:
            wrong += 1
            print(f"{name}: not as on the host", flush=True)
    print(f"{len(names or TESTS)} tried, {wrong} wrong")
    return wrong > 0


sys.exit(main(sys.argv[1:]))

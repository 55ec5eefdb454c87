// Kernels that call functions of the driver, for kernels.py.
#include <cassert>
#include <cstdio>

// Of each warp some lanes print one thing, others another, and some nothing.
extern "C" __global__ void printed(int n) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at % 3 == 0)
    printf("%d: %.2f %s %lld\n", at, at * 1.5, n > 3 ? "more" : "less", -(1ll << 40) - at);
  else if (at % 3 == 1)
    printf("%d: %c%%\n", at, 'a' + at % 26);
}

// All threads hold memory at once, of different sizes, and nobody finds what others wrote.
extern "C" __global__ void heap(int *out, int rounds) {
  int at = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
  for (int round = 0; round < rounds; ++round) {
    int count = threadIdx.x % 7 + 1 + round * 50;
    int *own = (int *)malloc(count * sizeof(int));
    if (!own)
      asm("trap;");
    for (int i = 0; i < count; ++i)
      own[i] = at + i;
    __syncthreads();
    for (int i = 0; i < count; ++i)
      sum += own[i];
    free(own);
  }
  out[at] = sum;
}

extern "C" __global__ void too_much(int *out) { *out = malloc(1ull << 40) ? 1 : 2; }

extern "C" __global__ void checked(int limit) { assert(threadIdx.x < limit); }

// Headers that come with CUDA beside its own: libcu++, cuRAND, and numbers of 16 bits, which need libcu++.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/std/array>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <curand_kernel.h>
namespace cg = cooperative_groups;

extern "C" __global__ void halves(const float *in, float *out) {
    int i = threadIdx.x;
    cuda::std::array<__half, 2> pair = {__float2half(in[i]), __float2half(1.0f)};
    __nv_bfloat16 twice = __hmul(__float2bfloat16(in[i]), __float2bfloat16(2.0f));
    out[i] = __half2float(__hadd(pair[0], pair[1])) + __bfloat162float(twice);
}

extern "C" __global__ void uniform(float *out) {
    curandState state;
    curand_init(7, threadIdx.x, 0, &state);
    out[threadIdx.x] = curand_uniform(&state);
}

// The blocks count, wait for each other, and see what all have counted.
extern "C" __global__ void grid_barrier(int *counter, int *seen) {
    cg::grid_group grid = cg::this_grid();
    for (int round = 0; round < 3; ++round) {
        atomicAdd(counter, 1);
        grid.sync();
        seen[round * grid.size() + grid.thread_rank()] = *(volatile int *)counter;
        grid.sync();
    }
}

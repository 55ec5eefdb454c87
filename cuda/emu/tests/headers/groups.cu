// Cooperative groups, by CUDA's own header.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void tiles(const int *in, int *out) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    int v = in[block.group_index().x * block.size() + block.thread_rank()];
    if (tile.meta_group_rank() % 2 == 0) {
        for (int by = tile.size() / 2; by > 0; by /= 2) v += tile.shfl_down(v, by);
        v = tile.shfl(v, 0);
    } else {
        v = cg::reduce(tile, v, cg::greater<int>());
    }
    block.sync();
    out[block.group_index().x * block.size() + block.thread_rank()] = v;
}

// Lanes that are together count once.
extern "C" __global__ void coalesced(const int *in, int *counter, int *rank) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    rank[i] = -1;
    if (in[i] % 3 == 0) {
        cg::coalesced_group g = cg::coalesced_threads();
        int base;
        if (g.thread_rank() == 0) base = atomicAdd(counter, (int)g.size());
        rank[i] = g.shfl(base, 0) + g.thread_rank();
    }
}

extern "C" __global__ void grid_sync(const int *in, int *middle, int *out) {
    cg::thread_block block = cg::this_thread_block();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    middle[i] = in[i] + __popc(__ballot_sync(~0u, in[i] & 1)) + __shfl_xor_sync(~0u, in[i], 3);
    block.sync();
    out[i] = middle[blockIdx.x * blockDim.x + blockDim.x - 1 - threadIdx.x];
}

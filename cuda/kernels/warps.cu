// What lanes of a warp do together, and blocks of a grid.
#include "device.h"

// Prefix sums of a warp by shuffles.
KERNEL warp_scan(const int *in, int *out) {
    int i = global_id(), v = in[i];
    for (int by = 1; by < 32; by *= 2) {
        int other = shuffle_up(FULL, v, by);
        if (lane() >= by) v += other;
    }
    out[i] = v;
}

// What lanes get whose partner is outside of their segment.
KERNEL edges(const int *in, int *out) {
    int i = global_id(), v = in[i];
    out[i * 4] = shuffle_down(FULL, v, 5);
    out[i * 4 + 1] = shuffle_up(FULL, v, 5);
    out[i * 4 + 2] = __nvvm_shfl_sync_idx_i32(FULL, v, lane() / 3 + 2, 31 | 24 << 8);
    out[i * 4 + 3] = __nvvm_shfl_sync_down_i32(FULL, v, 3, 31 | 24 << 8);
}

// Sums of tiles of eight lanes, where only every second tile takes part.
KERNEL tiles(const int *in, int *out) {
    int i = global_id(), tile = lane() / 8, v = in[i];
    if (tile % 2 == 0) {
        u32 mask = 0xffu << tile * 8;
        for (int by = 4; by > 0; by /= 2) v += __nvvm_shfl_sync_down_i32(mask, v, by, 31 | 24 << 8);
        v = __nvvm_shfl_sync_idx_i32(mask, v, 0, 31 | 24 << 8);
    }
    out[i] = v;
}

// Keeps the positive values of each warp, in order, by ballots.
KERNEL compact(const int *in, int *out, int *count) {
    int i = global_id(), v = in[i];
    u32 keep = ballot(FULL, v > 0);
    int base = 0;
    if (lane() == 0) base = atomic_add(count, (int)__builtin_popcount(keep));
    base = shuffle(FULL, base, 0);
    if (v > 0) out[base + __builtin_popcount(keep & ((1u << lane()) - 1))] = v;
}

// Lanes with equal keys find each other.
KERNEL matching(const int *in, u32 *out, int *all) {
    int i = global_id();
    out[i] = __nvvm_match_any_sync_i32(FULL, in[i]);
    int same = 0;
    asm volatile("{ .reg .pred p; .reg .b32 m; match.all.sync.b32 m|p, %1, 0xffffffff; selp.b32 %0, 1, 0, p; }"
                 : "=r"(same) : "r"(in[i] / 100));
    all[i] = same;
}

// Reductions of a whole warp in one instruction.
KERNEL redux(const int *in, int *out) {
    int i = global_id();
    out[i * 3] = __nvvm_redux_sync_add(in[i], FULL);
    out[i * 3 + 1] = __nvvm_redux_sync_min(in[i], FULL);
    out[i * 3 + 2] = __nvvm_redux_sync_xor(in[i], FULL);
}

// The block that ends last sums what all others left.
__device__ u32 tickets;
KERNEL last_block(const int *in, int *parts, int *out, int n) {
    __shared__ int sum;
    __shared__ bool last;
    if (tid() == 0) sum = 0;
    __syncthreads();
    int mine = 0;
    for (int i = global_id(); i < n; i += block_size() * grid_size()) mine += in[i];
    atomic_add(&sum, mine);
    __syncthreads();
    if (tid() == 0) {
        parts[block()] = sum;
        fence();
        last = atomic_inc(&tickets, grid_size() - 1) == grid_size() - 1;
    }
    __syncthreads();
    if (!last || tid() != 0) return;
    int total = 0;
    for (int b = 0; b < grid_size(); b++) total += ((volatile int *)parts)[b];
    *out = total;
}

// A lock, taken by one thread of each block.
KERNEL locked(int *lock, int *value) {
    if (tid() != 0) return;
    while (atomic_cas(lock, 0, 1) != 0) {
    }
    fence();
    *value = *(volatile int *)value * 3 + 1;
    fence();
    atomic_exchange(lock, 0);
}

// All the other atomics.
KERNEL atomics(int *v, u32 *rings, float *sum, int n) {
    int i = global_id();
    if (i >= n) return;
    atomic_max(&v[0], i * 7 % 101);
    atomic_and(&v[1], ~(1 << i % 20));
    atomic_or(&v[2], 1 << i % 30);
    atomic_xor(&v[3], i * 77);
    v[4 + i] = (int)atomic_inc(&rings[0], 9) + 100 * (int)atomic_dec(&rings[1], 6);
    atomic_add(sum, 0.5f);
}

// Waits for the block before it, by a flag in memory.
KERNEL chained(const int *in, volatile int *flags, int *out) {
    __shared__ int sums[64];
    sums[tid()] = in[global_id()];
    __syncthreads();
    if (tid() == 0) {
        int total = 0;
        for (int k = 0; k < 64; k++) total += sums[k];
        if (block() > 0)
            while (flags[block() - 1] == 0) {
            }
        int before = block() > 0 ? ((volatile int *)out)[block() - 1] : 0;
        ((volatile int *)out)[block()] = before + total;
        fence();
        flags[block()] = 1;
    }
}

// Every block waits for every other: a launch that must be cooperative.
KERNEL grid_barrier(int *arrived, const int *in, int *middle, int *out) {
    int i = global_id();
    middle[i] = in[i] * 2;
    __syncthreads();
    if (tid() == 0) {
        fence();
        atomic_add(arrived, 1);
        while (*(volatile int *)arrived < (int)grid_size()) {
        }
        fence();
    }
    __syncthreads();
    int n = grid_size() * block_size();
    out[i] = middle[n - 1 - i];
}

// Every state space, and every way into it.
#include "device.h"

__constant__ float taps[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
__device__ int launches = 40;
__device__ int *where = &launches;

// A filter with constant taps and a tile of dynamic shared memory.
extern __shared__ float tile[];
KERNEL convolve(const float *in, float *out, int n) {
    int i = global_id(), t = tid();
    tile[t + 2] = i < n ? in[i] : 0;
    if (t < 2) {
        tile[t] = i >= 2 ? in[i - 2] : 0;
        tile[t + 2 + block_size()] = i + block_size() < n ? in[i + block_size()] : 0;
    }
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 5; k++) sum += taps[k] * tile[t + k];
    if (i < n) out[i] = sum;
    if (i == 0) (*where)++;
}

// A transpose through padded shared memory, four values at a time.
KERNEL transpose(const float4 *in, float *out, int n) {
    __shared__ float s[32][33];
    int x = tid(), y = tid_y();
    float4 v = in[((block_y() * 32 + y) * n + block() * 32) / 4 + x];
    s[y][x * 4] = v.x, s[y][x * 4 + 1] = v.y, s[y][x * 4 + 2] = v.z, s[y][x * 4 + 3] = v.w;
    __syncthreads();
    for (int k = 0; k < 4; k++) out[(block() * 32 + y) * n + block_y() * 32 + x * 4 + k] = s[x * 4 + k][y];
}

struct Options {
    int scale;
    double offset;
    short table[6];
};

// A struct by value, indexed where it is not known which element.
KERNEL options(Options o, const int *in, double *out, int n) {
    int i = global_id();
    if (i < n) out[i] = o.scale * in[i] + o.offset + o.table[in[i] % 6];
}

// The same in functions: read where it lies, handed on by its address, and written to.
__device__ __noinline__ static int element(Options o, int k) { return o.table[k % 6]; }
__device__ __noinline__ static int behind(const short *table, int k) { return table[k % 6]; }
__device__ __noinline__ static int handed_on(Options o, int k) { return behind(o.table, k); }
__device__ __noinline__ static int changed(Options o, int k) {
    o.table[k % 6] += 100;
    return o.table[k % 3];
}
KERNEL options_of_functions(const short *in, int *out, int n) {
    int i = global_id();
    if (i >= n) return;
    Options o = {i, 0.5, {}};
    for (int k = 0; k < 6; k++) o.table[k] = in[i + k];
    out[i] = element(o, i) + 1000 * handed_on(o, i + 1) + 1000000 * changed(o, i + 2);
}

// An array of each thread's own.
KERNEL local_array(const int *in, int *out, int n) {
    int i = global_id(), digits[16];
    if (i >= n) return;
    int v = in[i], count = 0;
    do {
        digits[count++] = v % 10;
        v /= 10;
    } while (v);
    int r = 0;
    for (int k = 0; k < count; k++) r = r * 10 + digits[k];
    out[i] = r + digits[in[i] % count];
}

__device__ __noinline__ static int sum_of(const int *p, int n) {
    int s = 0;
    for (int k = 0; k < n; k++) s += p[k];
    return s;
}

// One function, called with pointers to shared, local and global memory.
KERNEL generic(const int *in, int *out) {
    __shared__ int s[32];
    int l[4];
    s[tid()] = in[tid()] + 1;
    for (int k = 0; k < 4; k++) l[k] = in[(tid() + k) % 32] * k;
    __syncthreads();
    out[tid()] = sum_of(s, 32) + sum_of(l, 1 + tid() % 4) * 1000 + sum_of(in, tid());
}

// Threads of a block in three dimensions.
KERNEL dimensions(u32 *out) {
    u32 i = (tid_z() * block_size_y() + tid_y()) * block_size() + tid();
    u32 b = block_y() * grid_size() + block();
    out[b * 60 + i] = tid() + 10 * tid_y() + 100 * tid_z() + 1000 * block() + 10000 * block_y();
}

// Copies that the hardware does by itself.
KERNEL copies(const float4 *in, float4 *out) {
    __shared__ float4 s[64];
    unsigned to = (unsigned)(u64)(__attribute__((address_space(3))) void *)&s[tid()];
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + global_id()) : "memory");
    asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    out[global_id()] = s[63 - tid()];
}

// Shared memory that belongs to the system, for groups of several warps.
KERNEL reserved_shared(int *out) {
    __shared__ int own[96];
    int *reserved, i = tid();
    asm("{ .reg .u32 at; .reg .u64 wide; mov.u32 at, %%reserved_smem_offset_1; cvt.u64.u32 wide, at; "
        "cvta.shared.u64 %0, wide; }" : "=l"(reserved));
    own[i] = i;
    if (i < 72) reserved[i] = i * 3;
    __syncthreads();
    out[i] = own[95 - i] + reserved[i % 72];
}

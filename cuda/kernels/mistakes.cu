// One mistake each, for the checks to find. Lines matter: tests name them.
#include "device.h"

KERNEL past_the_end(int *data, int n) {
    int i = global_id();
    if (i <= n) data[i] = i; // one too far
}

KERNEL misaligned(char *data) {
    *(int *)(data + tid() + 1) = 1; // not a multiple of four
}

KERNEL null_pointer(int *data) {
    if (tid() == 5) *(volatile int *)0 = data[0]; // null
}

KERNEL shared_overrun(int *out, int n) {
    __shared__ int s[32];
    s[tid() + n] = 1; // beyond the array
    out[tid()] = s[tid()];
}

KERNEL never_written(int *out) {
    __shared__ int s[64];
    if (tid() < 32) s[tid()] = tid();
    __syncthreads();
    out[tid()] = s[tid()]; // half of it
}

KERNEL parted_barrier(int *out) {
    if (tid() % 32 < 7) __syncthreads(); // seven lanes of each warp
    out[tid()] = 1;
    __syncthreads();
}

KERNEL left_out_of_barrier(int *out) {
    if (tid() % 32 < 7) __syncthreads(); // only seven
    out[tid()] = 1;
}

KERNEL no_barrier(int *out) {
    __shared__ int s[64];
    s[tid()] = tid();
    out[tid()] = s[63 - tid()]; // written by the other warp
}

KERNEL missing_barrier_in_loop(const int *in, int *out, int n) {
    __shared__ int s[64];
    int sum = 0;
    for (int r = 0; r < n; r++) {
        s[tid()] = in[r * 64 + tid()]; // while others still read
        __syncthreads();
        sum += s[63 - tid()];
    }
    out[tid()] = sum;
}

KERNEL waits_forever(int *out) {
    if (tid() < 32) {
        __nvvm_barrier_sync_cnt(1, 64); // the other warp waits elsewhere
    } else {
        __nvvm_barrier_sync_cnt(2, 64);
    }
    out[tid()] = 1;
}

KERNEL never_ends(volatile int *flag) {
    while (*flag == 0) {
    }
}

KERNEL trapped(const int *in) {
    if (in[tid()] == 3) __builtin_trap(); // the fourth thread
}

KERNEL absent_lane(int *out) {
    int v = tid();
    if (tid() != 3) v = shuffle_xor(FULL, v, 1); // names lane 3
    out[tid()] = v;
}

extern "C" __device__ void __assertfail(const char *, const char *, u32, const char *, u64);
KERNEL asserted(const int *in) {
    if (in[tid()] < 0) __assertfail("in[i] >= 0", "mistakes.cu", 86, "asserted", 1);
}

KERNEL prints(int n) {
    if (tid() < n) printf("thread %d of %s: %5.2f %lld\n", tid(), "prints", tid() * 0.5, 1ll << (tid() + 32));
}

KERNEL two_barriers(int *out) {
    if (tid() & 1) {
        __nvvm_barrier_sync(1); // the odd ones
    } else {
        __nvvm_barrier_sync(2);
    }
    out[tid()] = 1;
}

__device__ __noinline__ void meet(int *out) {
    out[tid()] = 2;
    __syncthreads(); // in a function
}

KERNEL left_out_of_call(int *out) {
    if (tid() % 32 < 7) meet(out);
    out[tid()] += 1;
}

KERNEL barrier_or_shuffle(int *out) {
    int v = tid();
    if (tid() & 1) meet(out);
    else v = shuffle_xor(FULL, v, 1); // names the odd ones, too
    out[tid()] = v;
}

KERNEL element(int *data, i64 at) {
    data[at] = 1; // anywhere
}

// The compiler may make one end of both, and many copies of the loop: to the machine, those that leave
// it early pass the barrier by.
KERNEL leaves_a_loop(int *out) {
    __shared__ int s[64];
    int i = tid();
    s[i] = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        if (i == 3 * k) {
            out[i] = k;
            return;
        }
        __syncthreads(); // in each round
        s[i] += k;
    }
    out[i] = s[i];
}

// Control flow: specialised warps, switches, calls, votes.
#include "device.h"

DEVICE void wait(int barrier) { __nvvm_barrier_sync_cnt(barrier, 128); }
DEVICE void arrive(int barrier) { asm volatile("barrier.arrive %0, 128;" ::"r"(barrier) : "memory"); }

// The first warp loads, the others compute; named barriers say what is full and what is free.
KERNEL specialised(const int *in, int *out, int rounds) {
    __shared__ int stage[2][96];
    int warp = tid() / 32;
    if (warp == 0) {
        for (int r = 0; r < rounds; r++) {
            if (r >= 2) wait(3 + (r & 1));
            for (int k = lane(); k < 96; k += 32) stage[r & 1][k] = in[r * 96 + k] + 1;
            arrive(1 + (r & 1));
        }
    } else {
        int sum = 0, at = tid() - 32;
        for (int r = 0; r < rounds; r++) {
            wait(1 + (r & 1));
            sum += stage[r & 1][at] * (r + 1);
            if (r + 2 < rounds) arrive(3 + (r & 1));
        }
        out[at] = sum;
    }
}

// A dense switch, which becomes a jump table.
KERNEL dispatch(const int *ops, const int *in, int *out, int n) {
    int i = global_id();
    if (i >= n) return;
    int v = in[i];
    switch (ops[i]) {
    case 0: v += 7; break;
    case 1: v *= v; break;
    case 2: v = -v; // falls through
    case 3: v -= 100; break;
    case 4: v = v / (i % 5 + 1); break;
    case 5: v ^= 0x55; break;
    case 6: out[i] = v << 3; return;
    case 7: v = v % 13; break;
    case 8: v = v > 0 ? 1 : -1; break;
    default: v = 0;
    }
    out[i] = v;
}

// A sparse switch, which becomes compares.
KERNEL sparse(const int *in, int *out, int n) {
    int i = global_id();
    if (i >= n) return;
    switch (in[i]) {
    case 3: out[i] = i * i; break;
    case 1000: out[i] = i + 1; break;
    case -77777: out[i] = 0; break;
    default: out[i] = in[i] * 2;
    }
}

__device__ __noinline__ static float power(float base, int exponent) {
    float r = 1;
    for (int k = 0; k < exponent; k++) r *= base;
    return r;
}
struct Pair {
    i64 a;
    int b[3];
};
__device__ __noinline__ static Pair mix(Pair p, int k) {
    Pair r = {p.a * 3 + k, {p.b[2], p.b[0] + k, p.b[1] ^ k}};
    return r;
}

// Calls with scalars and structs, from divergent lanes, nested.
__device__ __noinline__ static int nested(int depth, float x) {
    if (x > 3) return depth;
    return depth + (int)power(x, 2);
}
KERNEL calls(const float *in, float *out, i64 *pairs, int n) {
    int i = global_id();
    if (i >= n) return;
    float v = in[i];
    if (v > 0) v = power(v, i % 5);
    Pair p = {i, {1, 2, 3}};
    for (int k = 0; k < i % 4; k++) p = mix(p, k);
    pairs[i] = p.a + p.b[0] * 1000 + p.b[1] * 100 + p.b[2];
    out[i] = v + nested(i, v);
}

typedef int (*Operation)(int, int);
__device__ static int plus(int a, int b) { return a + b; }
__device__ static int times(int a, int b) { return a * b; }
__device__ static int larger(int a, int b) { return a > b ? a : b; }
__device__ Operation operations[3] = {plus, times, larger};

// Function pointers that differ between lanes.
KERNEL pointers(const int *in, int *out, int n) {
    int i = global_id();
    if (i >= n) return;
    out[i] = operations[in[i] % 3](in[i], i);
}

// Loops in loops, left from the middle.
KERNEL nest(int *out, int n) {
    int i = global_id();
    if (i >= n) return;
    int found = -1, steps = 0;
    for (int a = 1; a < 30 && found < 0; a++)
        for (int b = a; b < 30; b++) {
            steps++;
            if (a * b % 7 == i % 7 && a + b > i % 40) {
                found = a * 100 + b;
                break;
            }
            if (b - a > i % 11) break;
        }
    out[i] = found * 10000 + steps;
}

// Lanes leave one by one while the warp votes.
KERNEL votes(const int *in, u32 *out) {
    int i = global_id(), v = in[i];
    u32 rounds = 0, seen = 0;
    while (__nvvm_vote_any_sync(FULL, v > 0)) {
        u32 b = ballot(FULL, v & 1);
        seen = seen * 31 + b;
        v = v & 1 ? v - 1 : v / 2;
        rounds += __nvvm_vote_all_sync(FULL, v > 0) ? 100 : 1;
    }
    out[i] = seen ^ rounds;
}

// The mask of lanes on each side of a branch.
KERNEL masks(const int *in, u32 *out) {
    int i = global_id();
    u32 here;
    if (in[i] > 10) {
        here = active();
        if (in[i] > 20) here ^= active() << 1;
    } else
        here = ~active();
    out[i] = here;
}

// Collatz steps: the loop that diverges most.
KERNEL collatz(const u32 *in, int *out, int n) {
    int i = global_id();
    if (i >= n) return;
    u64 v = in[i];
    int steps = 0;
    while (v != 1) {
        v = v & 1 ? 3 * v + 1 : v >> 1;
        steps++;
    }
    out[i] = steps;
}

// Threads that have nothing to do leave, and the others go on together.
KERNEL early_return(const int *in, int *out, int n) {
    __shared__ int s[96];
    int i = tid();
    if (i >= n) {
        atomic_add(&out[i], -1);
        return;
    }
    s[i] = in[i];
    __syncthreads();
    int v = s[n - 1 - i];
    out[i] = v + shuffle_xor(FULL, v, 1) + __builtin_popcount(ballot(FULL, v & 1));
}

// Returns half-way leave no place in the code where all lanes that are left must come by.
__device__ __noinline__ int exchange(int *s, int i, int v) {
    s[i] = v;
    __syncthreads();
    return s[i ^ 33];
}

KERNEL return_then_call(const int *in, int *out, int n) {
    __shared__ int s[64];
    int i = tid();
    s[i] = 0;
    __syncthreads();
    if (i >= n) return;
    out[i] = exchange(s, i, in[i]);
}

KERNEL return_in_a_branch(const int *in, int *out, int n) {
    __shared__ int s[64];
    int i = tid();
    s[i] = 0;
    if (i < n) {
        s[i] = in[i];
        if (in[i] < -50) {
            atomic_add(&out[i], 1);
            return;
        }
    }
    __syncthreads();
    out[i] = s[i ^ 33];
}

KERNEL returns_in_a_chain(const int *in, int *out) {
    __shared__ int s[64];
    int i = tid(), v = in[i];
    s[i] = v;
    if (v % 8 == 0) {
        out[i] = 5;
        return;
    } else if (v % 8 == 1) {
        atomic_add(&out[i], 2);
        return;
    } else if (v % 8 == 2) {
        if (i & 1) return;
    } else if (v % 8 == 3) {
        s[i] *= 2;
    } else if (v % 8 == 6) {
        for (int k = 0; k < i; k++) out[i] ^= k * 3;
        return;
    } else {
        out[i] = 7;
    }
    __syncthreads();
    out[i] += s[i ^ 33];
}

// One barrier in a function that lanes call from different places.
__device__ __noinline__ int count_all(bool p) { return __nvvm_bar0_popc(p); }

KERNEL calls_from_two_places(const int *in, int *out) {
    int i = tid(), v = in[i];
    if (v & 1)
        out[i] = count_all(v > 0) * 2 + 1;
    else
        out[i] = count_all(v > 10) * 3;
    out[i] += shuffle_xor(FULL, v, 7) + count_all(v & 2);
}

// Lanes 1 and 20 meet while others wait for lane 1.
KERNEL meets_in_turn(const int *in, int *out) {
    int i = tid(), v = in[i];
    if (i == 1 || i == 20) v += shuffle_xor(1u << 1 | 1u << 20, v, 21);
    if (i < 16) {
        if (v == 1000) return;
        v += shuffle_xor(0xffff, v, 1);
    }
    out[i] = v + shuffle_xor(FULL, v, 16);
}

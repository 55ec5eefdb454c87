// One difficulty each; tests/events.rs says what each must record.
#include "cuda.h"
#include "nvabi_trace_device.h"

// Lane n goes round n times: lane 0 leaves first.
extern "C" __global__ void divergent_loop(u32 *out) {
    u32 sum = 0;
    for (u32 round = 0; round < lane(); round++) {
        sum += out[round];
    }
    out[lane()] = sum;
}

// All lanes agree.
extern "C" __global__ void uniform(u32 *out, u32 n) {
    if (n > 3) {
        out[lane()] = 1;
    }
}

// Odd lanes alone come to the inner branch.
extern "C" __global__ void nested(u32 *out) {
    if (lane() % 2 == 1) {
        if (lane() < 16) {
            out[lane()] = 1;
        }
    }
}

extern "C" __global__ void switched(u32 *out) {
    switch (lane() % 4) {
    case 0: out[lane()] = 10; break;
    case 1: out[lane()] = 11; break;
    case 2: out[lane()] = 12; break;
    default: out[lane()] = 13;
    }
}

extern "C" __global__ void shared_store(u32 *out) {
    __shared__ u64 tile[32];
    tile[lane()] = 0x1122334455667788ull + lane();
    barrier();
    out[lane()] = (u32)tile[31 - lane()];
}

__device__ __noinline__ void store_somewhere(u32 *to, u32 value) { *to = value; }

// The callee does not know that its pointer is to shared memory.
extern "C" __global__ void generic_store(u32 *out) {
    __shared__ u32 tile[32];
    store_somewhere(lane() < 8 ? &out[lane()] : &tile[lane()], lane());
    barrier();
    out[lane()] = tile[lane() < 8 ? 8 : lane()];
}

extern "C" __global__ void atomics(u64 *out) {
    if (lane() == 0) {
        __nvvm_atom_add_gen_ll((long long *)out, 0x100000000ll);
        __nvvm_atom_cas_gen_ll((long long *)out, 0x100000005ll, 7);
    }
}

__device__ __noinline__ void callee(u32 *out, u32 value) {
    if (value > 5) {
        out[value] = value * 2;
    }
}

extern "C" __global__ void calls(u32 *out) { callee(out, lane()); }

__device__ __forceinline__ u32 inlined(u32 value) {
    if (value > 7) {
        return value * 3;
    }
    return value;
}

extern "C" __global__ void inlines(u32 *out) {
    out[lane()] = inlined(lane());
    out[lane()] += inlined(lane() + 1);
}

// Lanes leave one after another.
extern "C" __global__ void early_exit(u32 *out) {
    if (lane() < 4) {
        return;
    }
    if (lane() < 20) {
        out[lane()] = 1;
        return;
    }
    out[lane()] = 2;
}

// Events before and after count, those in between do not.
extern "C" __global__ void paused(u32 *out, u32 n) {
    if (n > 1) {
        out[0] = 1;
    }
    nvabi_trace_pause();
    for (u32 round = 0; round < n; round++) {
        out[round] += round;
    }
    nvabi_trace_resume();
    if (n > 2) {
        out[1] = 2;
    }
}

NVABI_TRACE __device__ __noinline__ u32 wanted(u32 value) { return value > 9 ? value / 3 : 0; }
NVABI_NO_TRACE __device__ __noinline__ u32 unwanted(u32 value) { return value > 9 ? value / 5 : 0; }

extern "C" __global__ void annotated(u32 *out) { out[lane()] = wanted(lane()) + unwanted(lane()); }

// A phi at the head of a block that a branch leads to.
extern "C" __global__ void phis(u32 *out, u32 n) {
    u32 a = 1, b = 2;
    for (u32 round = 0; round < n; round++) {
        u32 next = round % 2 ? a + b : a * b;
        a = b;
        b = next;
    }
    out[lane()] = b;
}

struct Twelve { u32 first, second, third; };
struct Three { unsigned char first, second, third; };
__device__ Twelve twelves[2] = {{8, 7, 9}, {6, 5, 4}};
__device__ Three threes[2] = {{1, 2, 3}, {4, 5, 6}};

__device__ __noinline__ void copy_somewhere(void *to, const void *from, u32 bytes) {
    __builtin_memcpy(to, from, bytes);
}

__device__ __noinline__ void fill_somewhere(void *to, u32 byte, u32 bytes) {
    __builtin_memset(to, byte, bytes);
}

// Structs, known lengths, lengths that show at run time, and memory that is not shared.
extern "C" __global__ void copies(u32 *out, u32 n) {
    __shared__ Twelve tile[32];
    __shared__ Three small[32];
    __shared__ u32 bytes[32][4];
    tile[lane()] = twelves[lane() % 2];
    small[lane()] = threes[lane() % 2];
    __builtin_memset(bytes[lane()], 0xab, 16);
    copy_somewhere(lane() < 8 ? (void *)&out[4 * lane()] : bytes[lane()], &tile[lane()], n);
    fill_somewhere(bytes[lane()], lane() + 1, lane() % 4 == 0 ? 0 : n - 2);
    barrier();
    out[lane()] += bytes[lane()][0] + tile[31 - lane()].first + small[31 - lane()].third;
}

// As CUDA's headers write what C++ has no word for.
extern "C" __global__ void assembly(u64 *out, u32 n) {
    __shared__ u32 tile[32];
    u32 to = (u32)(u64)(__attribute__((address_space(3))) u32 *)&tile[lane()], old, below;
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(n + lane()) : "memory");
    if (lane() == 3) {
        asm volatile("{ atom.global.add.u32 %0,[%1],%2; }" : "=r"(old) : "l"(out), "r"(n) : "memory");
        asm volatile("mov.u32 %0, %%lanemask_lt; atom.global.add.u32 %1, [%2], %3;"
                     : "=r"(below), "=r"(old)
                     : "l"(out), "r"(below + old)
                     : "memory");
        asm volatile("red.global.add.u32 [%0], %1;" ::"l"(out), "r"(old) : "memory");
        asm volatile("{ .reg .pred p; setp.eq.u32 p, %1, 0; @p red.global.add.u32 [%0], 1; }" ::"l"(out),
                     "r"(n)
                     : "memory");
    }
    barrier();
    out[lane() + 1] = tile[31 - lane()];
}

__device__ __noinline__ void leave(u32 *out, u32 value) {
    if (value > 20) {
        out[value] = 3;
        __nvvm_exit();
    }
}

__device__ __noinline__ void leave_quietly(u32 value) {
    if (value < 30) {
        asm volatile("exit;");
    }
}

// All threads end inside of functions, one of which tests leave out.
extern "C" __global__ void ended(u32 *out) {
    leave(out, lane());
    if (lane() % 2) {
        out[lane()] = 5;
    }
    leave_quietly(lane());
}

// The end of the kernel has an address, which clang refuses at -O0.
extern "C" __global__ void jumps(u32 *out, u32 n) {
#ifdef __OPTIMIZE__
    const void *to = out[lane()] + lane() > n ? &&end : &&work;
    goto *to;
work:
    out[lane()] = lane() + 10;
end:;
#else
    out[lane()] = n;
#endif
}

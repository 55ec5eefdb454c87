// What CUDA C++ has without a header, for kernels that clang compiles with -nocudainc -nocudalib:
// nothing but clang is needed. The names are CUDA's; the bodies are clang's builtins.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __noinline__ __attribute__((noinline))
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ inline

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct alignas(16) float4 {
    float x, y, z, w;
};

DEVICE u32 tid() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE u32 tid_y() { return __nvvm_read_ptx_sreg_tid_y(); }
DEVICE u32 tid_z() { return __nvvm_read_ptx_sreg_tid_z(); }
DEVICE u32 block() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE u32 block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE u32 block_size() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE u32 block_size_y() { return __nvvm_read_ptx_sreg_ntid_y(); }
DEVICE u32 grid_size() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE u32 global_id() { return block() * block_size() + tid(); }
DEVICE u32 lane() { return tid() & 31; }

#define FULL 0xffffffffu
DEVICE int shuffle_down(u32 mask, int v, int by) { return __nvvm_shfl_sync_down_i32(mask, v, by, 31); }
DEVICE int shuffle_up(u32 mask, int v, int by) { return __nvvm_shfl_sync_up_i32(mask, v, by, 0); }
DEVICE int shuffle_xor(u32 mask, int v, int by) { return __nvvm_shfl_sync_bfly_i32(mask, v, by, 31); }
DEVICE int shuffle(u32 mask, int v, int from) { return __nvvm_shfl_sync_idx_i32(mask, v, from, 31); }
DEVICE float shuffle_xor(u32 mask, float v, int by) { return __nvvm_shfl_sync_bfly_f32(mask, v, by, 31); }
DEVICE u32 ballot(u32 mask, bool p) { return __nvvm_vote_ballot_sync(mask, p); }
DEVICE u32 active() { return __nvvm_activemask(); }
DEVICE void sync_warp(u32 mask) { __nvvm_bar_warp_sync(mask); }
DEVICE void fence() { __nvvm_membar_gl(); }
DEVICE void fence_block() { __nvvm_membar_cta(); }

DEVICE int atomic_add(int *p, int v) { return __nvvm_atom_add_gen_i(p, v); }
DEVICE u32 atomic_add(u32 *p, u32 v) { return __nvvm_atom_add_gen_i((int *)p, v); }
DEVICE u64 atomic_add(u64 *p, u64 v) { return __nvvm_atom_add_gen_ll((i64 *)p, v); }
DEVICE float atomic_add(float *p, float v) { return __nvvm_atom_add_gen_f(p, v); }
DEVICE double atomic_add(double *p, double v) { return __nvvm_atom_add_gen_d(p, v); }
DEVICE int atomic_cas(int *p, int old, int v) { return __nvvm_atom_cas_gen_i(p, old, v); }
DEVICE u64 atomic_cas(u64 *p, u64 old, u64 v) { return __nvvm_atom_cas_gen_ll((i64 *)p, old, v); }
DEVICE int atomic_exchange(int *p, int v) { return __nvvm_atom_xchg_gen_i(p, v); }
DEVICE int atomic_max(int *p, int v) { return __nvvm_atom_max_gen_i(p, v); }
DEVICE u64 atomic_max(u64 *p, u64 v) { return __nvvm_atom_max_gen_ull(p, v); }
DEVICE i64 atomic_min(i64 *p, i64 v) { return __nvvm_atom_min_gen_ll(p, v); }
DEVICE int atomic_and(int *p, int v) { return __nvvm_atom_and_gen_i(p, v); }
DEVICE int atomic_or(int *p, int v) { return __nvvm_atom_or_gen_i(p, v); }
DEVICE int atomic_xor(int *p, int v) { return __nvvm_atom_xor_gen_i(p, v); }
DEVICE u32 atomic_inc(u32 *p, u32 limit) { return __nvvm_atom_inc_gen_ui(p, limit); }
DEVICE u32 atomic_dec(u32 *p, u32 limit) { return __nvvm_atom_dec_gen_ui(p, limit); }

DEVICE float exp2_approx(float x) { return __nvvm_ex2_approx_f(x); }
DEVICE float rsqrt_approx(float x) { return __nvvm_rsqrt_approx_f(x); }
DEVICE float max2(float a, float b) { return __nvvm_fmax_f(a, b); }
DEVICE float square_root(float x) { return __nvvm_sqrt_rn_f(x); }
DEVICE double square_root(double x) { return __nvvm_sqrt_rn_d(x); }

extern "C" __device__ int vprintf(const char *, const void *);
extern "C" __device__ int printf(const char *, ...);

// As much of CUDA as the kernels here need, so that they compile without its headers.
#pragma once
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u32 lane() { return __nvvm_read_ptx_sreg_tid_x(); }
__device__ __forceinline__ u32 block() { return __nvvm_read_ptx_sreg_ctaid_x(); }
__device__ __forceinline__ void barrier() { __nvvm_bar_sync(0); }

// What nvcc's headers have and clang's lack, for programs that nvcc compiles: `cuda/nvcc.sh` includes it first.
#pragma once
#if defined(__CUDACC__) && defined(__cplusplus)

// `max` and `min` of the host; of integers with and without a sign, as integers without.
#define NVABI_OF(type, a, b)                                                                          \
    __host__ inline type max(a x, b y) { return (type)x > (type)y ? (type)x : (type)y; }             \
    __host__ inline type min(a x, b y) { return (type)x < (type)y ? (type)x : (type)y; }
NVABI_OF(int, int, int)
NVABI_OF(unsigned, unsigned, unsigned)
NVABI_OF(unsigned, unsigned, int)
NVABI_OF(unsigned, int, unsigned)
NVABI_OF(long long, long long, long long)
NVABI_OF(unsigned long long, unsigned long long, unsigned long long)
NVABI_OF(float, float, float)
NVABI_OF(double, double, double)
NVABI_OF(double, float, double)
NVABI_OF(double, double, float)
#undef NVABI_OF

// Declared by clang's headers, and by vtables, and defined nowhere.
static __device__ double nan(const char *tag) { return __nv_nan((const signed char *)tag); }
extern "C" __device__ __attribute__((weak)) void __cxa_pure_virtual() { __trap(); }

// clang 19 hands mask and value to the instruction in the wrong order.
#if __clang_major__ <= 19
#define __reduce_add_sync(mask, value) __nvvm_redux_sync_add(value, mask)
#define __reduce_min_sync(mask, value) nvabi_reduce_min_sync(mask, value)
#define __reduce_max_sync(mask, value) nvabi_reduce_max_sync(mask, value)
#define __reduce_and_sync(mask, value) __nvvm_redux_sync_and(value, mask)
#define __reduce_or_sync(mask, value) __nvvm_redux_sync_or(value, mask)
#define __reduce_xor_sync(mask, value) __nvvm_redux_sync_xor(value, mask)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
__device__ inline unsigned nvabi_reduce_min_sync(unsigned mask, unsigned value) {
    return __nvvm_redux_sync_umin(value, mask);
}
__device__ inline int nvabi_reduce_min_sync(unsigned mask, int value) { return __nvvm_redux_sync_min(value, mask); }
__device__ inline unsigned nvabi_reduce_max_sync(unsigned mask, unsigned value) {
    return __nvvm_redux_sync_umax(value, mask);
}
__device__ inline int nvabi_reduce_max_sync(unsigned mask, int value) { return __nvvm_redux_sync_max(value, mask); }
#endif
#endif
#endif

// The functions of CUDA's mathematical library, one row of results each.
#include <cuda_runtime.h>

#define F32(X) X(sinf) X(cosf) X(tanf) X(asinf) X(acosf) X(atanf) X(sinhf) X(coshf) X(tanhf) X(expf) X(exp2f) \
    X(exp10f) X(expm1f) X(logf) X(log2f) X(log10f) X(log1pf) X(sqrtf) X(rsqrtf) X(cbrtf) X(erff) X(tgammaf) \
    X(__sinf) X(__cosf) X(__expf) X(__logf)
#define F64(X) X(sin) X(cos) X(tan) X(atan) X(exp) X(log) X(sqrt) X(cbrt) X(tanh) X(erf)

#define KERNEL(T, f)                                                       \
    extern "C" __global__ void k_##f(const T *in, T *out, int n) {         \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                     \
        if (i < n) out[i] = f(in[i]);                                      \
    }
#define SINGLE(f) KERNEL(float, f)
#define DOUBLE(f) KERNEL(double, f)
F32(SINGLE)
F64(DOUBLE)

#define powf_of_2_3(x) powf(x, 2.3f)
#define fdividef_by_3_1(x) __fdividef(x, 3.1f)
SINGLE(powf_of_2_3)
SINGLE(fdividef_by_3_1)

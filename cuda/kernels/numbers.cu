// Doubles, 64-bit integers, narrow types, bits.
#include "device.h"

// Dot product in double precision, gathered by an atomic.
KERNEL dot64(const double *a, const double *b, double *out, int n) {
    double sum = 0;
    for (int i = global_id(); i < n; i += block_size() * grid_size()) sum += a[i] * b[i];
    atomic_add(out, sum);
}

// Newton's method, conversions and comparisons of doubles.
KERNEL newton(const double *in, double *out, int *steps, int n) {
    int i = global_id();
    if (i >= n) return;
    double a = in[i], x = a > 1 ? a : 1;
    int k = 0;
    for (; k < 100; k++) {
        double next = 0.5 * (x + a / x), d = next - x;
        x = next;
        if (d < 1e-14 * x && d > -1e-14 * x) break;
    }
    out[i] = x + (double)(float)a + (double)(int)a - square_root(a);
    steps[i] = k;
}

// A compensated sum: order and rounding matter.
KERNEL kahan(const float *in, float *out, int n) {
    float sum = 0, lost = 0;
    for (int i = tid(); i < n; i += block_size()) {
        float y = __nvvm_add_rn_f(in[i], -lost), t = __nvvm_add_rn_f(sum, y);
        lost = __nvvm_add_rn_f(__nvvm_add_rn_f(t, -sum), -y);
        sum = t;
    }
    out[tid()] = sum;
    out[block_size() + tid()] = lost;
}

// Rounded in every direction.
KERNEL directions(const float *a, const float *b, float *out, int n) {
    int i = global_id();
    if (i >= n) return;
    out[i * 6] = __nvvm_add_rz_f(a[i], b[i]);
    out[i * 6 + 1] = __nvvm_add_rm_f(a[i], b[i]);
    out[i * 6 + 2] = __nvvm_mul_rp_f(a[i], b[i]);
    out[i * 6 + 3] = __nvvm_fma_rz_f(a[i], b[i], a[i]);
    out[i * 6 + 4] = __nvvm_div_rm_f(a[i], b[i]);
    out[i * 6 + 5] = (float)__nvvm_d2i_rm(a[i] * 100.0) + (float)__nvvm_f2i_rp(b[i]);
}

// Arithmetic of 64-bit integers.
KERNEL wide(const i64 *a, const i64 *b, i64 *out, int n) {
    int i = global_id();
    if (i >= n) return;
    i64 x = a[i], y = b[i];
    unsigned __int128 product = (unsigned __int128)(u64)x * (u64)y + (u64)x;
    out[i * 4] = x / y + x % y;
    out[i * 4 + 1] = (u64)x / (u64)y + (u64)x % (u64)y;
    out[i * 4 + 2] = (i64)(product >> 64) ^ (i64)product;
    out[i * 4 + 3] = (x << (y & 63)) ^ (x >> (y & 31)) ^ (i64)((u64)x >> 7);
}

// 64-bit atomics, and one made from compare-and-swap.
KERNEL atomics64(const i64 *in, u64 *sum, u64 *most, i64 *least, double *product, int n) {
    int i = global_id();
    if (i >= n) return;
    atomic_add(sum, (u64)in[i]);
    atomic_max(most, (u64)in[i]);
    atomic_min(least, in[i]);
    u64 *p = (u64 *)product, old = *(volatile u64 *)p;
    for (;;) {
        union {
            u64 bits;
            double value;
        } now = {old};
        now.value *= 1.0 + 1.0 / 1024;
        u64 got = atomic_cas(p, old, now.bits);
        if (got == old) break;
        old = got;
    }
}

// Bits counted, reversed, moved and permuted.
KERNEL bits(const u32 *in, u32 *out, int n) {
    int i = global_id();
    if (i >= n) return;
    u32 v = in[i], w = in[(i + 1) % n];
    u64 d = (u64)v << 32 | w;
    out[i * 6] = __builtin_popcount(v) + 100 * __builtin_popcountll(d);
    out[i * 6 + 1] = __builtin_bitreverse32(v);
    out[i * 6 + 2] = __builtin_clz(v | 1) + 100 * __builtin_ctz(w | 0x80000000);
    out[i * 6 + 3] = __builtin_rotateleft32(v, w & 31) ^ __nvvm_prmt(v, w, 0x2537);
    out[i * 6 + 4] = (v >> 5 & 0x7ff) + (u32)((int)(v << 9) >> 20) + __builtin_bswap32(w);
    out[i * 6 + 5] = (v & w) | (~v & (w >> 3)) ^ (v * 2654435761u);
}

// The checksum of Ethernet, bit by bit, over bytes.
KERNEL crc(const unsigned char *in, u32 *out, int length, int n) {
    int i = global_id();
    if (i >= n) return;
    u32 crc = ~0u;
    for (int k = 0; k < length; k++) {
        crc ^= in[i * length + k];
        for (int b = 0; b < 8; b++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    out[i] = ~crc;
}

// Narrow types, signed and not.
KERNEL narrow(const signed char *a, const unsigned short *b, short *out, unsigned char *bytes, int n) {
    int i = global_id();
    if (i >= n) return;
    short x = a[i];
    out[i] = (short)(x * x - b[i]) >> 1;
    bytes[i] = (unsigned char)(a[i] + b[i]) / 3;
}

// Floating-point numbers of 16 bits: alone, two in a register, in matrices.
#include "device.h"

typedef unsigned short u16;
typedef _Float16 half;

#define TWO(out, instruction, a, b) asm(instruction " %0, %1, %2;" : "=h"(out) : "h"(a), "h"(b))
#define THREE(out, instruction, a, b, c) \
    asm(instruction " %0, %1, %2, %3;" : "=h"(out) : "h"(a), "h"(b), "h"(c))
#define ONE(out, instruction, a) asm(instruction " %0, %1;" : "=h"(out) : "h"(a))

// Eight results of each three numbers, instruction by instruction.
KERNEL half_by_half(const u16 *in, u16 *out, int n) {
    int i = global_id();
    if (i >= n) return;
    u16 a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *to = out + 8 * i;
    TWO(to[0], "add.rn.f16", a, b);
    TWO(to[1], "sub.rn.f16", a, b);
    TWO(to[2], "mul.rn.f16", a, b);
    THREE(to[3], "fma.rn.f16", a, b, c);
    TWO(to[4], "min.f16", a, b);
    TWO(to[5], "max.NaN.f16", a, b);
    ONE(to[6], "neg.f16", a);
    ONE(to[7], "abs.f16", a);
}

KERNEL brain_by_brain(const u16 *in, u16 *out, int n) {
    int i = global_id();
    if (i >= n) return;
    u16 a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *to = out + 8 * i;
    u16 one = 0x3f80, minus = 0xbf80, zero = 0x8000;
    THREE(to[0], "fma.rn.bf16", a, one, b);
    THREE(to[1], "fma.rn.bf16", b, minus, a);
    THREE(to[2], "fma.rn.bf16", a, b, zero);
    THREE(to[3], "fma.rn.bf16", a, b, c);
    TWO(to[4], "min.bf16", a, b);
    TWO(to[5], "max.NaN.bf16", a, b);
    ONE(to[6], "neg.bf16", a);
    ONE(to[7], "abs.bf16", a);
}

// As the compiler does it: a product of vectors, in pairs where it can.
KERNEL half_dot(const half *a, const half *b, float *out, int n) {
    half sum = 0;
    for (int i = tid(); i < n; i += block_size()) sum += a[i] * b[i];
    out[tid()] = (float)sum;
    if (sum > (half)1.5f) out[tid()] = -(float)(int)sum;
}

KERNEL pairs(const u32 *in, u32 *out, int n) {
    int i = global_id();
    if (i >= n) return;
    u32 a = in[2 * i], b = in[2 * i + 1], *to = out + 5 * i;
    asm("fma.rn.f16x2 %0, %1, %2, %1;" : "=r"(to[0]) : "r"(a), "r"(b));
    asm("set.lt.f16x2.f16x2 %0, %1, %2;" : "=r"(to[1]) : "r"(a), "r"(b));
    asm("{.reg .pred p, q; setp.gt.f16x2 p|q, %1, %2; selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2;}"
        : "=r"(to[2])
        : "r"(a), "r"(b));
    asm("set.gtu.u32.bf16x2 %0, %1, %2;" : "=r"(to[4]) : "r"(a), "r"(b));
    float x, y;
    asm("{.reg.b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
        : "=f"(x), "=f"(y)
        : "r"(a));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(to[3]) : "f"(y), "f"(x));
}

// A sum in memory.
KERNEL half_sum(const u32 *in, u32 *out, int n) {
    int i = global_id();
    u32 old;
    if (i < n) asm volatile("atom.global.add.noftz.f16x2 %0, [%1], %2;" : "=r"(old) : "l"(out), "r"(in[i]) : "memory");
}

// d = a * b + c, 16x8 from 16x16 and 16x8, each lane with its part.
KERNEL matrices(const u16 *a, const u16 *b, const float *c, float *d) {
    u32 group = lane() / 4, part = lane() % 4;
    u32 x[4], y[2];
    float z[4];
    for (int i = 0; i < 4; i++) {
        u32 row = group + i % 2 * 8, column = part * 2 + i / 2 * 8;
        x[i] = a[row * 16 + column] | (u32)a[row * 16 + column + 1] << 16;
    }
    for (int i = 0; i < 2; i++) {
        u32 row = part * 2 + i * 8;
        y[i] = b[row * 8 + group] | (u32)b[(row + 1) * 8 + group] << 16;
    }
    for (int i = 0; i < 4; i++) z[i] = c[(group + i / 2 * 8) * 8 + part * 2 + i % 2];
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int i = 0; i < 4; i++) d[(group + i / 2 * 8) * 8 + part * 2 + i % 2] = z[i];
}

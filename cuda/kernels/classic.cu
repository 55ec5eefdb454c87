// The twelve kernels that every GPU programmer has written.
#include "device.h"

// Sum of n integers, one atomic per block.
KERNEL reduction(const int *in, int *sum, int n) {
    __shared__ int part[256];
    int total = 0;
    for (int i = global_id(); i < n; i += block_size() * grid_size()) total += in[i];
    part[tid()] = total;
    __syncthreads();
    for (int half = block_size() / 2; half > 0; half /= 2) {
        if (tid() < half) part[tid()] += part[tid() + half];
        __syncthreads();
    }
    if (tid() == 0) atomic_add(sum, part[0]);
}

// C = A * B for n by n matrices, in tiles of 16.
KERNEL matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float as[16][16], bs[16][16];
    int x = tid(), y = tid_y(), col = block() * 16 + x, row = block_y() * 16 + y;
    float sum = 0;
    for (int t = 0; t < n; t += 16) {
        as[y][x] = a[row * n + t + x];
        bs[y][x] = b[(t + y) * n + col];
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += as[y][k] * bs[k][x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}

// Counts of byte values, gathered per block.
KERNEL histogram(const unsigned char *in, u32 *bins, int n) {
    __shared__ u32 local[256];
    local[tid()] = 0;
    __syncthreads();
    for (int i = global_id(); i < n; i += block_size() * grid_size()) atomic_add(&local[in[i]], 1u);
    __syncthreads();
    atomic_add(&bins[tid()], local[tid()]);
}

// One level of a breadth-first search over a graph in compressed rows.
KERNEL bfs(const int *rows, const int *edges, int *depth, int level, int *changed, int n) {
    int v = global_id();
    if (v >= n || depth[v] != level) return;
    for (int e = rows[v]; e < rows[v + 1]; e++)
        if (atomic_cas(&depth[edges[e]], -1, level + 1) == -1) *changed = 1;
}

// Inclusive prefix sums of each block.
KERNEL scan(const int *in, int *out, int n) {
    __shared__ int buffer[2][256];
    int i = global_id(), from = 0;
    buffer[0][tid()] = i < n ? in[i] : 0;
    __syncthreads();
    for (int by = 1; by < block_size(); by *= 2) {
        int v = buffer[from][tid()];
        if (tid() >= by) v += buffer[from][tid() - by];
        from ^= 1;
        buffer[from][tid()] = v;
        __syncthreads();
    }
    if (i < n) out[i] = buffer[from][tid()];
}

// Five points in a plane, the border kept.
KERNEL stencil(const float *in, float *out, int w, int h) {
    int x = global_id(), y = block_y() * block_size_y() + tid_y();
    if (x >= w || y >= h) return;
    int i = y * w + x;
    if (x == 0 || y == 0 || x == w - 1 || y == h - 1)
        out[i] = in[i];
    else
        out[i] = 0.2f * (in[i] + in[i - 1] + in[i + 1] + in[i - w] + in[i + w]);
}

// Sorts each block's 256 integers.
KERNEL bitonic(int *data) {
    __shared__ int s[256];
    int i = tid();
    s[i] = data[block() * 256 + i];
    __syncthreads();
    for (int k = 2; k <= 256; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            int other = i ^ j;
            if (other > i) {
                bool up = (i & k) == 0;
                if (s[i] > s[other] == up) {
                    int t = s[i];
                    s[i] = s[other];
                    s[other] = t;
                }
            }
            __syncthreads();
        }
    data[block() * 256 + i] = s[i];
}

// Each lane loops for a number of times of its own.
KERNEL divergent(const int *limits, int *out, int n) {
    int i = global_id();
    if (i >= n) return;
    int sum = 0;
    for (int k = 0; k < limits[i]; k++) {
        if (k % 3 == 0) continue;
        if (k == 40) break;
        sum += k;
    }
    out[i] = sum;
}

// y = A x for a matrix in compressed rows, one warp per row.
KERNEL spmv(const int *rows, const int *cols, const float *values, const float *x, float *y, int n) {
    int row = global_id() / 32;
    if (row >= n) return;
    float sum = 0;
    for (int e = rows[row] + lane(); e < rows[row + 1]; e += 32) sum += values[e] * x[cols[e]];
    for (int by = 16; by > 0; by /= 2) sum += shuffle_xor(FULL, sum, by);
    if (lane() == 0) y[row] = sum;
}

// Accelerations of bodies, softened.
KERNEL nbody(const float4 *bodies, float4 *out, int n) {
    __shared__ float4 tile[64];
    int i = global_id();
    float4 me = bodies[i], acc = {0, 0, 0, 0};
    for (int t = 0; t < n; t += 64) {
        tile[tid()] = bodies[t + tid()];
        __syncthreads();
        for (int k = 0; k < 64; k++) {
            float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
            float inv = rsqrt_approx(dx * dx + dy * dy + dz * dz + 0.01f);
            float f = tile[k].w * inv * inv * inv;
            acc.x += f * dx, acc.y += f * dy, acc.z += f * dz;
        }
        __syncthreads();
    }
    out[i] = acc;
}

// Iterations until a point escapes.
KERNEL mandelbrot(int *out, int w, int h, int limit) {
    int px = global_id(), py = block_y();
    if (px >= w) return;
    float cx = -2.0f + 3.0f * px / w, cy = -1.0f + 2.0f * py / h, x = 0, y = 0;
    int n = 0;
    while (n < limit && x * x + y * y < 4.0f) {
        float t = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = t;
        n++;
    }
    out[py * w + px] = n;
}

// Softmax of each row, a block per row.
KERNEL softmax(const float *in, float *out, int n) {
    __shared__ float part[128];
    const float *row = in + block() * n;
    float most = -1e30f;
    for (int i = tid(); i < n; i += 128) most = max2(most, row[i]);
    part[tid()] = most;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (tid() < half) part[tid()] = max2(part[tid()], part[tid() + half]);
        __syncthreads();
    }
    most = part[0];
    __syncthreads();
    float sum = 0;
    for (int i = tid(); i < n; i += 128) sum += exp2_approx((row[i] - most) * 1.44269504f);
    part[tid()] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (tid() < half) part[tid()] += part[tid() + half];
        __syncthreads();
    }
    for (int i = tid(); i < n; i += 128)
        out[block() * n + i] = exp2_approx((row[i] - most) * 1.44269504f) / part[0];
}

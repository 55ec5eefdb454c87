// Multiplies matrices in tiles, on a stream, timed by events.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#define CHECK(call)                                                                              \
    do {                                                                                         \
        cudaError_t error = (call);                                                              \
        if (error != cudaSuccess) {                                                              \
            fprintf(stderr, "%s: %s (%s)\n", #call, cudaGetErrorName(error), cudaGetErrorString(error)); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

__constant__ float scale;
__device__ unsigned long long blocks;

template <int TILE> __global__ void matrixMul(float *c, const float *a, const float *b, int wa, int wb) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int t = 0; t < wa; t += TILE) {
        as[ty][tx] = a[row * wa + t + tx];
        bs[ty][tx] = b[(t + ty) * wb + col];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; k++) sum += as[ty][k] * bs[k][tx];
        __syncthreads();
    }
    c[row * wb + col] = sum * scale;
    if (tx == 0 && ty == 0) atomicAdd(&blocks, 1ull);
}

int main() {
    const int wa = 96, ha = 64, wb = 128;
    const float factor = 2;
    std::vector<float> a(ha * wa), b(wa * wb), c(ha * wb);
    for (size_t i = 0; i < a.size(); i++) a[i] = (i * 7 % 13) * 0.25f - 1;
    for (size_t i = 0; i < b.size(); i++) b[i] = (i * 5 % 11) * 0.5f - 2;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    float *da, *db, *dc;
    CHECK(cudaMalloc((void **)&da, a.size() * 4));
    CHECK(cudaMalloc((void **)&db, b.size() * 4));
    CHECK(cudaMalloc((void **)&dc, c.size() * 4));
    CHECK(cudaMemcpyToSymbol(scale, &factor, sizeof factor));
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    CHECK(cudaMemcpyAsync(da, a.data(), a.size() * 4, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyAsync(db, b.data(), b.size() * 4, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemsetAsync(dc, 0xff, c.size() * 4, stream));
    dim3 threads(32, 32), grid(wb / 32, ha / 32);
    CHECK(cudaEventRecord(start, stream));
    matrixMul<32><<<grid, threads, 0, stream>>>(dc, da, db, wa, wb);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(stop, stream));
    CHECK(cudaMemcpyAsync(c.data(), dc, c.size() * 4, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    unsigned long long ran;
    CHECK(cudaMemcpyFromSymbol(&ran, blocks, sizeof ran));
    for (int y = 0; y < ha; y++)
        for (int x = 0; x < wb; x++) {
            double want = 0;
            for (int k = 0; k < wa; k++) want += a[y * wa + k] * b[k * wb + x];
            if (std::fabs(want * factor - c[y * wb + x]) > 1e-3) {
                printf("wrong at %d %d: %f, not %f\n", y, x, c[y * wb + x], want * factor);
                return 1;
            }
        }
    if (ran != grid.x * grid.y || ms < 0) {
        printf("wrong: %llu blocks, %f ms\n", ran, ms);
        return 1;
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dc));
    CHECK(cudaDeviceReset());
    printf("passed\n");
}

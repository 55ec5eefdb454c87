// Copies that run beside the threads: `cuda::barrier` that waits for them, and a pipeline of two stages. For nvcc.
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
#include <cstdio>

using barrier = cuda::barrier<cuda::thread_scope_block>;

/// One thread copies what all read, backwards.
__global__ void waits(const int *in, int *out, int n) {
    __shared__ alignas(16) int buf[256];
    __shared__ barrier bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    for (int base = 0; base < n; base += 256) {
        if (threadIdx.x == 0) cuda::memcpy_async(buf, in + base, cuda::aligned_size_t<16>(1024), bar);
        bar.arrive_and_wait();
        int v = buf[255 - threadIdx.x];
        bar.arrive_and_wait();
        out[base + threadIdx.x] = v * 3;
    }
}

/// All copy ahead what they read, by 33 further.
__global__ void pipelined(const int *in, int *out, int n) {
    auto block = cooperative_groups::this_thread_block();
    __shared__ int buf[2][256];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> st;
    auto pipe = cuda::make_pipeline(block, &st);
    int rounds = n / 256;
    for (int i = 0, f = 0; i < rounds; i++) {
        for (; f < rounds && f < i + 2; f++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, buf[f % 2], in + f * 256, sizeof(int) * 256, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        out[i * 256 + threadIdx.x] = buf[i % 2][(threadIdx.x + 33) % 256] + 1;
        pipe.consumer_release();
    }
}

int main() {
    const int n = 1024;
    int *in, *out, wrong = 0;
    cudaMallocManaged(&in, 4 * n);
    cudaMallocManaged(&out, 4 * n);
    for (int i = 0; i < n; i++) in[i] = i;
    waits<<<1, 256>>>(in, out, n);
    cudaError_t error = cudaDeviceSynchronize();
    for (int i = 0; i < n; i++) wrong += out[i] != 3 * ((i & ~255) + 255 - (i & 255));
    pipelined<<<1, 256>>>(in, out, n);
    if (!error) error = cudaDeviceSynchronize();
    for (int i = 0; i < n; i++) wrong += out[i] != (i & ~255) + ((i & 255) + 33) % 256 + 1;
    printf("asyncCopies: %s, %d are wrong: %s\n", cudaGetErrorString(error), wrong, error || wrong ? "failed" : "passed");
    cudaFree(in);
    cudaFree(out);
    return error || wrong;
}

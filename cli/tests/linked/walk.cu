// The kernel of one unit calls a function of another.
#include <cstdio>

extern __device__ int steps(int n);
extern __device__ int calls;

__global__ void walk(const int *in, int *out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = steps(in[i]);
    }
}

int main() {
    const int count = 40;
    int in[count], out[count], called = 0, *in_device, *out_device;
    for (int i = 0; i < count; i++) {
        in[i] = i + 1;
    }
    cudaMalloc(&in_device, sizeof in);
    cudaMalloc(&out_device, sizeof out);
    cudaMemcpy(in_device, in, sizeof in, cudaMemcpyHostToDevice);
    walk<<<2, 32>>>(in_device, out_device, count);
    cudaError_t error = cudaMemcpy(out, out_device, sizeof out, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(error));
        return 2;
    }
    cudaMemcpyFromSymbol(&called, calls, sizeof called);
    int sum = 0;
    for (int taken : out) {
        sum += taken;
    }
    std::printf("%d steps, %d calls\n", sum, called);
}

// Each warp goes its number of rounds; one that goes more than seven reads where nothing is.
#include <cstdio>

__global__ void fault(const int *limits, int *out) {
    int limit = limits[threadIdx.x / 32], sum = 0;
    for (int round = 0; round < limit; round++) {
        sum += out[round * 1000000 * (round == 7)];
    }
    out[0] = sum;
}

int main() {
    int limits[3] = {3, 5, 9}, *from, *to;
    cudaMalloc(&from, sizeof limits);
    cudaMalloc(&to, 4);
    cudaMemcpy(from, limits, sizeof limits, cudaMemcpyHostToDevice);
    cudaMemset(to, 0, 4);
    fault<<<1, 96>>>(from, to);
    printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
}

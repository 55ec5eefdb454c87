// Walks particles through a box and counts the steps that each takes to leave it. With bad.txt there are
// too many: some particles land on the wall itself, and somebody thought that they should start again.

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error = (call);                                                                \
        if (error != cudaSuccess) {                                                                \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                    \
            std::exit(2);                                                                          \
        }                                                                                          \
    } while (0)

__global__ void walk(const int *start, const int *speed, int *steps, int wall, int count) {
    int particle = blockIdx.x * blockDim.x + threadIdx.x;
    if (particle >= count) {
        return;
    }
    int at = start[particle], taken = 0;
    while (at < wall) {
        at += speed[particle];
        taken++;
        if (at == wall) {
            at -= wall; // the bug: who has reached the wall has left
        }
    }
    steps[particle] = taken;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s INPUT\n", argv[0]);
        return 2;
    }
    std::FILE *file = std::fopen(argv[1], "r");
    if (!file) {
        std::perror(argv[1]);
        return 2;
    }
    int wall = 0, at = 0, pace = 0;
    std::vector<int> start, speed;
    if (std::fscanf(file, "%d", &wall) != 1) {
        std::fprintf(stderr, "%s: no wall\n", argv[1]);
        return 2;
    }
    while (std::fscanf(file, "%d %d", &at, &pace) == 2) {
        start.push_back(at);
        speed.push_back(pace);
    }
    std::fclose(file);

    int count = static_cast<int>(start.size());
    size_t bytes = count * sizeof(int);
    int *start_device, *speed_device, *steps_device;
    CHECK(cudaMalloc(&start_device, bytes));
    CHECK(cudaMalloc(&speed_device, bytes));
    CHECK(cudaMalloc(&steps_device, bytes));
    CHECK(cudaMemcpy(start_device, start.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(speed_device, speed.data(), bytes, cudaMemcpyHostToDevice));
    walk<<<(count + 63) / 64, 64>>>(start_device, speed_device, steps_device, wall, count);
    CHECK(cudaGetLastError());
    std::vector<int> steps(count);
    CHECK(cudaMemcpy(steps.data(), steps_device, bytes, cudaMemcpyDeviceToHost));
    long total = 0;
    for (int taken : steps) {
        total += taken;
    }
    std::printf("%d particles, %ld steps\n", count, total);
    cudaFree(start_device);
    cudaFree(speed_device);
    cudaFree(steps_device);
    return 0;
}

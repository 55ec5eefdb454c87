// Two devices that reach each other's memory, or do not: `peers refused` ends in an error of a kernel.
#include <cstdio>
#include <cstdlib>
#include <thread>

#define DO(call) do { cudaError_t code = (call); if (code) { printf("line %d: %d\n", __LINE__, code); exit(1); } } while (0)
#define SAY(call) printf("%s: %d\n", #call, (call))

__device__ int own;

__global__ void add(const int *from, int *to) {
    own += 1;
    to[threadIdx.x] = from[threadIdx.x] + own;
}

static void errors() {
    int can[3];
    for (int at = 0; at < 3; ++at)
        DO(cudaDeviceCanAccessPeer(&can[at], at / 2, at % 2));
    printf("can access: %d %d %d\n", can[0], can[1], can[2]);
    SAY(cudaDeviceCanAccessPeer(can, 0, 2));
    SAY(cudaSetDevice(2));
    SAY(cudaDeviceEnablePeerAccess(0, 0));
    SAY(cudaDeviceEnablePeerAccess(2, 0));
    SAY(cudaDeviceEnablePeerAccess(1, 1));
    SAY(cudaDeviceDisablePeerAccess(1));
    SAY(cudaDeviceEnablePeerAccess(1, 0));
    SAY(cudaDeviceEnablePeerAccess(1, 0));
    SAY(cudaDeviceDisablePeerAccess(1));
    cudaGetLastError();
}

int main(int argc, char **argv) {
    int count, device, *memory[2], *host, value[4];
    size_t free[2], total;
    cudaStream_t streams[2];
    cudaEvent_t events[2];
    cudaPointerAttributes attributes;
    cudaDeviceProp properties;
    char ids[2][32];
    DO(cudaGetDeviceCount(&count));
    for (int at = 0; at < 2; ++at) {
        DO(cudaSetDevice(at));
        DO(cudaMalloc(&memory[at], sizeof value));
        DO(cudaStreamCreate(&streams[at]));
        DO(cudaEventCreate(&events[at]));
        DO(cudaDeviceGetPCIBusId(ids[at], sizeof ids[at], at));
        DO(cudaDeviceGetByPCIBusId(&device, ids[at]));
        DO(cudaPointerGetAttributes(&attributes, memory[at]));
        DO(cudaGetDeviceProperties(&properties, at));
        printf("of %d: device %d, memory of %d, bus %d\n", count, device, attributes.device, properties.pciBusID);
    }
    DO(cudaSetDevice(0));
    DO(cudaMallocHost(&host, sizeof value));
    for (int at = 0; at < 4; ++at)
        host[at] = at;
    if (argc > 1) {
        DO(cudaSetDevice(1));
        add<<<1, 4>>>(memory[0], memory[1]);
        SAY(cudaDeviceSynchronize());
        return 0;
    }
    // The device is each thread's own.
    DO(cudaSetDevice(1));
    std::thread([] { int device; DO(cudaGetDevice(&device)); printf("a thread begins with %d\n", device); }).join();
    DO(cudaSetDevice(0));
    errors();
    // Copies need no access; pinned memory every device reaches.
    add<<<1, 4>>>(host, memory[0]);
    DO(cudaMemcpyPeer(memory[1], 1, memory[0], 0, sizeof value));
    SAY(cudaMemcpyPeer(memory[1], 2, memory[0], 0, sizeof value));
    DO(cudaSetDevice(1));
    DO(cudaDeviceEnablePeerAccess(0, 0));
    // Each device has its own variable.
    add<<<1, 4, 0, streams[1]>>>(memory[1], memory[0]);
    DO(cudaMemcpy(value, memory[0], sizeof value, cudaMemcpyDefault));
    printf("sums: %d %d %d %d\n", value[0], value[1], value[2], value[3]);
    add<<<1, 4, 0, streams[0]>>>(memory[1], memory[1]);
    printf("stream of another device: %d\n", cudaGetLastError());
    SAY(cudaEventRecord(events[0], streams[1]));
    DO(cudaEventRecord(events[1], streams[1]));
    DO(cudaStreamWaitEvent(streams[0], events[1], 0));
    cudaGetLastError();
    // What a device that is reset had is gone, and nothing else.
    DO(cudaMemGetInfo(&free[0], &total));
    DO(cudaDeviceReset());
    DO(cudaMemGetInfo(&free[1], &total));
    printf("used: %d, and after a reset: %d\n", int(total - free[0]), int(total - free[1]));
    SAY(cudaMemcpy(value, memory[1], sizeof value, cudaMemcpyDeviceToHost));
    DO(cudaMemcpy(value, memory[0], sizeof value, cudaMemcpyDeviceToHost));
    DO(cudaSetDevice(0));
    DO(cudaStreamSynchronize(streams[0]));
    add<<<1, 4, 0, streams[0]>>>(host, memory[0]);
    DO(cudaMemcpy(value, memory[0], sizeof value, cudaMemcpyDefault));
    printf("sums: %d %d %d %d\n", value[0], value[1], value[2], value[3]);
    DO(cudaFree(memory[0]));
    DO(cudaFreeHost(host));
    cudaGetLastError();
}

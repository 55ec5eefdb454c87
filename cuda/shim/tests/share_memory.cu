// Two processes of the runtime's API: the first starts this program again and gives it handles by a pipe.
#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

#define DO(call) do { cudaError_t code = (call); if (code) { printf("line %d: %d\n", __LINE__, code); exit(1); } } while (0)

struct Handles {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
};

constexpr int COUNT = 1000;

__global__ void add(int *data, int by) {
    for (int at = threadIdx.x; at < COUNT; at += blockDim.x)
        data[at] += by;
}

static int other() {
    Handles handles;
    int *data;
    cudaEvent_t event;
    cudaStream_t stream;
    if (read(0, &handles, sizeof handles) != sizeof handles)
        return 1;
    DO(cudaIpcOpenMemHandle((void **)&data, handles.memory, cudaIpcMemLazyEnablePeerAccess));
    DO(cudaIpcOpenEventHandle(&event, handles.event));
    DO(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    DO(cudaStreamWaitEvent(stream, event, 0));
    add<<<1, 64, 0, stream>>>(data, 20);
    DO(cudaEventRecord(event, stream));
    DO(cudaStreamSynchronize(stream));
    DO(cudaIpcCloseMemHandle(data));
    printf("closed again: %d\n", cudaIpcCloseMemHandle(data));
    DO(cudaEventDestroy(event));
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1)
        return other();
    Handles handles;
    int *data, *mine, supported, sum = 0, files[2], status;
    cudaEvent_t event;
    cudaDeviceProp properties;
    DO(cudaDeviceGetAttribute(&supported, cudaDevAttrIpcEventSupport, 0));
    DO(cudaGetDeviceProperties(&properties, 0));
    DO(cudaMalloc(&data, COUNT * sizeof *data));
    DO(cudaMemset(data, 0, COUNT * sizeof *data));
    add<<<1, 64>>>(data, 1);
    DO(cudaIpcGetMemHandle(&handles.memory, data));
    printf("own: %d\n", cudaIpcOpenMemHandle((void **)&mine, handles.memory, cudaIpcMemLazyEnablePeerAccess));
    DO(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    DO(cudaIpcGetEventHandle(&handles.event, event));
    DO(cudaEventRecord(event, 0));
    fflush(stdout);
    if (pipe(files) || write(files[1], &handles, sizeof handles) != sizeof handles)
        return 1;
    pid_t pid = fork();
    if (!pid) {
        dup2(files[0], 0);
        execl(argv[0], argv[0], "other", nullptr);
        _exit(9);
    }
    waitpid(pid, &status, 0);
    DO(cudaEventSynchronize(event));
    int out[COUNT];
    DO(cudaMemcpy(out, data, sizeof out, cudaMemcpyDeviceToHost));
    for (int value : out)
        sum += value;
    printf("supported: %d %d, sum: %d, status: %d\n", supported, properties.ipcEventSupported, sum, status);
    DO(cudaFree(data));
    DO(cudaEventDestroy(event));
}

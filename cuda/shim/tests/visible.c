// Which devices CUDA_VISIBLE_DEVICES leaves: what the driver says of each, then what the runtime says.
#include <stdio.h>

int cuInit(unsigned); int cuDeviceGetCount(int *); int cuDeviceGet(int *, int); int cuDeviceGetUuid_v2(void *, int);
int cuDeviceGetAttribute(int *, int, int); int cudaGetDeviceCount(int *); int cudaSetDevice(int);
int cudaMalloc(void **, unsigned long); int cudaGetLastError(void);

#define SAY(call) printf(" %d", (call))

int main(void) {
    int count = -1, device, bus;
    unsigned char id[16];
    void *memory;
    printf("driver"), SAY(cuInit(0)), SAY(cuDeviceGetCount(&count)), SAY(cuDeviceGet(&device, 0)), printf(":");
    for (device = 0; device < count; ++device) {
        cuDeviceGetAttribute(&bus, 33, device);
        cuDeviceGetUuid_v2(id, device);
        printf(" %d=%02x%02x%02x", bus, id[0], id[1], id[2]);
    }
    count = -1;
    printf("; runtime"), SAY(cudaGetDeviceCount(&count)), SAY(count), SAY(cudaSetDevice(0));
    SAY(cudaMalloc(&memory, 4)), SAY(cudaGetLastError()), SAY(cudaGetLastError()), printf("\n");
    return 0;
}

// Runs the kernel `k` of a PTX file in one block of 64 lanes.
//
//     run_kernel FILE [STATUS]
//
// Ends with STATUS, which is 0 where none is given; with more than 6 where the kernel was not launched.
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned); int cuModuleLoadData(void **, const void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int main(int argc, char **argv) {
    void *module, *kernel;
    static char text[1 << 16];
    FILE *file = fopen(argv[1], "r");
    if (!file) return 7;
    fread(text, 1, sizeof text - 1, file);
    cuInit(0);
    if (cuModuleLoadData(&module, text) || cuModuleGetFunction(&kernel, module, "k")) return 9;
    if (cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, 0, 0)) return 8;
    printf("done\n");
    return argc > 2 ? atoi(argv[2]) : 0;
}

/* Launches a kernel twice and says what came of it. */
#include <stdio.h>
#include <stdlib.h>

extern unsigned cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               void *, void **, void **);

extern unsigned cuLibraryGetKernel(void **, void *, const char *);

int main(void) {
    int out = 0, *to = &out;
    void *arguments[] = {&to}, *function = (void *)32;
    if (getenv("LIBRARY"))
        cuLibraryGetKernel(&function, (void *)48, "run");
    for (int launch = 0; launch < 2; launch++) {
        unsigned status = cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, 0, arguments, 0);
        printf("status %u, out %d\n", status, out);
    }
    return 3;
}

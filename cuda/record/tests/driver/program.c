/* Launches a kernel twice and says what came of it. */
#include <stdio.h>

extern unsigned cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               void *, void **, void **);

int main(void) {
    int out = 0, *to = &out;
    void *arguments[] = {&to};
    for (int launch = 0; launch < 2; launch++) {
        unsigned status = cuLaunchKernel((void *)32, 1, 1, 1, 64, 1, 1, 0, 0, arguments, 0);
        printf("status %u, out %d\n", status, out);
    }
    return 3;
}

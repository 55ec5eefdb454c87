__device__ int calls;

__device__ int steps(int n) {
    atomicAdd(&calls, 1);
    int taken = 0;
    while (n != 1) {
        n = n % 2 ? 3 * n + 1 : n / 2;
        taken++;
    }
    return taken;
}

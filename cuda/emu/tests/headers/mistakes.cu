// Mistakes made through functions of CUDA's headers: findings name the lines of this file.

__global__ void adds(int *out, int far) {
    if (out[0] == 0) atomicAdd(out + far, 1); // adds
    out[2] = 3;
}

__global__ void loads(int *out, int far) {
    int value = 7;
    if (out[0] == 0) value = __ldg(out + far); // loads
    out[1] = value;
}

__global__ void traps(int *out, int far) {
    out[1] = far;
    if (out[0] == 0) __trap(); // traps
    out[2] = 2;
}

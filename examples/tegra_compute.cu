// The kernels of tegra_compute.rs.

extern "C" __global__ void add(const float* a, const float* b, float* sums, unsigned count)
{
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count)
        sums[at] = a[at] + b[at];
}

// The sum of a block's numbers, which its threads add in pairs in shared memory.
extern "C" __global__ void total(const unsigned* numbers, unsigned* totals, unsigned count)
{
    __shared__ unsigned part[256];
    unsigned thread = threadIdx.x, sum = 0;
    for (unsigned at = blockIdx.x * blockDim.x + thread; at < count; at += gridDim.x * blockDim.x)
        sum += numbers[at];
    part[thread] = sum;
    for (unsigned half = blockDim.x / 2; half != 0; half /= 2) {
        __syncthreads();
        if (thread < half)
            part[thread] += part[thread + half];
    }
    if (thread == 0)
        totals[blockIdx.x] = part[0];
}

// A product of square matrices, by tiles in shared memory.
extern "C" __global__ void product(const float* a, const float* b, float* product, unsigned size)
{
    const unsigned TILE = 16;
    __shared__ float of_a[TILE][TILE], of_b[TILE][TILE];
    unsigned x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0;
    for (unsigned first = 0; first < size; first += TILE) {
        of_a[y][x] = row < size && first + x < size ? a[row * size + first + x] : 0;
        of_b[y][x] = first + y < size && column < size ? b[(first + y) * size + column] : 0;
        __syncthreads();
        for (unsigned k = 0; k < TILE; k++)
            sum += of_a[y][k] * of_b[k][x];
        __syncthreads();
    }
    if (row < size && column < size)
        product[row * size + column] = sum;
}

// The numbers of each eight in order, by a table in local memory.
extern "C" __global__ void sort(unsigned* numbers, unsigned count)
{
    unsigned first = (blockIdx.x * blockDim.x + threadIdx.x) * 8, own[8];
    if (first + 8 > count)
        return;
    for (unsigned i = 0; i < 8; i++) {
        unsigned number = numbers[first + i], at = i;
        for (; at > 0 && own[at - 1] > number; at--)
            own[at] = own[at - 1];
        own[at] = number;
    }
    for (unsigned i = 0; i < 8; i++)
        numbers[first + i] = own[i];
}

// Kernels with CUDA's own cooperative_groups, for kernels.py.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

// Each block takes what the next one had in the round before.
extern "C" __global__ void rounds(volatile int *data, int count) {
  cg::grid_group grid = cg::this_grid();
  unsigned block = grid.block_rank(), next = (block + 1) % grid.num_blocks();
  for (int round = 0; round < count; ++round) {
    int taken = data[next];
    grid.sync();
    if (cg::this_thread_block().thread_rank() == 0)
      data[block] = taken + 1;
    grid.sync();
  }
}

// The sum of all, which every thread of the grid then subtracts.
extern "C" __global__ void subtract_sum(int *data, int *sums, int count) {
  cg::grid_group grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  __shared__ int own;
  if (block.thread_rank() == 0)
    own = 0;
  block.sync();
  int mine = 0;
  for (unsigned at = grid.thread_rank(); at < count; at += grid.num_threads())
    mine += data[at];
  auto warp = cg::tiled_partition<32>(block);
  int of_warp = cg::reduce(warp, mine, cg::plus<int>());
  if (warp.thread_rank() == 0)
    atomicAdd(&own, of_warp);
  block.sync();
  if (block.thread_rank() == 0)
    sums[grid.block_rank()] = own;
  // Arriving and waiting apart, as far as a grid has it.
  auto token = grid.barrier_arrive();
  grid.barrier_wait(std::move(token));
  int all = 0;
  for (unsigned at = 0; at < grid.num_blocks(); ++at)
    all += sums[at];
  for (unsigned at = grid.thread_rank(); at < count; at += grid.num_threads())
    data[at] -= all;
}

// Parts of a block: each thread leaves six numbers.
extern "C" __global__ void parts(const int *from, int *to) {
  cg::thread_block block = cg::this_thread_block();
  unsigned at = block.thread_rank();
  int value = from[at], *out = to + 6 * at;
  auto eight = cg::tiled_partition<8>(block);
  out[0] = cg::reduce(eight, value, cg::greater<int>());
  out[1] = cg::exclusive_scan(eight, value, cg::plus<int>());
  auto odd = cg::binary_partition(cg::tiled_partition<32>(block), value & 1);
  out[2] = cg::reduce(odd, value, cg::plus<int>());
  auto same = cg::labeled_partition(cg::tiled_partition<16>(block), value & 3);
  out[3] = (int)(same.size() * 100 + same.thread_rank());
  out[4] = -1;
  if (value > 0) {
    cg::coalesced_group here = cg::coalesced_threads();
    out[4] = here.shfl(value, 0) * 64 + here.thread_rank();
  }
  out[5] = eight.shfl_down(value, 3) - eight.meta_group_rank();
}

/* What device code may say about its own recording. Without nvabi's pass all of it does nothing. */
#ifndef NVABI_TRACE_DEVICE_H
#define NVABI_TRACE_DEVICE_H

/* Before a function: record it whatever the pass is told, or never. For many functions at once:
 *     #pragma clang attribute push(NVABI_TRACE, apply_to = function)
 */
#define NVABI_TRACE __attribute__((annotate("nvabi.trace")))
#define NVABI_NO_TRACE __attribute__((annotate("nvabi.no_trace")))

/* Stop recording in the calling warp, and go on. The pass puts bodies that act in the place of these. */
extern "C" __attribute__((device, weak, noinline)) void nvabi_trace_pause(void) {}
extern "C" __attribute__((device, weak, noinline)) void nvabi_trace_resume(void) {}

#endif

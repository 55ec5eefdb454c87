// The recorder as it was first thought of, for benches/trace_sites.sh: lane 0 of a warp records, moves an
// index in global memory by an atomic and stores 16 bytes past the first cache; without sampling, which
// would take a division more. It has the functions that the pass calls, so that the same sites can be
// measured with either recorder.

typedef unsigned int u32;
typedef unsigned long long u64;
#define DEVICE extern "C" __attribute__((device, always_inline))

struct Event {
    u32 site;
    unsigned char kind, direction;
    unsigned short reserved;
    u32 mask, value;
};

struct Warp {
    u32 index, dropped, events, total;
};

struct Buffer {
    u32 warps, capacity, reserved[2];
    Warp first; // and its events, then the other warps
};

__attribute__((device)) Buffer *first_buffer;

DEVICE u32 __nvabi_begin() { return 0; }
DEVICE u32 __nvabi_slot() { return 0; }
DEVICE u32 __nvabi_end(u32) { return 0; }
DEVICE u32 __nvabi_below(u32) { return 0; }
DEVICE u32 __nvabi_idle() { return 0; }
DEVICE u32 __nvabi_scale(u32) { return 0; }
DEVICE u32 __nvabi_unit(void *) { return 0; }
DEVICE void __nvabi_finish(u32, u32) {}
DEVICE void __nvabi_mark(u32, u32, u32, u32) {}
DEVICE void __nvabi_value(u32, u32, u32, u32, u64) {}
DEVICE void __nvabi_maybe_shared(u32, u32, u32, u32, u64, void *) {}

DEVICE bool __nvabi_branch(u32, u32, u32, u32, u32, u32 site, bool condition) {
    Buffer *buffer = first_buffer;
    if (!buffer) return condition;
    u32 mask = __nvvm_activemask();
    u32 thread = __nvvm_read_ptx_sreg_tid_x() +
                 __nvvm_read_ptx_sreg_ntid_x() *
                     (__nvvm_read_ptx_sreg_tid_y() +
                      __nvvm_read_ptx_sreg_ntid_y() * __nvvm_read_ptx_sreg_tid_z());
    if (thread % 32 != 0) return condition;
    u32 threads = __nvvm_read_ptx_sreg_ntid_x() * __nvvm_read_ptx_sreg_ntid_y() *
                  __nvvm_read_ptx_sreg_ntid_z();
    u32 block = __nvvm_read_ptx_sreg_ctaid_x() +
                __nvvm_read_ptx_sreg_nctaid_x() *
                    (__nvvm_read_ptx_sreg_ctaid_y() +
                     __nvvm_read_ptx_sreg_nctaid_y() * __nvvm_read_ptx_sreg_ctaid_z());
    u32 warp = block * ((threads + 31) / 32) + thread / 32;
    if (warp >= buffer->warps) return condition;
    u64 stride = sizeof(Warp) + (u64)buffer->capacity * sizeof(Event);
    Warp *own = (Warp *)((char *)&buffer->first + warp * stride);
    u32 at = __nvvm_atom_add_gen_i((int *)&own->index, 1);
    if (at >= buffer->capacity) {
        __nvvm_atom_add_gen_i((int *)&own->dropped, 1);
        return condition;
    }
    Event *to = (Event *)(own + 1) + at;
    asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(site),
                 "r"((u32)condition << 8), "r"(mask), "r"((u32)condition)
                 : "memory");
    return condition;
}

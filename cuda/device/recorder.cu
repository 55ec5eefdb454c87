/* The device's half of the recorder. The pass carries this as bitcode, links it into the code it
 * instruments and lets it be inlined there, so a call here is a few instructions at a site.
 *
 * Each warp has a region in global memory and a cursor in shared memory. Halves of a diverged warp may
 * come between each other, so the cursor is moved atomically; nothing global is.
 *
 * A function computes these once and hands them to its sites:
 *   slot   where the warp's cursor is
 *   below  lanes below this one; all ones where the warp is not recorded, so that no lane is the lowest
 *   end    first position behind the region
 *   idle   where a lane that does not record counts instead
 *   scale  4, in a register
 * A position counts half words (4 bytes) from the start of all regions: 8 GiB of them at most. So the
 * count of a branch that is split and the scale of an address are one number, 4. Past the end, events go
 * to the slack behind the region and the cursor counts on.
 *
 * What a branch does is in recorder.ptx of the emulator: the pass makes a function of it, `__nvabi_branch`.
 */
#include "nvabi_trace.h"

#define DEVICE __attribute__((device, always_inline))

typedef unsigned long long u64;
typedef unsigned int u32;

struct Cursor {
    u32 at;
    u32 end;
    u64 header; /* the region's nvabi_trace_warp */
};

extern "C" {

/* A unit of an image that is linked of several (-fgpu-rdc). Who runs code of it first puts it into a
 * place of the list; the place's number is what tells its sites from those of other units. */
struct Unit {
    const void *sites;
    u32 size; /* of the sites, in bytes */
    u32 place; /* and 1; 0 until it has one */
};
__attribute__((device)) struct Unit *__nvabi_units[NVABI_TRACE_UNITS];

__attribute__((constant)) struct nvabi_trace_buffer __nvabi_trace;
/* Of a block: the cursors of its warps, and a word for each lane, in a bank of its own. */
struct Shared {
    struct Cursor cursors[32];
    u32 idle[32];
};
__attribute__((shared)) struct Shared __nvabi_shared;

/* Behind every position that a warp can come to. */
#define PAUSED 0x80000000u

static __attribute__((device, always_inline)) u32 active() {
    u32 mask;
    asm volatile("activemask.b32 %0;" : "=r"(mask));
    return mask;
}

static __attribute__((device, always_inline)) u32 lanes_below() {
    u32 below;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    return below;
}

static __attribute__((device, always_inline)) u32 warp_of_block() {
    u32 thread = __nvvm_read_ptx_sreg_tid_x() +
                 __nvvm_read_ptx_sreg_ntid_x() *
                     (__nvvm_read_ptx_sreg_tid_y() +
                      __nvvm_read_ptx_sreg_ntid_y() * __nvvm_read_ptx_sreg_tid_z());
    return thread / 32;
}

static __attribute__((device, always_inline)) u32 warp_of_launch(u32 warp) {
    u32 threads = __nvvm_read_ptx_sreg_ntid_x() * __nvvm_read_ptx_sreg_ntid_y() *
                  __nvvm_read_ptx_sreg_ntid_z();
    u32 block = __nvvm_read_ptx_sreg_ctaid_x() +
                __nvvm_read_ptx_sreg_nctaid_x() *
                    (__nvvm_read_ptx_sreg_ctaid_y() +
                     __nvvm_read_ptx_sreg_nctaid_y() * __nvvm_read_ptx_sreg_ctaid_z());
    return block * ((threads + 31) / 32) + warp;
}

/* Shared memory is addressed as the instructions at a site want it: 32 bits, not generic. */
static __attribute__((device, always_inline)) u32 read_shared(u32 address) {
    u32 value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

static __attribute__((device, always_inline)) void write_shared(u32 address, u32 value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

static __attribute__((device, always_inline)) u32 exchange_shared(u32 address, u32 value) {
    u32 old;
    asm volatile("atom.shared.exch.b32 %0, [%1], %2;"
                 : "=r"(old)
                 : "r"(address), "r"(value)
                 : "memory");
    return old;
}

#define AT 0
#define END 4
#define HEADER 8

static __attribute__((device, always_inline)) u32 shared(u32 offset) {
    return (u32)(u64)((const __attribute__((address_space(3))) char *)&__nvabi_shared + offset);
}

DEVICE u32 __nvabi_slot() {
    return shared(__builtin_offsetof(struct Shared, cursors)) + warp_of_block() * (u32)sizeof(struct Cursor);
}

DEVICE u32 __nvabi_idle() {
    return shared(__builtin_offsetof(struct Shared, idle)) + __nvvm_read_ptx_sreg_laneid() * (u32)sizeof(u32);
}

DEVICE u32 __nvabi_end(u32 slot) { return read_shared(slot + END); }

DEVICE u32 __nvabi_below(u32 end) { return end ? lanes_below() : ~0u; }

/* Positions have 31 bits, so this is 4; but the assembler cannot know, and would load a constant at every
 * site where it keeps this in a register. */
DEVICE u32 __nvabi_scale(u32 end) { return (end >> 31) + 4; }

/* What to add to a site of a unit. */
DEVICE u32 __nvabi_unit(struct Unit *unit) {
    u32 place = *(volatile u32 *)&unit->place;
    for (u32 at = 0; place == 0 && at < NVABI_TRACE_UNITS; at++) {
        u64 other;
        asm volatile("atom.global.cas.b64 %0, [%1], 0, %2;"
                     : "=l"(other)
                     : "l"(&__nvabi_units[at]), "l"(unit)
                     : "memory");
        if (other == 0 || other == (u64)unit) {
            place = at + 1;
            *(volatile u32 *)&unit->place = place;
        }
    }
    return (place - 1) * NVABI_TRACE_UNIT_SITES;
}

/* First of all in a kernel: the warp gets its region. */
DEVICE u32 __nvabi_begin() {
    u32 mask = active();
    u32 slot = __nvabi_slot();
    /* Lanes count there from something that was written; by exchanges, because those of other warps write, too. */
    exchange_shared(__nvabi_idle(), 0);
    if ((mask & lanes_below()) == 0) {
        u32 warp = warp_of_launch(warp_of_block());
        u32 every = __nvabi_trace.sample_every;
        u32 region = every > 1 ? warp / every : warp;
        bool recorded = __nvabi_trace.warps && region < __nvabi_trace.regions &&
                        (every <= 1 || region * every == warp);
        u32 start = region * (__nvabi_trace.capacity + NVABI_TRACE_SLACK) * 2;
        write_shared(slot + AT, start);
        write_shared(slot + END, recorded ? start + __nvabi_trace.capacity * 2 : 0);
        u64 header = __nvabi_trace.warps + region * sizeof(struct nvabi_trace_warp);
        write_shared(slot + HEADER, (u32)header);
        write_shared(slot + HEADER + 4, (u32)(header >> 32));
        if (recorded) {
            ((struct nvabi_trace_warp *)header)->warp = warp;
        }
    }
    __nvvm_bar_warp_sync(mask);
    return slot;
}

/* Last of all in a kernel: how far the warp got, as a position. Lanes may leave one after another. The
 * assembler copies the end of a kernel to wherever it is left, so this is short. */
DEVICE void __nvabi_finish(u32 slot, u32 below) {
    u32 mask = active();
    asm volatile("{\n\t"
                 ".reg .pred lowest, on;\n\t"
                 ".reg .b32 others, at;\n\t"
                 ".reg .b64 header;\n\t"
                 "and.b32 others, %2, %1;\n\t"
                 "setp.eq.u32 lowest, others, 0;\n\t"
                 "mov.b32 at, 0x80000000;\n\t"
                 "@lowest ld.shared.b32 at, [%0];\n\t"
                 "setp.lt.u32 on, at, 0x80000000;\n\t"
                 "@on ld.shared.b64 header, [%0+8];\n\t"
                 "@on red.global.max.u32 [header+4], at;\n\t"
                 "}" ::"r"(slot),
                 "r"(below), "r"(mask)
                 : "memory");
}

static __attribute__((device, always_inline)) u64 *reserve(u32 slot, u32 end, u32 words) {
    u32 at;
    asm volatile("atom.shared.add.u32 %0, [%1], %2;"
                 : "=r"(at)
                 : "r"(slot), "r"(words * 2));
    return (u64 *)__nvabi_trace.events + (at < end ? at : end) / 2;
}

static __attribute__((device, always_inline)) void write_word(u64 *to, u32 low, u32 high) {
    asm volatile("st.global.cs.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(low), "r"(high));
}

/* A function is entered or left. */
DEVICE void __nvabi_mark(u32 slot, u32 below, u32 end, u32 site) {
    u32 mask = active();
    if ((mask & below) == 0) {
        write_word(reserve(slot, end, 1), site, mask);
    }
}

/* Something with a value: the one of the lowest active lane. */
DEVICE void __nvabi_value(u32 slot, u32 below, u32 end, u32 site, u64 value) {
    u32 mask = active();
    if ((mask & below) == 0) {
        u64 *to = reserve(slot, end, 2);
        write_word(to, site, mask);
        write_word(to + 1, (u32)value, (u32)(value >> 32));
    }
}

/* A store of which the compiler does not know whether it goes to shared memory: lanes for which it does
 * are the event's. */
DEVICE void __nvabi_maybe_shared(u32 slot, u32 below, u32 end, u32 site, u64 value, void *address) {
    u32 mask = active();
    u32 shared = __nvvm_vote_ballot_sync(mask, __nvvm_isspacep_shared(address));
    bool mine = __nvvm_isspacep_shared(address);
    if (mine && (shared & below) == 0) {
        u64 *to = reserve(slot, end, 2);
        write_word(to, site, shared);
        write_word(to + 1, (u32)value, (u32)(value >> 32));
    }
}

/* The first bytes, eight at most, of what is copied where the length shows at run time. Nothing branches,
 * so that the lanes stay together; what is not of the copy is read from where there is something. */
DEVICE u64 __nvabi_copied(const unsigned char *from, u64 bytes) {
    u64 value = 0;
    for (u32 at = 0; at < 8; at++) {
        bool copied = at < bytes;
        const unsigned char *byte = copied ? from + at : (const unsigned char *)&__nvabi_trace;
        value |= (u64)(*byte & -(u32)copied) << 8 * at;
    }
    return value;
}

/* As above, of what is set to one byte. */
DEVICE u64 __nvabi_filled(u64 byte, u64 bytes) {
    u64 all = byte * 0x0101010101010101ull;
    return bytes < 8 ? all & ((1ull << 8 * bytes) - 1) : all;
}

static __attribute__((device, always_inline)) struct nvabi_trace_warp *header_of(u32 slot) {
    u64 low = read_shared(slot + HEADER), high = read_shared(slot + HEADER + 4);
    return (struct nvabi_trace_warp *)(low | high << 32);
}

/* While a warp pauses, its position is in `events` of its header. */
__attribute__((device, noinline)) void nvabi_trace_pause(void) {
    u32 slot = __nvabi_slot();
    u32 mask = active();
    u32 below = __nvabi_below(__nvabi_end(slot));
    __nvabi_finish(slot, below);
    if ((mask & below) == 0 && read_shared(slot + AT) < PAUSED) {
        header_of(slot)->events = exchange_shared(slot + AT, PAUSED);
    }
    __nvvm_bar_warp_sync(mask);
}

__attribute__((device, noinline)) void nvabi_trace_resume(void) {
    u32 slot = __nvabi_slot();
    u32 mask = active();
    if ((mask & __nvabi_below(__nvabi_end(slot))) == 0 && read_shared(slot + AT) >= PAUSED) {
        exchange_shared(slot + AT, header_of(slot)->events);
    }
    __nvvm_bar_warp_sync(mask);
}
}

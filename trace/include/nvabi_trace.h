/* The records of GPU traces: what a kernel writes while it runs, and what the files hold.
 *
 * This header is the one definition. It is plain C, read by C, C++ and CUDA alike; nvabi's Rust mirror
 * (trace/src/records.rs) is compared with it while it compiles. docs/trace.md says how the records make
 * up a file, and what a reader does with a damaged one.
 *
 * Everything is little-endian. Sizes and offsets are bytes unless a comment says otherwise; padding is
 * spelled out, so that every record has the same layout for every compiler.
 */
#ifndef NVABI_TRACE_H
#define NVABI_TRACE_H

#include <stdint.h>

/* ---- Events -------------------------------------------------------------------------------------- */

/* What happened. The numbers are those of gddbg v1. */
#define NVABI_TRACE_BRANCH 0u       /* a conditional branch, or a switch */
#define NVABI_TRACE_SHARED_STORE 1u /* a store to shared memory */
#define NVABI_TRACE_ATOMIC 2u       /* an atomic operation */
#define NVABI_TRACE_ENTRY 3u        /* a function is entered */
#define NVABI_TRACE_EXIT 4u         /* a function is left */

/* An event: one word of 8 bytes, then a ballot word and a value word where `site` says so. */
struct nvabi_trace_event {
    uint32_t site; /* NVABI_TRACE_SITE, _KIND, _TAKEN, _HAS_BALLOT, _HAS_VALUE; other bits are 0 */
    uint32_t mask; /* lanes that were active */
};

#define NVABI_TRACE_SITE 0x00ffffffu       /* index into the module's site table */
#define NVABI_TRACE_KIND 0x07000000u       /* what happened */
#define NVABI_TRACE_KIND_SHIFT 24
#define NVABI_TRACE_TAKEN 0x08000000u      /* the lowest active lane took the branch */
#define NVABI_TRACE_HAS_BALLOT 0x10000000u /* a nvabi_trace_ballot follows */
#define NVABI_TRACE_HAS_VALUE 0x20000000u  /* a 64-bit value follows, behind the ballot if there is one */

/* Follows a branch where the active lanes disagree, or that goes more than two ways. Without it, all
 * active lanes went the same way. */
struct nvabi_trace_ballot {
    uint32_t taken; /* active lanes that took the branch */
    uint32_t way;   /* of a switch: the case that the lowest active lane took; 0 or 1 is _TAKEN alone */
};

/* The most words of an event. */
#define NVABI_TRACE_EVENT_WORDS 3u

/* ---- On the device ------------------------------------------------------------------------------- */

/* Before the words of one warp, on the device and in a file. */
struct nvabi_trace_warp {
    uint32_t warp;    /* number of the warp in the launch: block * warps of a block + warp of the block */
    uint32_t words;   /* 8-byte words that follow and hold events */
    uint32_t events;  /* events in them */
    uint32_t dropped; /* events that came when the region was full; stays at 0xffffffff */
};

/* What the device's variable `__nvabi_trace` holds.
 *
 * A kernel leaves two records unfinished; the host corrects them before it writes the file. `words` of a
 * nvabi_trace_warp is the position that the warp came to: half words (4 bytes) from the first region's start,
 * 0 where it recorded nothing. It may be behind the region: the host counts what did not fit as `dropped`, by
 * words, where it does not know of how many events they were. `taken` of a nvabi_trace_ballot is the lanes that
 * went the way of the lowest active lane; `way` is not written. */
struct nvabi_trace_buffer {
    uint64_t warps;        /* device address of the regions' nvabi_trace_warp; 0: nothing is recorded */
    uint64_t events;       /* device address of the regions' words, `capacity` each */
    uint32_t capacity;     /* words of a region */
    uint32_t regions;      /* warps from regions * sample_every on are not recorded */
    uint32_t sample_every; /* warp n has region n / sample_every if that is whole; 0 is 1 */
    uint32_t reserved;     /* 0 */
};

/* Words behind each region that take the events that do not fit: a region begins every
 * capacity + NVABI_TRACE_SLACK words. */
#define NVABI_TRACE_SLACK 3u

/* Units of an image, and sites of each: together the sites that an event can name. */
#define NVABI_TRACE_UNITS 1024u
#define NVABI_TRACE_UNIT_SITES 0x4000u

/* ---- A file of version 2 -------------------------------------------------------------------------- */

#define NVABI_TRACE_MAGIC "NVTRACE"
#define NVABI_TRACE_VERSION 2u

/* At the start of a file. Chunks follow, each at a multiple of 8. */
struct nvabi_trace_file {
    char magic[8];    /* NVABI_TRACE_MAGIC and a zero byte */
    uint32_t version; /* NVABI_TRACE_VERSION */
    uint32_t size;    /* of this record */
};

#define NVABI_TRACE_CHUNK_MAGIC 0x4354564eu /* "NVTC" */
#define NVABI_TRACE_CHUNK_MAX 0x400000u     /* bytes of a chunk, stored or not, without its header */
#define NVABI_TRACE_SITES_MAX 0x800000u     /* bytes of all site chunks of a file, decompressed */
#define NVABI_TRACE_CHUNKS_MAX 0x80000u     /* chunks of a file */

#define NVABI_TRACE_CHUNK_SITES 1u  /* a part of a module's site table: nvabi_trace_sites */
#define NVABI_TRACE_CHUNK_LAUNCH 2u /* a launch: nvabi_trace_launch, then the kernel's name */
#define NVABI_TRACE_CHUNK_EVENTS 3u /* warps of a launch: nvabi_trace_warp and words, one after another */
#define NVABI_TRACE_CHUNK_END 4u    /* all of a launch is written: nvabi_trace_end */
#define NVABI_TRACE_CHUNK_INDEX 5u  /* where the chunks before are: nvabi_trace_index, one after another */

#define NVABI_TRACE_STORED 0u /* the bytes as they are */
#define NVABI_TRACE_ZSTD 1u   /* one frame of zstd */

/* Before each chunk. Its bytes follow, then zeros up to a multiple of 8. */
struct nvabi_trace_chunk {
    uint32_t magic;         /* NVABI_TRACE_CHUNK_MAGIC */
    uint32_t check;         /* CRC-32 (as in zlib) of the rest of this record */
    uint32_t payload_check; /* CRC-32 of the bytes that follow, as they are stored */
    uint16_t kind;          /* NVABI_TRACE_CHUNK_* */
    uint16_t codec;         /* NVABI_TRACE_STORED, NVABI_TRACE_ZSTD */
    uint32_t number;        /* of the chunk in the file, from 0 */
    uint32_t owner;         /* the launch; for sites the module; 0 for the index */
    uint32_t stored;        /* bytes that follow */
    uint32_t size;          /* bytes once they are decompressed */
    uint32_t first_warp;    /* of the events in it; 0 elsewhere */
    uint32_t last_warp;
};

/* A part of a module's site table: the entries follow, then their strings. The pass puts the same bytes
 * into the device code, as `__nvabi_sites`. */
struct nvabi_trace_sites {
    uint32_t first;   /* index of the first entry */
    uint32_t count;   /* entries */
    uint32_t strings; /* bytes of strings: UTF-8, each ends with a zero byte; the first is empty */
    uint32_t flags;   /* NVABI_TRACE_SITES_* */
};

#define NVABI_TRACE_SITES_V1 1u /* the keys are the 32-bit numbers of gddbg v1, without source lines */

/* A place in the program that records events. */
struct nvabi_trace_site {
    uint64_t key;      /* the same in every build in which the place did not change; see docs/trace.md */
    uint32_t file;     /* offset in the strings: the path as the compiler was given it, normalised */
    uint32_t function; /* offset in the strings */
    uint32_t inlined;  /* offset in the strings: "file:line:column:function" of each call, innermost
                          first, with ';' between them */
    uint32_t line;     /* from 1; 0 is unknown */
    uint32_t column;   /* from 1; 0 is unknown */
    uint16_t ordinal;  /* among the sites that agree in all of the above */
    uint8_t kind;      /* what is recorded there */
    uint8_t bytes;     /* width of the value that is recorded there; 0 where there is none */
};

/* A launch. Its modules' sites stand before it, its events behind it. */
struct nvabi_trace_launch {
    uint8_t module_hash[32];   /* SHA-256 of the module's code; zeros where it is not known */
    uint64_t stream;           /* the stream, as the process numbers them */
    uint64_t order;            /* launches of the process before this one */
    uint32_t session;          /* the process, in a file that several were merged into */
    uint32_t module;           /* whose site table the events' indexes are of */
    uint32_t arch;             /* compute capability: 10 * major + minor; 0 where it is not known */
    uint32_t grid[3];          /* blocks */
    uint32_t block[3];         /* threads of a block */
    uint32_t warps;            /* of the launch, recorded or not */
    uint32_t words_per_warp;   /* capacity of a region, in words; 0 where there was no limit */
    uint32_t sample_every;     /* as in nvabi_trace_buffer */
    uint32_t reserved;         /* 0 */
    uint32_t kernel;           /* bytes of the kernel's name, which follows; no zero byte at its end */
};

/* The end of a launch: it was written whole. */
struct nvabi_trace_end {
    uint64_t events;  /* recorded */
    uint64_t dropped; /* not recorded, because regions were full */
    uint32_t warps;   /* with a record in the file */
    uint32_t flags;   /* 0 */
};

/* Where a chunk is. */
struct nvabi_trace_index {
    uint64_t offset;                /* of the chunk's header in the file */
    struct nvabi_trace_chunk chunk; /* its header */
};

#define NVABI_TRACE_FOOTER_MAGIC "NVTREND"

/* The last bytes of a file that was closed. */
struct nvabi_trace_footer {
    uint64_t index;  /* offset of the first index chunk */
    uint32_t chunks; /* chunks before the index */
    uint32_t check;  /* CRC-32 of the 12 bytes before */
    char magic[8];   /* NVABI_TRACE_FOOTER_MAGIC and a zero byte */
};

/* ---- A file of gddbg v1 ---------------------------------------------------------------------------- */

#define NVABI_TRACE_V1_MAGIC "GDDBGGPU"
#define NVABI_TRACE_V1_VERSION 1u
#define NVABI_TRACE_V1_FIXED 1u /* every warp takes events_per_warp events, used or not */

/* At the start of a file; the warps follow. */
struct nvabi_trace_v1_file {
    char magic[12];           /* NVABI_TRACE_V1_MAGIC and zero bytes */
    uint32_t version;         /* NVABI_TRACE_V1_VERSION */
    uint32_t flags;           /* NVABI_TRACE_V1_* */
    uint32_t grid[3];         /* blocks */
    uint32_t block[3];        /* threads of a block */
    uint32_t warps;           /* warps that follow */
    uint32_t events_per_warp; /* capacity of a warp */
    uint32_t reserved[3];     /* 0 */
    char kernel[64];          /* the kernel's name, filled up with zero bytes */
};

/* Before the events of a warp. */
struct nvabi_trace_v1_warp {
    uint32_t write_index; /* events that the warp began to write */
    uint32_t dropped;     /* events that came when it was full */
    uint32_t events;      /* events that follow */
    uint32_t total;       /* events that came */
};

struct nvabi_trace_v1_event {
    uint32_t site;      /* hash of the place in the program */
    uint8_t kind;       /* NVABI_TRACE_BRANCH, ... */
    uint8_t direction;  /* of a branch: 1 where it is taken */
    uint16_t reserved;  /* 0 */
    uint32_t mask;      /* lanes that were active */
    uint32_t value;
};

#endif

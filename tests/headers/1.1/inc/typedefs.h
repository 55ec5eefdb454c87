/* Who names whom. */
#pragma once
#include "types.h"

/* Two names at once; the first is the record's. */
typedef volatile struct nvt_two_tag {
    NvU32 status;
    volatile NvU32 info;
} NvtTwoFirst, NvtTwoSecond;

/* The tag has another name than the typedef. */
typedef struct NVT_OTHER_TAG_STRUCT {
    NvU32 a;
} NVT_OTHER_TAG;

/* The typedef stands before the body. */
typedef struct nvt_forward NvtForward;
struct nvt_forward {
    NvtForward *next;
    NvU32 value;
};

/* Nothing but a tag. */
struct nvt_tag_only {
    NvU16 a;
    NvU32 b;
};

/* A typedef of a typedef of a record, and of a scalar. */
typedef NVT_OTHER_TAG NVT_OTHER_TAG_ALIAS;
typedef NVT_OTHER_TAG_ALIAS NVT_OTHER_TAG_ALIAS_OF_ALIAS;
typedef NvU32 NvtStatus;
typedef NvtStatus NvtResult;

/* A name whose body is nowhere. */
typedef struct nvt_opaque NvtOpaque;

typedef struct {
    NVT_OTHER_TAG_ALIAS_OF_ALIAS inner;
    struct nvt_tag_only tagged;
    const NvtResult result;
    NvtTwoSecond two;
    NvtOpaque *opaque;
} NVT_TYPEDEFS;

/* A record that is defined within another, with a tag: it stands outside all the same. */
typedef struct {
    struct nvt_defined_within {
        NvU32 x;
    } member;
    struct nvt_defined_within again;
} NVT_DEFINES_WITHIN;

/* Macros that are integers, and macros that only look like it. */
#pragma once
#include "types.h"
#include "unions.h"
#include "enums.h"
#include "sysnames.h"

#define NVT_DECIMAL 42
#define NVT_HEX 0xC1D0F00D
#define NVT_HEX_UPPER 0XfFuL
#define NVT_OCTAL 0755
#define NVT_CHAR 'F'
#define NVT_CHAR_ESCAPED '\n'
#define NVT_NEGATIVE_NUMBER (-3)
#define NVT_SHIFT (1 << 20)
#define NVT_SHIFT_TOP (1U << 31)
#define NVT_ALL_ONES (~0U)
#define NVT_ALL_ONES_64 (~0ULL)
#define NVT_LOWEST_64 (-9223372036854775807LL - 1)
#define NVT_CAST ((NvU8)0x1234)
#define NVT_CAST_SIGNED ((NvS32)0xffffffff)
#define NVT_SIZEOF sizeof(NVT_UNION)
#define NVT_SIZEOF_ARRAY (sizeof(NvU32) * 4)
#define NVT_TERNARY (NVT_DECIMAL > 41 ? 1 : 2)
#define NVT_OF_ENUMERATOR (NVT_PLAIN_Z + 1)
#define NVT_WITH_COMMENT 5 /* five */ // and more
#define NVT_CONTINUED (1 + \
                       2)

#define NVT_FUNCTION(x, y) (((x) << 8) | (y))
#define NVT_APPLIED NVT_FUNCTION(0x12, 0x34)
#define NVT_APPLIED_TWICE NVT_FUNCTION(NVT_APPLIED, 1)
#define NVT_PASTE(a) NVT_##a
#define NVT_PASTED NVT_PASTE(DECIMAL)

#define NVT_BITS_LOW 7:0
#define NVT_BITS_COMPUTED (8 + 7):(8)
#define NVT_BITS_ALIAS NVT_BITS_LOW
#define NVT_BITS_ALIAS_OF_ALIAS NVT_BITS_ALIAS
#define NVT_BITS_FAR 255:224

#define NVT_UNDEFINED 1
#undef NVT_UNDEFINED
#define NVT_USES_UNDEFINED (NVT_UNDEFINED + 1)
#define NVT_REDEFINED 1
#undef NVT_REDEFINED
#define NVT_REDEFINED 2

#define NVT_STRING "text"
#define NVT_FLOAT 1.5
#define NVT_EMPTY
#define NVT_TYPE_ONLY NvU32
#define NVT_STATEMENT do { } while (0)
#define NVT_OF_SYSTEM (SYS_CONSTANT + 1)

#ifdef __aarch64__
#define NVT_PAGE_SIZE 65536
#else
#define NVT_PAGE_SIZE 4096
#endif

#define NVT_CALL_ONE 0x27
#define NVT_CALL_TWO 0x28

//! Stand-ins for the few system headers that driver headers include.
//!
//! They hold just what the driver's headers need from them and are our own text, so that facts
//! are the same on every machine and for every target. Their names are never recorded.

/// Folder, existing only for the parser, that the stubs appear under.
pub(super) const ROOT: &str = "/nvabi-stubs";

const STDINT: &str = "#pragma once
typedef __INT8_TYPE__ int8_t; typedef __UINT8_TYPE__ uint8_t;
typedef __INT16_TYPE__ int16_t; typedef __UINT16_TYPE__ uint16_t;
typedef __INT32_TYPE__ int32_t; typedef __UINT32_TYPE__ uint32_t;
typedef __INT64_TYPE__ int64_t; typedef __UINT64_TYPE__ uint64_t;
typedef __INTPTR_TYPE__ intptr_t; typedef __UINTPTR_TYPE__ uintptr_t;
typedef __INTMAX_TYPE__ intmax_t; typedef __UINTMAX_TYPE__ uintmax_t;
";

const STDDEF: &str = "#pragma once
typedef __SIZE_TYPE__ size_t; typedef __PTRDIFF_TYPE__ ptrdiff_t;
#ifndef __cplusplus
typedef __WCHAR_TYPE__ wchar_t;
#endif
#define NULL ((void *)0)
#define offsetof(t, m) __builtin_offsetof(t, m)
";

const STDARG: &str = "#pragma once
typedef __builtin_va_list va_list;
#define va_start(l, p) __builtin_va_start(l, p)
#define va_end(l) __builtin_va_end(l)
#define va_arg(l, t) __builtin_va_arg(l, t)
#define va_copy(d, s) __builtin_va_copy(d, s)
";

const STDBOOL: &str = "#pragma once
#ifndef __cplusplus
#define bool _Bool
#define true 1
#define false 0
#endif
";

const LIMITS: &str = "#pragma once
#define CHAR_BIT 8
#define INT_MAX __INT_MAX__
#define UINT_MAX (__INT_MAX__ * 2U + 1U)
#define LONG_MAX __LONG_MAX__
#define ULONG_MAX (__LONG_MAX__ * 2UL + 1UL)
";

/// How Linux packs an ioctl request on x86-64 and on arm64 (asm-generic/ioctl.h).
const IOCTL: &str = "#pragma once
#define _IOC_NONE 0U
#define _IOC_WRITE 1U
#define _IOC_READ 2U
#define _IOC(dir, type, nr, size) (((dir) << 30) | ((type) << 8) | ((nr) << 0) | ((size) << 16))
#define _IO(type, nr) _IOC(_IOC_NONE, (type), (nr), 0)
#define _IOR(type, nr, size) _IOC(_IOC_READ, (type), (nr), sizeof(size))
#define _IOW(type, nr, size) _IOC(_IOC_WRITE, (type), (nr), sizeof(size))
#define _IOWR(type, nr, size) _IOC(_IOC_READ | _IOC_WRITE, (type), (nr), sizeof(size))
";

const TYPES: &str = "#pragma once
#include <stdint.h>
#include <stddef.h>
typedef int8_t __s8; typedef uint8_t __u8; typedef int16_t __s16; typedef uint16_t __u16;
typedef int32_t __s32; typedef uint32_t __u32;
typedef long long __s64; typedef unsigned long long __u64;
";

/// The request numbers that DRM gives to drivers (drm/drm.h).
const DRM: &str = "#pragma once
#include <linux/types.h>
#include <linux/ioctl.h>
#define DRM_IOCTL_BASE 'd'
#define DRM_COMMAND_BASE 0x40
#define DRM_COMMAND_END 0xA0
#define DRM_IO(nr) _IO(DRM_IOCTL_BASE, nr)
#define DRM_IOR(nr, type) _IOR(DRM_IOCTL_BASE, nr, type)
#define DRM_IOW(nr, type) _IOW(DRM_IOCTL_BASE, nr, type)
#define DRM_IOWR(nr, type) _IOWR(DRM_IOCTL_BASE, nr, type)
";

/// The types that they declare, which macros cast to.
pub(super) fn types() -> impl Iterator<Item = &'static str> {
    let declarations = [STDINT, STDDEF, TYPES].into_iter().flat_map(|text| text.split([';', '\n']));
    declarations.filter_map(|line| line.trim().strip_prefix("typedef ")?.split(' ').next_back())
}

pub(super) fn files() -> Vec<(String, &'static str)> {
    [
        ("stdint.h", STDINT),
        ("inttypes.h", STDINT),
        ("stddef.h", STDDEF),
        ("stdarg.h", STDARG),
        ("stdbool.h", STDBOOL),
        ("limits.h", LIMITS),
        ("linux/ioctl.h", IOCTL),
        ("sys/ioctl.h", IOCTL),
        ("asm/ioctl.h", IOCTL),
        ("linux/types.h", TYPES),
        ("sys/types.h", TYPES),
        ("drm/drm.h", DRM),
    ]
    .map(|(name, text)| (format!("{ROOT}/{name}"), text))
    .into()
}

/* Stands for a header of the system that lies in the tree: its names are not the driver's. */
#pragma once

#define SYS_CONSTANT 99
typedef struct {
    int nothing;
} sys_record_t;
typedef sys_record_t sys_alias_t;
enum { SYS_ENUMERATOR = 3 };

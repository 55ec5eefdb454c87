#!/usr/bin/env bash
# How long it takes to find and try every device of the virtual machine, and to remember what came of it: two GPUs,
# cameras, displays. Asked: 200 ms for both, and 5 ms when it is remembered. Exit status 1 when it takes longer. The
# slowest device is told: Mesa's Vulkan in software takes 32 ms to open on a processor and 760 ms or more where qemu
# translates.
#
#   benches/devmem_probe.sh [KERNEL [MESA]]
#
# KERNEL and MESA are the folders that cli/tests/devmem_vm/kernel.sh and mesa.sh filled (target/devmem-kernel,
# target/devmem-mesa). VM_ACCEL=kvm runs the machine on the processor; without it qemu translates, which takes longer.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
kernel=${1:-$target/devmem-kernel}
mesa=${2:-$target/devmem-mesa}
program=$(cargo test --quiet --release --package nvabi-cli --features devmem --test devmem_drivers --no-run \
    --message-format=json | sed -n 's/.*"executable":"\([^"]*devmem_drivers[^"]*\)".*/\1/p' | tail -n 1)
[ -d "$mesa" ] && export VM_ROOT=$mesa
export NVABI_TEST_VM=1
log=$(cli/tests/devmem_vm/run.sh "$kernel" "$program" --exact own::what_was_tried_is_remembered --nocapture)
line=$(printf '%s\n' "$log" | grep '^probe: ') || { printf '%s\n' "$log"; exit 2; }
echo "$line"
found=$(printf '%s\n' "$log" | grep '^found in ')
echo "$found"
printf '%s\n' "$log" | grep '^slowest: '
# found in 12.0 ms
# probe: 9 devices, 178.2 ms, 4.1 ms remembered
echo "$found $line" | awk '{ exit !($3 + $8 <= 200 && $10 <= 5) }'

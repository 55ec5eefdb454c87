#!/bin/sh
# Runs a program in a virtual machine that has devices to allocate from and to import into.
#
#   cli/tests/devmem_vm/run.sh KERNEL PROGRAM [ARGUMENT…]
#
# KERNEL is a folder that kernel.sh filled: `vmlinuz`, and `modules/` where its drivers are modules.
# What is set in the environment as NVABI_… or RUST_… is set there too. Programs in the variable
# VM_FILES (NAME=PATH, separated by spaces) lie in /bin there, and what is in the folder VM_ROOT lies in its
# root. With VM_VIRGL=1 its virtio GPU draws, by virglrenderer on a screen that nobody sees. The exit status is the program's, 124
# when it takes longer than VM_SECONDS (600), 125 when the machine ends otherwise, 77 when something
# to run it with is missing.
set -eu

kernel=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
for needed in qemu-system-x86_64 busybox; do
    command -v "$needed" >/dev/null || { echo "skipped: no $needed" >&2; exit 77; }
done
[ -r "$kernel/vmlinuz" ] || { echo "skipped: no kernel in $kernel" >&2; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
root=$work/root
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/tmp"

# A program without its debug information, and the libraries that it names.
install_program() {
    strip -o "$2" "$1" 2>/dev/null || cp "$1" "$2"
    for library in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
        mkdir -p "$root$(dirname "$library")"
        cp -Lu "$library" "$root$library"
    done
}

quote() {
    for word in "$@"; do
        printf "'%s' " "$(printf %s "$word" | sed "s/'/'\\\\''/g")"
    done
}

busybox=$(command -v busybox)
ldd "$busybox" >/dev/null 2>&1 && { echo "skipped: busybox is not a static one" >&2; exit 77; }
cp "$busybox" "$root/bin/busybox"
for applet in sh mount mkdir modprobe cat reboot; do ln -s busybox "$root/bin/$applet"; done
cp "$here/init" "$root/init"
install_program "$1" "$root/program"
for file in ${VM_FILES:-}; do install_program "${file#*=}" "$root/bin/${file%%=*}"; done
shift
quote "$@" >"$root/arguments"
env | grep -E '^(NVABI|RUST)_[A-Z_]*=' | while IFS='=' read -r name value; do
    echo "export $name=$(quote "$value")"
done >"$root/environment"
if [ -d "$kernel/modules" ]; then
    mkdir -p "$root/lib"
    cp -r "$kernel/modules" "$root/lib/modules"
fi

if [ -n "${VM_ROOT:-}" ]; then cp -r "$VM_ROOT/." "$root"; fi

(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$work/initramfs"

# The serial line carries what the program prints; -no-reboot makes its end the machine's. A host that is busy may
# be late with the interrupts by which the kernel checks its timer, which then panics: no_timer_check.
status=0
cameras="vivid.n_devs=3 vivid.node_types=0x1,0x1,0x1 vivid.allocators=0,1,0 vivid.multiplanar=1,1,2"
# The firmware's framebuffer: no driver takes the card from it. 1024 x 768, 16 bits a pixel.
framebuffer=vga=0x317
# The converter has the interface with one memory for all planes, the codecs the other one.
codecs="vicodec.multiplanar=1"
gpu=virtio-gpu-pci display=none screen=
if [ -n "${VM_VIRGL:-}" ]; then gpu=virtio-gpu-gl-pci display=gtk,gl=on screen="xvfb-run -a"; fi
timeout "${VM_SECONDS:-600}" $screen qemu-system-x86_64 \
    -accel "${VM_ACCEL:-tcg}" -cpu max -m 1G -nodefaults -no-user-config -display "$display" -no-reboot \
    -device cirrus-vga -device bochs-display -device "$gpu" \
    -kernel "$kernel/vmlinuz" -initrd "$work/initramfs" -serial stdio \
    -append "console=ttyS0 quiet panic=-1 no_timer_check $framebuffer $cameras $codecs" \
    </dev/null >"$work/log" 2>&1 || status=$?
tr -d '\r' <"$work/log"
[ "$status" = 124 ] && { echo "the virtual machine took longer than ${VM_SECONDS:-600} s" >&2; exit 124; }
status=$(sed -n 's/^virtual machine: exit \([0-9]*\).*/\1/p' "$work/log" | tail -n 1)
exit "${status:-125}"

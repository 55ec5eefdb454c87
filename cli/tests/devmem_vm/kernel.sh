#!/bin/sh
# Gets a kernel for the virtual machine, without installing anything.
#
#   cli/tests/devmem_vm/kernel.sh package [FOLDER]   a packaged kernel: quick; it lacks some drivers
#   cli/tests/devmem_vm/kernel.sh modules [FOLDER]   the same with those that can be built as modules: two minutes
#   cli/tests/devmem_vm/kernel.sh build [FOLDER]     a small one from the packaged source, with all of them
#
# FOLDER is target/devmem-kernel unless given: where the tests look. It gets `vmlinuz`, `provides` with
# the drivers that must be there, and `modules/` where drivers are modules. Works on Debian, whose
# backports (or KERNEL_SUITE) are asked as well, and on what derives from it. Modules need make and the compiler that
# built the kernel. A build needs flex, bison, bc and libelf-dev too, some ten minutes of two cores and 2 GB of disk
# under TMPDIR.
set -eu

kind=${1:?package, modules or build}
here=$(cd "$(dirname "$0")" && pwd)
folder=${2:-${CARGO_TARGET_DIR:-$here/../../../target}/devmem-kernel}
. "$here/apt.sh"
mkdir -p out
# The packages whose names match a pattern, among those that a package needs.
needs() { apt-cache $own depends "$1" | awk -v p="$2" '/Depends:/ && $2 ~ p { print $2 }'; }
# Of an alternative, the first that there is to download.
download() { for name in "$@"; do apt-get $own download -qq "$name" 2>/dev/null && return; done; return 1; }

package() {
    command -v depmod >/dev/null || { echo "package needs kmod" >&2; exit 1; }
    for meta in "linux-image-$(dpkg --print-architecture)" linux-image-generic; do
        version=$(newest "$meta")
        [ -z "$version" ] || break
    done
    [ -n "$version" ] || { echo "apt knows no kernel" >&2; exit 1; }
    image=$(needs "$meta=$version" '^linux-image-[0-9]' | head -n 1)
    release=${image#linux-image-}
    download "$image" "$image-unsigned" || { echo "cannot download $image" >&2; exit 1; }
    download "linux-modules-$release" || true
    download "linux-modules-extra-$release" || true
    unpack
    # Where /lib is a link to /usr/lib, packages have the latter.
    [ -e root/lib ] || ln -s usr/lib root/lib
    cp root/boot/vmlinuz-* out/vmlinuz
    cp "root/boot/config-$release" config
    more
    provides config >out/provides
    [ -s out/provides ] || { echo "$image has none of the drivers" >&2; exit 1; }
    depmod -b root "$release"
    modules
}

# Drivers that the packaged kernel has not are built for it as modules, from the packaged source.
more() {
    [ "$kind" = modules ] || return 0
    headers=linux-headers-$release
    for name in "$headers" $(needs "$headers" '^linux-(headers|kbuild)-'); do
        download "$name" || { echo "cannot download $name" >&2; exit 1; }
    done
    kernel_source
    # Modules without BTF are what is wanted: that needs pahole.
    sources=root/usr/src
    rm -f "$sources/$headers/vmlinux"
    # It includes what all architectures have by the place where the package would be installed.
    sed -i -E "s,[^ ]*/(linux-headers-),$work/$sources/\1," "$sources/$headers/Makefile"
    mkdir tree more
    drivers=tree/drivers
    tar -xf "$sources/$source".tar.* -C tree --strip-components 1 --wildcards \
        '*/drivers/media/v4l2-core/v4l2-mem2mem.c' '*/drivers/media/test-drivers/*' '*/drivers/gpu/drm/vkms/*' \
        '*/drivers/dma-buf/s*'
    cp -r $drivers/media/v4l2-core/v4l2-mem2mem.c $drivers/media/test-drivers/vim2m.c \
        $drivers/media/test-drivers/vicodec $drivers/gpu/drm/vkms more
    sw_sync
    while read -r option object; do
        grep -q "^CONFIG_$option=" config && continue
        echo "obj-m += $object" >>more/Kbuild
        echo "CONFIG_$option=m" >>config
    done <<'EOF'
V4L2_MEM2MEM_DEV v4l2-mem2mem.o
VIDEO_VIM2M vim2m.o
VIDEO_VICODEC vicodec/
DRM_VKMS vkms/
SW_SYNC sw_sync/
EOF
    make -s -j "${JOBS:-$(nproc)}" -C "$sources/$headers" M="$work/more" CONFIG_V4L2_MEM2MEM_DEV=m \
        CONFIG_VIDEO_VIM2M=m CONFIG_VIDEO_VICODEC=m CONFIG_DRM_VKMS=m modules >make.log 2>&1 ||
        { cat make.log >&2; exit 1; }
    mkdir "root/lib/modules/$release/more"
    find more -name '*.ko' -exec strip --strip-debug {} \; -exec cp {} "root/lib/modules/$release/more" \;
}

# sw_sync is made for being part of the kernel: as a module it needs a licence and its trace points beside it, and its
# list of what is open cannot ask for a name that is not given.
sw_sync() {
    mkdir more/sw_sync
    cp $drivers/dma-buf/sw_sync.c $drivers/dma-buf/sync_*.[ch] more/sw_sync
    echo 'MODULE_LICENSE("GPL");' >>more/sw_sync/sync_debug.c
    sed -i -e 's,^#include <linux/debugfs.h>,#include <linux/module.h>\n&,' \
        -e 's/sync_file_get_name(sync_file, buf, sizeof(buf))/sync_file->user_name/' more/sw_sync/sync_debug.c
    sed -i 's,^\(#define TRACE_INCLUDE_PATH\) .*,\1 .,' more/sw_sync/sync_trace.h
    cat >more/sw_sync/Kbuild <<'EOF'
obj-m += sw-sync.o
sw-sync-y := sw_sync.o sync_debug.o
ccflags-y += -I$(src)
EOF
}

# The packaged source, which belongs to no kernel that is packaged: the newest.
kernel_source() {
    of_source=$(newest linux-source)
    [ -n "$of_source" ] || { echo "apt knows no linux-source" >&2; exit 1; }
    source=$(needs "linux-source=$of_source" '^linux-source-' | head -n 1)
    download "$source=$(newest "$source")" || { echo "cannot download $source" >&2; exit 1; }
    unpack
}

# What the machine has with a kernel of this configuration, as tests call it.
provides() {
    while read -r option devices; do
        if grep -Eq "^CONFIG_$option=[my]$" "$1"; then echo "$devices"; fi
    done <<'EOF'
UDMABUF udmabuf
DMABUF_HEAPS_SYSTEM dma-heap:system
DRM_VGEM vgem
DRM_VKMS vkms
DRM_BOCHS bochs
DRM_VIRTIO_GPU virtio-gpu
VIDEO_VIVID camera contiguous-camera camera-by-planes
VIDEO_VIM2M converter
VIDEO_VICODEC encoder decoder
SW_SYNC sw_sync
EOF
}

# The drivers' modules and those that they need, not compressed: busybox loads them as they are.
modules() {
    for driver in udmabuf vgem vkms bochs virtio_pci virtio-gpu vivid vim2m vicodec sw-sync; do
        modprobe -S "$release" -d "$work/root" --show-depends "$driver" 2>/dev/null || true
    done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r file; do
        to=out/modules/${file#*/modules/}
        mkdir -p "$(dirname "$to")"
        case $file in
            *.xz) xz -dc "$file" >"${to%.xz}" ;;
            *.zst) zstd -dqc "$file" >"${to%.zst}" ;;
            *) cp "$file" "$to" ;;
        esac
    done
    mkdir -p out/lib "out/modules/$release"
    ln -s ../modules out/lib/modules
    depmod -b out "$release" 2>/dev/null
    rm -r out/lib
}

build() {
    kernel_source
    version=$of_source
    mkdir tree
    tar -xf root/usr/src/"$source".tar.* -C tree --strip-components 1
    rm -r root
    cd tree
    make -s ARCH=x86_64 tinyconfig >/dev/null
    scripts/kconfig/merge_config.sh -m .config "$here/kernel.config" >/dev/null 2>&1
    make -s ARCH=x86_64 olddefconfig
    grep '^CONFIG_' "$here/kernel.config" | while read -r line; do
        grep -qx "$line" .config || { echo "$source does not take $line" >&2; exit 1; }
    done
    make -s ARCH=x86_64 -j "${JOBS:-$(nproc)}" bzImage
    cd ..
    cp tree/arch/x86/boot/bzImage out/vmlinuz
    {
        provides tree/.config
        echo dma-heap:reserved simpledrm
        # Large pages are mapped wholly since 6.15 (drivers/udmabuf.rs).
        if printf '%s\n' 6.15 "${version%%-*}" | sort -CV; then echo udmabuf:2M; fi
    } >out/provides
}

case $kind in
    package | modules) package ;;
    build) build ;;
    *) echo "package, modules or build, not $kind" >&2; exit 2 ;;
esac
# Only a whole kernel takes the place of an earlier one.
mkdir -p "$(dirname "$folder")"
rm -rf "$folder"
mv out "$folder"
echo "$folder has ${version}"

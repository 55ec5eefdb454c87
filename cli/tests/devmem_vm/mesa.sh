#!/bin/sh
# Gets Mesa's software drivers of OpenGL and Vulkan for the virtual machine, without installing anything.
#
#   cli/tests/devmem_vm/mesa.sh [FOLDER]
#
# FOLDER is target/devmem-mesa unless given: where the tests look. It gets what goes into the machine's root: libgbm,
# libEGL, libvulkan and their drivers (llvmpipe, lavapipe), and each library that they name. Those of Mesa 24.3 and
# later take memory of others where there is /dev/udmabuf; Debian 12 has them among its backports.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${CARGO_TARGET_DIR:-$here/../../../target}/devmem-mesa}
. "$here/apt.sh"

# What is not installed here, or older, of Mesa and what it needs.
wanted=
for package in mesa-vulkan-drivers libgbm1 libegl-mesa0 libegl1 libvulkan1 mesa-libgallium; do
    version=$(newest "$package")
    [ -n "$version" ] || { echo "apt knows no $package" >&2; exit 1; }
    wanted="$wanted $package=$version"
done
# Installed packages are downloaded too: a simulation names those alone that are not.
simulated=$(apt-get $own $prefer -s install --no-install-recommends $wanted)
for package in $(echo "$simulated" | awk '$1 == "Inst" { print $2 }'); do
    wanted="$wanted $package=$(newest "$package")"
done
apt-get $own download -qq $wanted
unpack

libraries=$(cd root && dirname "$(find . -name 'libgallium-*.so' | head -n 1)" | sed 's/^\.//')
mkdir -p "out$libraries/gbm" out/usr/share/vulkan/icd.d out/usr/share/glvnd/egl_vendor.d
take() { cp -L "$1" "out$libraries/${2:-}"; }
names="libgallium-*.so libgbm.so.1 libEGL.so.1 libEGL_mesa.so.0 libGLdispatch.so.0 libvulkan.so.1 libvulkan_lvp.so"
for name in $names; do
    for file in "root$libraries"/$name "$libraries"/$name; do
        if [ -e "$file" ]; then take "$file"; break; fi
    done
done
take "root$libraries/gbm/dri_gbm.so" gbm/
cp root/usr/share/glvnd/egl_vendor.d/*mesa.json out/usr/share/glvnd/egl_vendor.d/
echo '{ "ICD": { "api_version": "1.3.0", "library_path": "libvulkan_lvp.so" }, "file_format_version": "1.0.0" }' \
    >out/usr/share/vulkan/icd.d/lvp_icd.json
# The libraries that they name, from the packages before those that are installed.
for library in "out$libraries"/*.so* "out$libraries"/gbm/*.so; do
    LD_LIBRARY_PATH="$work/root$libraries" ldd "$library" | awk '$2 == "=>" { print $1, $3 }'
done | sort -u | while read -r name file; do
    [ "$file" != not ] || { echo "$name is not there" >&2; exit 1; }
    [ -e "out$libraries/$name" ] || cp -L "$file" "out$libraries/$name"
done

mkdir -p "$(dirname "$folder")"
rm -rf "$folder"
mv out "$folder"
echo "$folder has Mesa $(newest libgbm1)"

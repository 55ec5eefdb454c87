#!/usr/bin/env bash
# What the derive costs a crate that uses it: `cargo check` of a crate with twelve derives, beside the same crate
# with plain `repr(C)` structs.
#
#   benches/derive.sh [RUNS]
#
# Cold is a check without any build output, with the sources of every crate fetched already; warm is one after an
# edit of the crate. Runs alternate; medians are printed. Asked: cold ≤ 12 s, warm ≤ 0.4 s on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
runs=${1:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seconds() { /usr/bin/time -f %e -o "$work/time" "$@" > /dev/null 2>&1 || { "$@"; exit 1; }; cat "$work/time"; }
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
ratio() { awk "BEGIN { printf \"%.1f\", $1 / $2 }"; }

# One line for each struct: its name, then `field:type` each. H is a handle, P a pointer.
structs() {
    cat <<'END'
NVOS00_PARAMETERS hRoot:H hObjectParent:H hObjectOld:H status:u32
NVOS21_PARAMETERS hRoot:H hObjectParent:H hObjectNew:H hClass:u32 pAllocParms:P paramsSize:u32 status:u32
NVOS54_PARAMETERS hClient:H hObject:H cmd:u32 flags:u32 params:P paramsSize:u32 status:u32
NVOS64_PARAMETERS hRoot:H hObjectParent:H hObjectNew:H hClass:u32 pAllocParms:P pRightsRequested:P paramsSize:u32 flags:u32 status:u32 _pad:u32
NVOS34_PARAMETERS hClient:H hDevice:H hMemory:H _pad:u32 pLinearAddress:P status:u32 flags:u32
NVOS33_PARAMETERS hClient:H hDevice:H hMemory:H _pad:u32 offset:u64 length:u64 pLinearAddress:P status:u32 flags:u32
NVOS46_PARAMETERS hClient:H hDevice:H hDma:H hMemory:H offset:u64 length:u64 flags:u32 _pad:u32 dmaOffset:u64 status:u32 _pad2:u32
NVOS55_PARAMETERS hClient:H hParent:H hObject:H hClientSrc:H hObjectSrc:H flags:u32 status:u32
NVOS02_PARAMETERS hRoot:H hObjectParent:H hObjectNew:H hClass:u32 flags:u32 _pad:u32 pMemory:P limit:u64 status:u32 _pad2:u32
UVM_INITIALIZE_PARAMS flags:u64 rmStatus:u32 _pad:u32
UVM_FREE_PARAMS base:u64 length:u64 rmStatus:u32 _pad:u32
NV0080_ALLOC_PARAMETERS deviceId:u32 hClientShare:H hTargetClient:H hTargetDevice:H flags:u32 _pad:u32 vaSpaceSize:u64 vaStartInternal:u64 vaLimitInternal:u64 vaMode:u32 _pad2:u32
END
}

# crate NAME HANDLE POINTER ATTRIBUTE [DEPENDENCY]
# nvabi is built as from a registry or a repository: without what a path dependency keeps for the next edit of it.
crate() {
    mkdir -p "$work/$1/src"
    printf '%s\n' '[package]' "name = \"$1\"" 'version = "0.0.0"' 'edition = "2024"' '[workspace]' \
        '[profile.dev.package."*"]' 'incremental = false' '[dependencies]' "${5:-}" > "$work/$1/Cargo.toml"
    { echo '#![allow(non_camel_case_types, non_snake_case)]'
      structs | awk -v handle="$2" -v pointer="$3" -v attribute="$4" '{
          print attribute "\n#[repr(C)]\npub struct " $1 " {"
          for (i = 2; i <= NF; i++) {
              split($i, of, ":")
              type = of[2] == "H" ? handle : of[2] == "P" ? pointer : of[2]
              print "    pub " of[1] ": " type ","
          }
          print "}"
      }'; } > "$work/$1/src/lib.rs"
}
crate plain u32 u64 ''
crate derives nvabi::Handle nvabi::P64 '#[derive(nvabi::NvProxy)]\n#[nvproxy(driver = "550")]' \
    "nvabi = { path = \"$root\", features = [\"driver-550\"] }"
cp Cargo.lock "$work/derives/Cargo.lock"
for name in plain derives; do
    (cd "$work/$name" && cargo fetch --quiet && cargo check --quiet --offline)
    test "$(grep -c '^pub struct' "$work/$name/src/lib.rs")" = 12
done
# A struct that is wrong must be found, or nothing was compared.
sed 's/pub hRoot: nvabi::Handle/pub hRoot: u64/' "$work/derives/src/lib.rs" > "$work/wrong.rs"
cp "$work/derives/src/lib.rs" "$work/right.rs"
cp "$work/wrong.rs" "$work/derives/src/lib.rs"
if (cd "$work/derives" && cargo check --quiet --offline 2> /dev/null); then
    echo "a wrong struct compiles: the derive compares nothing" >&2
    exit 1
fi
cp "$work/right.rs" "$work/derives/src/lib.rs"

check() { (cd "$work/$1" && seconds cargo check --offline); }
for _ in $(seq "$runs"); do
    for name in derives plain; do
        rm -rf "$work/$name/target"
        check "$name" >> "$work/$name-cold.txt"
        touch "$work/$name/src/lib.rs"
        check "$name" >> "$work/$name-warm.txt"
    done
done
for what in cold warm; do
    derives=$(median "$work/derives-$what.txt")
    plain=$(median "$work/plain-$what.txt")
    echo "$what: twelve derives $derives s, plain structs $plain s, ratio $(ratio "$derives" "$plain")"
done

#!/usr/bin/env bash
# Builds a program around the compiler of syzkaller's descriptions, once, and prints the program.
#
#   NVABI_SYZKALLER=$(tests/syzkaller.sh target/syzkaller) cargo test
#
# Go (NVABI_GO, or `go`) downloads the module; where it cannot, NVABI_SYZKALLER_SOURCE is a checkout to build from.
set -euo pipefail

folder=${1:?usage: syzkaller.sh FOLDER}
version=${SYZKALLER:-1e72964b0111319984575e60f266d1fa0a98abb5}
go=${NVABI_GO:-go}
main=$(cd "$(dirname "$0")/.." && pwd)/cli/tests/emit/syzkaller.go

if [ ! -x "$folder/check" ] || [ "$main" -nt "$folder/check" ]; then
    source=${NVABI_SYZKALLER_SOURCE:-}
    if [ -z "$source" ]; then
        module=github.com/google/syzkaller@$version
        if ! described=$("$go" mod download -json "$module" 2>&1); then
            why=$(sed -n 's/^\t"Error": "\(.*\)",*$/\1/p' <<<"$described")
            echo "syzkaller.sh: $module cannot be downloaded: ${why:-$described}" >&2
            exit 1
        fi
        source=$(sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p' <<<"$described")
    fi
    rm -rf "$folder.new"
    mkdir -p "$folder.new/src/check" "$folder.new/src/pkg/stat"
    # What the compiler is made of, and nothing that needs another module: no machine code is generated, no file
    # systems are checked, and no counters are exported.
    for package in pkg/ast pkg/compiler pkg/hash pkg/ifuzz pkg/ifuzz/iset pkg/image pkg/serializer prog sys/targets; do
        mkdir -p "$folder.new/src/$package"
        find "$source/$package" -maxdepth 1 -name '*.go' ! -name '*_test.go' ! -name fsck.go \
            -exec cp {} "$folder.new/src/$package" \;
    done
    chmod -R u+w "$folder.new"
    sed -i '/ifuzz\/[a-z0-9]*\/generated"/d' "$folder.new/src/pkg/ifuzz/ifuzz.go"
    cp "$main" "$folder.new/src/check/main.go"
    cat >"$folder.new/src/pkg/stat/stat.go" <<'GO'
package stat

type (
	Val          struct{}
	StackedGraph string
)

func New(string, string, ...any) *Val { return &Val{} }
func (*Val) Add(int)                  {}
GO
    grep -E '^(module|go) ' "$source/go.mod" >"$folder.new/src/go.mod"
    (cd "$folder.new/src" && GOFLAGS=-mod=mod GOTOOLCHAIN=local "$go" build -o ../check ./check >&2)
    rm -rf "$folder" "$folder.new/src"
    mv "$folder.new" "$folder"
fi
echo "$(cd "$folder" && pwd)/check"

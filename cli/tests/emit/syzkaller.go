// Compiles descriptions with syzkaller's own compiler and prints each struct and union with its size, each call, and
// what nothing uses. tests/syzkaller.sh builds it.
package main

import (
	"fmt"
	"os"

	"github.com/google/syzkaller/pkg/ast"
	"github.com/google/syzkaller/pkg/compiler"
	"github.com/google/syzkaller/prog"
	"github.com/google/syzkaller/sys/targets"
)

// What syzkaller's descriptions of Linux have.
const linux = "resource fd[int32]: -1\nopen(file ptr[in, filename], flags const[0]) fd\nclose(fd fd)\n"

func main() {
	complained := false
	complain := func(at ast.Pos, message string) {
		fmt.Fprintln(os.Stderr, at, message)
		complained = true
	}
	description := ast.ParseGlob(os.Args[1], complain)
	base := ast.Parse([]byte(linux), "linux.txt", complain)
	if description == nil || base == nil {
		os.Exit(1)
	}
	description.Nodes = append(description.Nodes, base.Nodes...)
	numbers := map[string]uint64{}
	for name, number := range map[string]uint64{"close": 3, "ioctl": 16, "open": 2, "openat": 257} {
		numbers["SYS_"+name], numbers["__NR_"+name] = number, number
	}
	target := targets.List[targets.Linux][targets.AMD64]
	made := compiler.Compile(description, numbers, target, complain)
	if made == nil || complained {
		os.Exit(1)
	}
	for _, of := range made.Types {
		switch of.(type) {
		case *prog.StructType, *prog.UnionType:
			if !of.Varlen() {
				fmt.Println("size", of.Size(), of.Name())
			}
		}
	}
	for _, call := range made.Syscalls {
		fmt.Println("call", call.Name)
	}
	unused, err := compiler.CollectUnused(description, target, complain)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, node := range unused {
		_, kind, name := node.Info()
		fmt.Println("unused", kind, name)
	}
}

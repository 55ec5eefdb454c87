//! What the pass makes of a module, as text.
#![allow(clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod common;

use std::io::Write as _;
use std::process::{Command, Stdio};

use common::plugin;

test_main!();

const MODULE: &str = r#"
target datalayout = "e-i64:64-i128:128-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

@tile = internal addrspace(3) global [32 x i64] undef, align 8

define i32 @phis(i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %loop, label %done
done:
  %last = phi i32 [ %i, %loop ]
  ret i32 %last
}

define void @kernel(ptr %p, i64 %v, i1 %c, i32 %s) {
entry:
  %slot = getelementptr [32 x i64], ptr addrspacecast (ptr addrspace(3) @tile to ptr), i64 0, i64 %v
  store i64 %v, ptr %slot
  store i64 %v, ptr %p
  store { i32, i64 } { i32 5, i64 6 }, ptr addrspace(3) @tile
  call void @llvm.memcpy.p3.p0.i64(ptr addrspace(3) @tile, ptr align 4 %p, i64 20, i1 false)
  call void @llvm.memmove.p3.p3.i64(ptr addrspace(3) @tile, ptr addrspace(3) @tile, i64 %v, i1 false)
  call void @llvm.memset.p3.i64(ptr addrspace(3) @tile, i8 1, i64 3, i1 false)
  %asm = call { i32, i64 } asm "atom.add.u64 $1, [$2], 1; mov.u32 $0, 3;", "=r,=l,l"(ptr %p)
  %old = atomicrmw add ptr %p, i64 %v seq_cst
  %pair = cmpxchg ptr %p, i64 %old, i64 7 seq_cst seq_cst
  switch i32 %s, label %out [
    i32 3, label %three
    i32 9, label %out
  ]
three:
  %late = alloca i32
  br i1 true, label %out, label %out
out:
  ret void
}

declare void @llvm.memcpy.p3.p0.i64(ptr addrspace(3), ptr, i64, i1)
declare void @llvm.memmove.p3.p3.i64(ptr addrspace(3), ptr addrspace(3), i64, i1)
declare void @llvm.memset.p3.i64(ptr addrspace(3), i8, i64, i1)

define void @untouched(i1 %c) {
  br i1 %c, label %a, label %b
a:
  ret void
b:
  ret void
}

!nvvm.annotations = !{!0}
!0 = !{ptr @kernel, !"kernel", i32 1}
"#;

fn instrumented(options: &str) -> String {
    let mut command = Command::new("opt-19");
    command.arg("-load-pass-plugin").arg(plugin()).arg("-S");
    command.arg(format!("-passes=nvabi-trace<{options}>,verify"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("opt runs");
    child.stdin.take().expect("a pipe").write_all(MODULE.as_bytes()).expect("opt reads");
    let output = child.wait_with_output().expect("opt ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("IR is text");
    // The program's own functions: the recorder's are bitcode that clang made.
    let functions = text.split("\ndefine ").skip(1).map(|function| {
        let end = function.find("\n}").expect("an end");
        format!("define {}\n}}\n", &function[..end])
    });
    let own = |function: &String| {
        ["@phis", "@kernel", "@untouched"]
            .iter()
            .any(|name| function.lines().next().is_some_and(|line| line.contains(name)))
    };
    functions.filter(own).collect::<Vec<_>>().join("\n")
}

#[test]
fn everything() {
    let text = instrumented("kinds=all;functions=!untouched");
    insta::assert_snapshot!(text);
}

#[test]
fn branches_of_one_function() {
    let text = instrumented("kinds=branch+branch;functions=phi*+!nothing");
    insta::assert_snapshot!(text);
}

#[test]
fn a_linked_unit_adds_its_place() {
    let text = instrumented("kinds=branch;functions=phis;rdc");
    insta::assert_snapshot!(text);
}

#[test]
fn a_module_of_another_target_stays() {
    let plugin = plugin();
    let host = "target triple = \"x86_64-unknown-linux-gnu\"\n\
                define void @f(i1 %c) {\n  br i1 %c, label %a, label %a\na:\n  ret void\n}\n";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("host.ll");
    std::fs::write(&file, host).expect("a file");
    let mut command = Command::new("opt-19");
    command.arg("-load-pass-plugin").arg(plugin).args(["-S", "-passes=nvabi-trace<kinds=all>"]);
    let output = command.arg(&file).output().expect("opt runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("br i1") && !text.contains("nvabi_"),
        "{text}"
    );
}

/// As clang 19's header has it: the mask is the first of both. With and without optimisation.
#[test]
fn reductions_get_mask_and_value_in_their_places() {
    let plugin = plugin();
    let module = |body: &str| {
        format!(
            "target triple = \"nvptx64-nvidia-cuda\"\n\
             define i32 @_Z17__reduce_add_syncjj(i32 %mask, i32 %value) {{\n{body}\n}}\n\
             define i32 @other(i32 %mask, i32 %value) {{\n\
             %r = call i32 @llvm.nvvm.redux.sync.add(i32 %mask, i32 %value)\n ret i32 %r\n}}\n\
             declare i32 @llvm.nvvm.redux.sync.add(i32, i32)\n"
        )
    };
    let right = "%r = call i32 @llvm.nvvm.redux.sync.add(i32 %value, i32 %mask)\n ret i32 %r";
    let wrong = "%r = call i32 @llvm.nvvm.redux.sync.add(i32 %mask, i32 %value)\n ret i32 %r";
    let stored = "%a = alloca i32\n %b = alloca i32\n store i32 %mask, ptr %a\n store i32 %value, ptr %b\n\
                  %m = load i32, ptr %a\n %v = load i32, ptr %b\n\
                  %r = call i32 @llvm.nvvm.redux.sync.add(i32 %m, i32 %v)\n ret i32 %r";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("device.ll");
    for (body, call, repaired) in [
        (wrong, "(i32 %value, i32 %mask)", true),
        (stored, "(i32 %v, i32 %m)", true),
        (right, "(i32 %value, i32 %mask)", false),
    ] {
        std::fs::write(&file, module(body)).expect("a file");
        let mut command = Command::new("opt-19");
        command.arg("-load-pass-plugin").arg(&plugin);
        command.args(["-S", "-passes=nvabi-trace<kinds=branch>"]).arg(&file);
        let output = command.output().expect("opt runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (own, other) = text.split_once("@other").expect("both functions");
        assert!(own.contains(&format!("redux.sync.add{call}")), "{own}");
        assert!(
            other.contains("redux.sync.add(i32 %mask, i32 %value)"),
            "only the header's: {other}"
        );
        let told = String::from_utf8_lossy(&output.stderr);
        let line = "nvabi: clang's __reduce_add_sync hands on mask and value in the wrong order: repaired\n";
        assert_eq!(told, if repaired { line } else { "" });
    }
}

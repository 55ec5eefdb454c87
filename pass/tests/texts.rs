//! What the pass makes of texts: of assembly, of files and of names.
#![allow(dead_code)]

#[path = "../src/asm.rs"]
mod asm;
#[path = "../src/paths.rs"]
mod paths;

use std::path::Path;

use asm::{Assembly, first_operand};
use paths::plain_name;

fn opcodes(text: &str) -> Vec<String> {
    let assembly = Assembly { text: text.into(), constraints: String::new() };
    assembly.statements().into_iter().map(|statement| statement.opcode).collect()
}

#[test]
fn what_every_lane_executes_is_told_from_the_rest() {
    assert_eq!(opcodes("{ atom.global.add.u32 $0,[$1],$2; }"), ["atom.global.add.u32"]);
    assert_eq!(opcodes("// add; @p\n\tatom.add.u32 $0, [$1], $2;"), ["atom.add.u32"]);
    assert_eq!(opcodes("/* a */ here: st.shared::cta.u32 [$0], $1;"), ["st.shared::cta.u32"]);
    assert_eq!(opcodes("@p red.add.u32 [$0], 1;\n exit;"), ["exit"]);
    assert_eq!(opcodes("@p bra over; atom.add.u32 $0, [$1], 1; over:"), [""; 0]);
    assert_eq!(opcodes("/* without an end"), [""; 0]);
}

#[test]
fn a_result_is_found_by_its_operand() {
    let of = |constraints: &str| Assembly { text: String::new(), constraints: constraints.into() };
    assert_eq!(of("=r,l,r,~{memory}").result(0), Some((0, 1)));
    assert_eq!(of("=*m,=r,=&r,l").result(2), Some((1, 2)));
    assert_eq!(of("=*m,=r,l").result(0), None);
    assert_eq!(of("=r,l").result(1), None);
    for (operands, number) in [
        ("$0, [$1]", Some(0)),
        ("${12}, [$1]", Some(12)),
        ("{$3, $4}, [$1]", Some(3)),
        ("${2:x}, 1", Some(2)),
        ("p|$1, 1", None),
        ("%r1, 1", None),
        ("", None),
    ] {
        assert_eq!(first_operand(operands), number, "{operands}");
    }
}

#[test]
fn files_are_told_from_the_root_where_they_have_anything_in_common() {
    let shown = |path: &str| paths::shown(Path::new(path), Path::new("/home/user/project"));
    assert_eq!(shown("/home/user/project/src/walk.cu"), "src/walk.cu");
    assert_eq!(shown("/home/user/library/walk.h"), "../library/walk.h");
    assert_eq!(shown("/usr/include/walk.h"), "/usr/include/walk.h");
}

#[test]
fn names_do_not_say_where_they_were_compiled() {
    let plain = |name: &str| plain_name(name, Path::new("/src/one"), Path::new("/src"));
    let lambda = "times<(lambda at /src/one/a b.cu:3:59), (lambda at two.cuh:1:2)>";
    assert_eq!(plain(lambda), "times<(lambda at one/a b.cu:3:59), (lambda at one/two.cuh:1:2)>");
    assert_eq!(plain("_ZL4walkPi__intern__0a9F"), "_ZL4walkPi");
    assert_eq!(plain("look at me"), "look at me");
}

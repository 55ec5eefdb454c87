//! Modules that are linked: names find each other, or the message says which do not.

#![allow(clippy::unwrap_used, clippy::panic)]

use nvabi_emu::{Args, Device, FindingKind, Launch};

const HEAD: &str = ".version 8.3\n.target sm_80\n.address_size 64\n";

/// A kernel that hands its number to what is elsewhere, and keeps a table of its own.
const FIRST: &str = "
.extern .func (.param .b32 r) twice(.param .b32 x);
.extern .global .align 4 .u32 calls;
.extern .const .align 4 .u32 scale[];
.global .align 4 .u32 own = 10;
.weak .shared .align 4 .b8 slots[128];
.weak .global .align 4 .u32 version = 1;
.visible .entry k(.param .u64 out) {
    .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    mov.u64 %rd3, slots;
    add.s64 %rd3, %rd3, %rd2;
    st.shared.u32 [%rd3], %r1;
    { .param .b32 a; .param .b32 b;
      st.param.b32 [a], %r1;
      call.uni (b), twice, (a);
      ld.param.b32 %r2, [b]; }
    ld.global.u32 %r3, [own];
    ld.const.u32 %r4, [scale];
    mad.lo.u32 %r2, %r2, %r4, %r3;
    ld.global.u32 %r5, [version];
    mad.lo.u32 %r2, %r5, 1000, %r2;
    add.s64 %rd4, %rd1, %rd2;
    st.global.u32 [%rd4], %r2;
    ret;
}";

/// Its lane's slot, doubled; and what has the same names as in the other, but is not seen there.
const SECOND: &str = "
.visible .global .align 4 .u32 calls;
.visible .const .align 4 .u32 scale[1] = {3};
.global .align 4 .u32 own = 77;
.weak .shared .align 4 .b8 slots[128];
.visible .global .align 4 .u32 version = 2;
.func (.param .b32 r) helper(.param .b32 x) {
    .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.b32 %r1, [x];
    mul.wide.u32 %rd1, %r1, 4;
    mov.u64 %rd2, slots;
    add.s64 %rd2, %rd2, %rd1;
    ld.shared.u32 %r2, [%rd2];
    add.u32 %r1, %r1, %r2;
    st.param.b32 [r], %r1;
    ret;
}
.visible .func (.param .b32 r) twice(.param .b32 x) {
    .reg .b32 %r<9>;
    ld.param.b32 %r1, [x];
    red.global.add.u32 [calls], 1;
    { .param .b32 a; .param .b32 b;
      st.param.b32 [a], %r1;
      call.uni (b), helper, (a);
      ld.param.b32 %r2, [b]; }
    st.param.b32 [r], %r2;
    ret;
}";

fn link(units: &[(&str, &str)]) -> Result<nvabi_emu::Module, String> {
    let texts: Vec<_> = units.iter().map(|(name, text)| (*name, format!("{HEAD}{text}"))).collect();
    let texts: Vec<_> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    Device::new().link(&texts).map_err(|error| error.to_string())
}

#[test]
fn functions_and_variables_are_found_in_other_modules() {
    // In whatever order they come: nothing of the weak definition is left beside the other.
    for turn in [false, true] {
        let mut texts = [("a", format!("{HEAD}{FIRST}")), ("b", format!("{HEAD}{SECOND}"))];
        if turn {
            texts.reverse();
        }
        let [a, b] = &texts;
        let mut device = Device::new();
        let module = device.link(&[(a.0, &a.1), (b.0, &b.1)]).unwrap();
        let out = device.alloc(128).unwrap();
        let launch = Launch { block: [32, 1, 1], ..Launch::default() };
        let report = device.launch(&module, "k", &launch, &Args::new().u64(out)).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        let read = |address: u64| {
            let mut bytes = [0; 4];
            device.read(address, &mut bytes).unwrap();
            u32::from_le_bytes(bytes)
        };
        for lane in 0..32 {
            assert_eq!(read(out + u64::from(lane) * 4), 2 * lane * 3 + 10 + 2000);
        }
        assert_eq!(read(module.symbol("calls").unwrap().0), 32);
        assert_eq!(module.shared_size("k"), Some(128), "one variable of two weak ones");
        device.unload(&module);
        assert!(device.read(module.symbol("calls").unwrap().0, &mut [0]).is_err());
    }
}

#[test]
fn function_pointers_and_tables_of_addresses_are_each_modules_own() {
    let first = ".visible .global .align 8 .u64 table[2] = {f, v};\n.global .align 4 .u32 v = 5;\n\
        .func (.param .b32 r) f() { .reg .b32 %r<2>; mov.u32 %r1, 1; st.param.b32 [r], %r1; ret; }\n\
        .func g() { ret; }";
    let second = ".extern .global .align 8 .u64 table[2];\n.global .align 4 .u32 v = 6;\n\
        .func (.param .b32 r) f() { .reg .b32 %r<2>; mov.u32 %r1, 2; st.param.b32 [r], %r1; ret; }\n\
        .visible .entry k(.param .u64 out) { .reg .b32 %r<5>; .reg .b64 %rd<5>;\n\
        ld.param.u64 %rd1, [out]; ld.global.u64 %rd2, [table];\n\
        { .param .b32 b; proto: .callprototype (.param .b32 _) _ (); call (b), %rd2, (), proto; ld.param.b32 %r1, [b]; }\n\
        ld.global.u64 %rd3, [table+8]; ld.global.u32 %r2, [%rd3];\n\
        { .param .b32 b; call.uni (b), f, (); ld.param.b32 %r3, [b]; }\n\
        ld.global.u32 %r4, [v];\n\
        st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4}; ret; }";
    let mut device = Device::new();
    let (first, second) = (format!("{HEAD}{first}"), format!("{HEAD}{second}"));
    let module = device.link(&[("a", &first), ("b", &second)]).unwrap();
    let out = device.alloc(16).unwrap();
    device.launch(&module, "k", &Launch::default(), &Args::new().u64(out)).unwrap();
    let mut bytes = [0; 16];
    device.read(out, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 6, 0, 0, 0]);
}

#[test]
fn what_does_not_fit_is_named_with_both_modules() {
    let call = "\n.visible .entry k() { { .param .b32 a; call.uni f, (a); } ret; }";
    let declared = format!(".extern .func f(.param .b32 x);{call}");
    let body = "{ ret; }";
    for (first, second, message) in [
        (
            declared.as_str(),
            ".func f(.param .b32 x) { ret; }",
            "a, PTX line 5: `f` is declared but defined nowhere",
        ),
        (
            ".extern .global .u32 v;",
            ".global .u32 v;",
            "a, PTX line 4: `v` is declared but defined nowhere",
        ),
        (
            declared.as_str(),
            &format!("\n.visible .func f(.param .b64 x) {body}"),
            "a, PTX line 4: `f` is a function of (4) bytes, but a function of (8) bytes in b, PTX line 5",
        ),
        (
            declared.as_str(),
            &format!(".visible .func (.param .b32 r) f(.param .b32 x) {body}"),
            "a, PTX line 4: `f` is a function of (4) bytes, but a function of (4) bytes that returns 4 in b, \
             PTX line 4",
        ),
        (
            ".extern .global .u32 v;",
            ".visible .global .u64 v;",
            "a, PTX line 4: `v` is 4 bytes of global memory, but 8 bytes of global memory in b, PTX line 4",
        ),
        (
            ".extern .global .u32 v;",
            ".visible .const .u32 v;",
            "a, PTX line 4: `v` is 4 bytes of global memory, but 4 bytes of constant memory in b, PTX line 4",
        ),
        (
            ".extern .global .u32 v;",
            &format!(".visible .func v() {body}"),
            "a, PTX line 4: `v` is 4 bytes of global memory, but a function of () bytes in b, PTX line 4",
        ),
        (
            &format!(".visible .func f() {body}"),
            &format!("\n\n.visible .func f() {body}"),
            "b, PTX line 6: `f` is defined already: a, PTX line 4",
        ),
        (
            ".visible .global .u32 v;",
            ".visible .global .u32 v;",
            "b, PTX line 4: `v` is defined already: a, PTX line 4",
        ),
        ("add.s32;", "", "a, PTX line 4: expected a directive of PTX, found `add.s32`"),
        ("", ".func f() { frob.u32 a; }", "b, PTX line 4: the emulator lacks `frob.u32`"),
    ] {
        assert_eq!(link(&[("a", first), ("b", second)]).unwrap_err(), message);
    }
    let twice = link(&[("", ".global .u32 v;\n.global .u32 v;")]).unwrap_err();
    assert_eq!(twice, "PTX line 5: `v` is defined already: line 4");
}

#[test]
fn a_mistake_names_the_module_that_its_line_is_of() {
    let first = ".extern .func f();\n.visible .entry k() { call.uni f, (); ret; }";
    let second = ".visible .func f() { .reg .b64 %rd<2>; .reg .b32 %r<2>;\nmov.u64 %rd1, 16;\n\
        ld.global.u32 %r1, [%rd1]; ret; }";
    let (first, second) = (format!("{HEAD}{first}"), format!("{HEAD}{second}"));
    let mut device = Device::new();
    let module = device.link(&[("a", &first), ("b", &second)]).unwrap();
    let report = device.launch(&module, "k", &Launch::default(), &Args::new()).unwrap();
    let finding = report.fatal().unwrap();
    assert_eq!(finding.kind, FindingKind::OutOfBounds);
    assert!(
        finding.to_string().starts_with("b, PTX line 6: out of bounds: kernel k,"),
        "{finding}"
    );
}

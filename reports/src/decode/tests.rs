//! Logs in every form that strace has, each with what must come out of it.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use super::*;
use nvabi_pipeline::lock;
use nvabi_pipeline::spec::{Spec, spec_of};

/// Jetson's releases, and a newest x86 driver.
static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi-specs");
    let specs = Spec::load_folder(&folder).unwrap();
    let mut catalog = Catalog::default();
    for (family, tags) in [("", &["550.163.01"][..]), ("tegra", &["tegra-r35.4.1", "tegra-r36.4"])]
    {
        let (locked, _) = lock::read(&lock::folder(&folder, family)).unwrap();
        let specs: Vec<Spec> =
            specs.iter().filter(|spec| spec.family() == family).cloned().collect();
        for tag in tags {
            let tag = tag.parse().unwrap();
            catalog.add(&locked.facts(&tag).unwrap(), spec_of(&specs, &tag).unwrap());
        }
    }
    catalog
});

/// Each call as `PID FD NODE NAME RESULT`, a line each.
fn calls(log: &[u8]) -> String {
    let mut text = String::new();
    let mut each = |called: &Called<'_>| {
        let request = || called.request.map_or_else(String::new, |number| format!("{number:#x}"));
        let name = called.name.or(called.words).map_or_else(request, str::to_owned);
        let result = called.result.map(|value| value.to_string());
        let result = result.as_deref().or(called.error).unwrap_or("?");
        let node = called.node.or(called.path).unwrap_or("?");
        let name = name.rsplit("IOCTL_").next().unwrap_or_default().to_owned();
        let _ = writeln!(text, "{} {} {node} {name} {result}", called.pid, called.fd);
    };
    let mut decoder = Decoder::new(&CATALOG);
    let on_call: OnCall<'_> = &mut each;
    decoder.read(log, Some(on_call)).unwrap();
    text
}

fn report(log: &str) -> Decoded {
    let mut decoder = Decoder::new(&CATALOG);
    decoder.read(log.as_bytes(), None).unwrap();
    decoder.report()
}

/// One request on `/dev/nvmap`, with whatever stands before a line and behind it.
fn form(before: &str, open: &str, ioctl: &str) -> String {
    calls(format!("{before}{open}\n{before}{ioctl}\n").as_bytes())
}

const OPEN: &str = r#"openat(AT_FDCWD, "/dev/nvmap", O_RDWR|O_CLOEXEC) = 3"#;
const CREATE: &str = "ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0, 0x8), 0x7ffc) = 0";

#[test]
fn pids_and_times() {
    for (before, pid) in [
        ("", 0),
        ("123 ", 123),
        ("123   ", 123),
        ("[pid 123] ", 123),
        ("[pid   123] ", 123),
        ("12:34:56 ", 0),
        ("12:34:56.123456 ", 0),
        ("1713000000.123456 ", 0),
        ("1713000000 ", 0),
        ("     0.000123 ", 0),
        ("123 12:34:56.123456 ", 123),
        ("[pid 123] 1713000000.123456 ", 123),
        ("[pid 123]      0.000123 ", 123),
        ("19:03:38.121162 (+     0.000607) ", 0),
        ("[  16] [00007f971d2a3d6b] ", 0),
        ("123 [00007f971d2a3d6b] ", 123),
        ("123<python3> ", 123),
        ("[pid 123<python3>] ", 123),
    ] {
        assert_eq!(
            form(before, OPEN, CREATE),
            format!("{pid} 3 nvmap NVMAP_IOC_CREATE 0\n"),
            "{before:?}"
        );
    }
}

#[test]
fn requests_and_file_descriptors() {
    for ioctl in [
        "ioctl(3, 0xc0084e00, 0x7ffc) = 0",
        "ioctl(0x3, 0xc0084e00, 0x7ffc)          = 0",
        "ioctl(3, 0xffffffffc0084e00, 0x7ffc) = 0",
        "ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 'N', 0, 8), 0x7ffc) = 0",
        "ioctl(3, NVMAP_IOC_CREATE, 0x7ffc) = 0",
        "ioctl(3, 0xc0084e00 /* NVMAP_IOC_CREATE */, 0x7ffc) = 0",
        "ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0, 0x8) or OTHER_NAME, {a=\") = 5\"}) = 0",
        "ioctl(3</dev/nvmap>, 0xc0084e00, 0x7ffc) = 0 <0.000012>",
        "ioctl(3</dev/nvmap<char 10:58>>, 0xc0084e00, 0x7ffc) = 0",
    ] {
        assert_eq!(form("", OPEN, ioctl), "0 3 nvmap NVMAP_IOC_CREATE 0\n", "{ioctl}");
    }
    for open in [
        r#"open("/dev/nvmap", O_RDWR) = 3"#,
        r#"openat(AT_FDCWD, "\x2f\x64\x65\x76\x2f\x6e\x76\x6d\x61\x70", O_RDWR) = 3"#,
        r#"openat(AT_FDCWD</root>, "/dev/nvmap", O_RDWR) = 3</dev/nvmap> <0.000044>"#,
        r#"openat2(AT_FDCWD, "/dev/nvmap", {flags=O_RDWR, resolve=0}, 24) = 3"#,
    ] {
        assert_eq!(form("", open, CREATE), "0 3 nvmap NVMAP_IOC_CREATE 0\n", "{open}");
    }
}

#[test]
fn results() {
    for (result, shown) in [
        ("= 0", "0"),
        ("= 7", "7"),
        ("= -1 ENOTTY (Inappropriate ioctl for device)", "ENOTTY"),
        ("= -1 ENOTTY (Inappropriate ioctl for device) <0.000002>", "ENOTTY"),
        ("= -1 (errno 25)", "ENOTTY"),
        ("= -1 ENOMEM (Cannot allocate memory) (INJECTED)", "ENOMEM"),
        ("= ? ERESTARTSYS (To be restarted if SA_RESTART is set)", "?"),
        ("= ?", "?"),
    ] {
        let ioctl = format!("ioctl(3, 0xc0084e00, 0x7ffc)    {result}");
        assert_eq!(form("", OPEN, &ioctl), format!("0 3 nvmap NVMAP_IOC_CREATE {shown}\n"));
    }
}

#[test]
fn carriage_returns_and_bytes_that_are_no_text() {
    let log =
        b"1 openat(AT_FDCWD, \"/dev/nvmap\", O_RDWR) = 3\r\n1 write(1, \"\xff\xfe\", 2) = 2\r\n\
        \xff\xfe\r\n\r\n1 ioctl(3, 0xc0084e00 <unfinished ...>\r\n2 close(3) = 0\r\n\
        1 <... ioctl resumed>, 0) = 0\r\n";
    assert_eq!(calls(log), "1 3 nvmap NVMAP_IOC_CREATE 0\n");
}

#[test]
fn a_call_that_others_interrupt() {
    let log = r#"
[pid 1] openat(AT_FDCWD, "/dev/nvmap", O_RDWR <unfinished ...>
[pid 2] openat(AT_FDCWD, "/dev/nvgpu/igpu0/ctrl", O_RDWR <unfinished ...>
[pid 1] <... openat resumed>)             = 3
[pid 2] <... openat resumed>)             = 3
[pid 1] ioctl(3, 0xc0084e00 <unfinished ...>
[pid 2] ioctl(3, 0xc0104705, 0x7ffc <unfinished ...>
[pid 1] <... ioctl resumed>, 0x7ffc)      = 0
[pid 2] <... ioctl resumed> )             = -1 ENODEV (No such device)
[pid 2] ioctl(3, 0xc0104705, 0x7ffc <unfinished ...>
"#;
    assert_eq!(
        calls(log.as_bytes()),
        "1 3 nvmap NVMAP_IOC_CREATE 0\n2 3 ctrl GET_CHARACTERISTICS ENODEV\n2 3 ctrl GET_CHARACTERISTICS ?\n"
    );
}

#[test]
fn an_end_without_a_beginning_is_counted() {
    let decoded = report("[pid 1] <... ioctl resumed>, 0x7ffc) = 0\n");
    assert_eq!((decoded.ioctls, decoded.unread.ioctls, decoded.unread.first), (1, 1, vec![1]));
}

#[test]
fn the_last_line_may_be_cut() {
    let start = format!("{OPEN}\n");
    let whole = "ioctl(3, 0xc0084e00, 0x7ffc) = 0";
    for len in 0..whole.len() {
        let decoded = report(&format!("{start}{}", &whole[..len]));
        let named: u64 = decoded.devices.iter().flat_map(|d| &d.calls).map(|row| row.count).sum();
        let has_ioctl = u64::from(len >= "ioctl(".len());
        assert_eq!(
            (decoded.ioctls, named + decoded.unread.ioctls),
            (has_ioctl, has_ioctl),
            "{len}"
        );
        // A request that may lack digits is not taken for another one.
        assert!(decoded.unknown.is_empty(), "{len}: {:?}", decoded.unknown);
    }
}

#[test]
fn threads_share_and_processes_copy() {
    let log = r#"
10 openat(AT_FDCWD, "/dev/nvmap", O_RDWR) = 3
10 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD) = 11
11 openat(AT_FDCWD, "/dev/nvgpu/igpu0/ctrl", O_RDWR) = 4
10 ioctl(4, 0xc0104705, 0x7ffc) = 0
10 clone3({flags=CLONE_CHILD_SETTID, exit_signal=SIGCHLD}, 88) = 12
12 close(3) = 0
12 openat(AT_FDCWD, "/dev/nvhost-ctrl", O_RDWR) = 3
12 ioctl(3, 0xc010480e, 0x7ffc) = 0
10 ioctl(3, 0xc0084e00, 0x7ffc) = 0
10 clone(child_stack=NULL, flags=0x400) = 13
13 dup2(4, 3) = 3
10 ioctl(3, 0xc0104705, 0x7ffc) = 0
11 exit(0) = ?
11 +++ exited with 0 +++
"#;
    assert_eq!(
        calls(log.as_bytes()),
        "10 4 ctrl GET_CHARACTERISTICS 0\n12 3 nvhost-ctrl CTRL_GET_CHARACTERISTICS 0\n\
         10 3 nvmap NVMAP_IOC_CREATE 0\n10 3 ctrl GET_CHARACTERISTICS 0\n"
    );
}

#[test]
fn a_child_may_be_seen_before_the_call_that_makes_it_ends() {
    let log = r#"
10 openat(AT_FDCWD, "/dev/nvmap", O_RDWR|O_CLOEXEC) = 3
10 vfork( <unfinished ...>
11 ioctl(3, 0xc0084e00, 0x7ffc) = 0
11 execve("/bin/true", ["true"], 0x7ffc) = 0
10 <... vfork resumed>) = 11
11 openat(AT_FDCWD, "/dev/nvgpu/igpu0/ctrl", O_RDWR) = 3
11 ioctl(3, 0xc0104705, 0x7ffc) = 0
10 ioctl(3, 0xc0084e00, 0x7ffc) = 0
"#;
    assert_eq!(
        calls(log.as_bytes()),
        "11 3 nvmap NVMAP_IOC_CREATE 0\n11 3 ctrl GET_CHARACTERISTICS 0\n10 3 nvmap NVMAP_IOC_CREATE 0\n"
    );
}

/// What a child opened before its parent's call ended stays open; and it is one child alone.
#[test]
fn a_child_that_was_seen_is_not_made_again() {
    let log = r#"
10 openat(AT_FDCWD, "/dev/nvmap", O_RDWR|O_CLOEXEC) = 3
10 vfork( <unfinished ...>
11 openat(AT_FDCWD, "/dev/nvgpu/igpu0/ctrl", O_RDWR) = 4
30 ioctl(3, 0xdeadbeef, 0) = 0
10 <... vfork resumed>) = 11
11 ioctl(4, 0xdeadbeef, 0) = 0
"#;
    assert_eq!(calls(log.as_bytes()), "30 3 ? 0xdeadbeef 0\n11 4 ctrl 0xdeadbeef 0\n");
}

/// With `-qqq` the log does not say that a process ended.
#[test]
fn a_pid_is_given_out_anew() {
    let log = r#"
10 openat(AT_FDCWD, "/dev/nvmap", O_RDWR) = 3
10 fork() = 12
12 ioctl(3, 0xc0084e00, 0x7ffc) = 0
10 close(3) = 0
10 openat(AT_FDCWD, "/dev/nvgpu/igpu0/ctrl", O_RDWR) = 3
10 fork() = 12
12 ioctl(3, 0xc0104705, 0x7ffc) = 0
"#;
    assert_eq!(
        calls(log.as_bytes()),
        "12 3 nvmap NVMAP_IOC_CREATE 0\n12 3 ctrl GET_CHARACTERISTICS 0\n"
    );
}

/// The first line with a pid may be the end of a call that began without one.
#[test]
fn the_first_pid_may_be_the_parents() {
    let log = r#"
openat(AT_FDCWD, "/dev/nvmap", O_RDWR) = 3
clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
[pid 20] <... clone resumed>, child_tidptr=0x7f) = 21
[pid 21] close(3) = 0
[pid 20] ioctl(3, 0xc0084e00, 0x7ffc) = 0
"#;
    assert_eq!(calls(log.as_bytes()), "20 3 nvmap NVMAP_IOC_CREATE 0\n");
    let forked = log.replace("[pid 20] ioctl", "ioctl");
    assert_eq!(calls(forked.as_bytes()), "20 3 nvmap NVMAP_IOC_CREATE 0\n");
}

/// What strace writes to a terminal: no pid until there are two, and its own words in a line.
#[test]
fn an_attached_child_cuts_the_line() {
    let log = "\
openat(AT_FDCWD, \"/dev/nvmap\", O_RDWR) = 3
clone(child_stack=0x7f, flags=CLONE_VM|CLONE_FILES|CLONE_THREADstrace: Process 21 attached
, parent_tid=[21]) = 21
[pid    21] ioctl(3, 0xc0084e00, 0x7ffc) = 0
[pid    20] ioctl(3, 0xc0084e00, 0x7ffc) = 0
[pid    20] clone(child_stack=NULL, flags=SIGCHLDstrace: Process 22 attached
 <unfinished ...>
[pid    22] close(3)                    = 0
[pid    20] <... clone resumed>, child_tidptr=0x7f) = 22
[pid    20] --- SIGCHLD {si_signo=SIGCHLD} ---
[pid    22] +++ exited with 0 +++
[pid    20] ioctl(3, 0xc0084e00, 0x7ffc) = 0
strace: Process 20 detached
";
    let decoded = report(log);
    assert_eq!((decoded.unread.lines, decoded.ioctls), (0, 3));
    assert_eq!(
        calls(log.as_bytes()),
        "21 3 nvmap NVMAP_IOC_CREATE 0\n20 3 nvmap NVMAP_IOC_CREATE 0\n20 3 nvmap NVMAP_IOC_CREATE 0\n"
    );
}

#[test]
fn numbers_are_duplicated_and_closed() {
    let log = r#"
openat(AT_FDCWD, "/dev/nvmap", O_RDWR) = 3
dup(3) = 4
dup3(4, 9, O_CLOEXEC) = 9
fcntl(9, F_DUPFD_CLOEXEC, 20) = 20
close_range(3, 8, 0) = 0
pipe2([3, 4], O_CLOEXEC) = 0
ioctl(4, FIONREAD, [0]) = 0
ioctl(9, 0xc0084e00, 0x7ffc) = 0
ioctl(20, 0xc0084e00, 0x7ffc) = 0
fcntl(9, F_SETFD, 0) = 0
execve("/bin/true", ["true"], 0x7ffc) = 0
ioctl(9, 0xc0084e00, 0x7ffc) = 0
ioctl(20, 0xc0084e00, 0x7ffc) = -1 EBADF (Bad file descriptor)
"#;
    assert_eq!(
        calls(log.as_bytes()),
        "0 4 pipe2 FIONREAD 0\n0 9 nvmap NVMAP_IOC_CREATE 0\n0 20 nvmap NVMAP_IOC_CREATE 0\n\
         0 9 nvmap NVMAP_IOC_CREATE 0\n0 20 ? 0xc0084e00 EBADF\n"
    );
}

/// What ioctls open has the lowest free number; a request with a tty's number is the TSG's there.
#[test]
fn what_ioctls_open_is_followed() {
    let log = r#"
openat(AT_FDCWD, "/dev/nvgpu/igpu0/ctrl", O_RDWR) = 3
openat(AT_FDCWD, "/dev/tty", O_RDWR) = 4
ioctl(3, 0xc0184709, 0x7ffc) = 0
ioctl(3, 0xc0184709, 0x7ffc) = -1 ENOMEM (Cannot allocate memory)
ioctl(3, 0xc004470b, 0x7ffc) = 0
ioctl(5, SNDCTL_TMR_STOP or TCSETSW, 0) = 0
ioctl(4, SNDCTL_TMR_STOP or TCSETSW, 0x7ffc) = 0
ioctl(0, TCSETSW, 0x7ffc) = 0
ioctl(6, 0x40084877, 0x7ffc) = 0
dup(6) = 7
ioctl(7, 0xc0684880, 0x7ffc) = 0
"#;
    assert_eq!(
        calls(log.as_bytes()),
        "0 3 ctrl OPEN_TSG 0\n0 3 ctrl OPEN_TSG ENOMEM\n0 3 ctrl OPEN_CHANNEL 0\n0 5 tsg TSG_ENABLE 0\n\
         0 4 /dev/tty SNDCTL_TMR_STOP or TCSETSW 0\n0 0 (fds 0 to 2) TCSETSW 0\n\
         0 6 channel CHANNEL_WDT 0\n0 7 channel CHANNEL_SETUP_BIND 0\n"
    );
}

/// With `-e trace=openat,ioctl` nothing says that a number was closed and given out anew.
#[test]
fn without_close_the_request_decides() {
    let log = r#"
openat(AT_FDCWD, "/etc/ld.so.cache", O_RDONLY|O_CLOEXEC) = 3
openat(AT_FDCWD, "/dev/nvmap", O_RDWR) = 3
openat(AT_FDCWD, "/dev/nvgpu/igpu0/ctrl", O_RDWR) = 4
openat(AT_FDCWD, "/tmp/x", O_RDWR) = 5
ioctl(3, 0xc0084e0f, 0x7ffc) = 0
ioctl(4, 0xc0404708, 0x7ffc) = 0
ioctl(5, 0x8010410c, 0x7ffc) = 0
ioctl(4, 0xc0184709, 0x7ffc) = 0
ioctl(6, 0xc0105412, 0x7ffc) = 0
"#;
    assert_eq!(
        calls(log.as_bytes()),
        "0 3 nvmap NVMAP_IOC_GET_FD 0\n0 4 ctrl ALLOC_AS 0\n0 5 as GET_SYNC_RO_MAP 0\n\
         0 4 ctrl OPEN_TSG 0\n0 6 tsg CREATE_SUBCONTEXT 0\n"
    );
}

/// A log that begins late: the request speaks for a number, if but one node knows all of it.
#[test]
fn numbers_from_before_the_log() {
    let log = "ioctl(8, 0xc0684880, 0x7ffc) = 0\nioctl(9, 0xc0684880, 0x7ffc) = -1 ENOTTY (x)\n\
               ioctl(10, 0xdeadbeef, 0) = 0\nioctl(11, 0x5403, 0) = 0\n";
    assert_eq!(
        calls(log.as_bytes()),
        "0 8 channel CHANNEL_SETUP_BIND 0\n0 9 ? 0xc0684880 ENOTTY\n0 10 ? 0xdeadbeef 0\n0 11 ? 0x5403 0\n"
    );
    let decoded = report(log);
    assert_eq!((decoded.devices[0].calls[0].guessed, decoded.unknown.len()), (1, 3));
}

/// The log shows what a number is: a request that its device does not know is by itself, and changes nothing else.
#[test]
fn a_request_that_its_device_does_not_know() {
    let log = r#"
openat(AT_FDCWD, "/dev/nvmap", O_RDWR) = 3
close(9) = 0
ioctl(3, 0xc0684880, 0x7ffc) = 0
ioctl(3, 0xdeadbeef, 0x7ffc) = 0
"#;
    assert_eq!(calls(log.as_bytes()), "0 3 channel CHANNEL_SETUP_BIND 0\n0 3 nvmap 0xdeadbeef 0\n");
    let log = r#"
openat(AT_FDCWD, "/dev/nvmap", O_RDWR) = 3
ioctl(3, 0xc0684880, 0x7ffc) = 0
ioctl(3, NVMAP_IOC_CREATE, 0x7ffc) = 0
openat(AT_FDCWD, "/etc/passwd", O_RDONLY) = 4
ioctl(4, 0xc0684880, 0x7ffc) = 0
"#;
    let create = calls(log.as_bytes());
    assert!(create.starts_with("0 3 channel CHANNEL_SETUP_BIND 0\n0 3 nvmap "), "{create}");
    assert!(create.ends_with("\n0 4 channel CHANNEL_SETUP_BIND 0\n"), "{create}");
}

#[test]
fn what_any_file_knows_is_no_row() {
    let decoded = report(&format!(
        "{OPEN}\nioctl(3, FIOCLEX) = 0\nioctl(3, 0x5401, 0x7f) = -1 ENOTTY (x)\nioctl(7, TCGETS, 0x7f) = 0\n"
    ));
    assert_eq!((decoded.devices[0].calls.len(), decoded.unknown.len()), (0, 0));
    let elsewhere: Vec<_> = decoded.elsewhere.iter().map(|other| other.path.as_str()).collect();
    assert_eq!(elsewhere, ["/dev/nvmap", "/dev/nvmap", "?"]);
    let text = text::text(&decoded);
    assert!(text.contains("3 ioctls of no device above (TCGETS"), "{text}");
    // Nor a step of the sequence: opening is the only one.
    assert!(text.contains("1 call)") && !text.contains("0x5451"), "{text}");
}

#[test]
fn unknown_requests_have_their_four_parts() {
    let decoded = report(&format!("{OPEN}\nioctl(3, 0x40184e77, 0) = -1 ENOTTY (x)\n"));
    let row = &decoded.unknown[0].row;
    assert_eq!(decoded.unknown[0].node.as_deref(), Some("nvmap"));
    assert_eq!(
        (row.magic, row.nr, row.dir, row.size),
        (Some(0x4e), Some(0x77), Some("write"), Some(24))
    );
    assert_eq!((row.count, row.errors["ENOTTY"]), (1, 1));
}

/// One request, three names and none.
#[test]
fn a_request_is_named_by_its_node() {
    let log = r#"
openat(AT_FDCWD, "/dev/nvhost-ctrl", O_RDWR) = 3
openat(AT_FDCWD, "/dev/nvhost-vic", O_RDWR) = 4
openat(AT_FDCWD, "/dev/nvhost-gpu", O_RDWR) = 5
ioctl(3, 0xc0104813, 0) = 0
ioctl(4, 0xc0104813, 0) = 0
ioctl(5, 0xc0104813, 0) = -1 ENOTTY (x)
ioctl(4, 0xc0084812, 0) = 0
ioctl(5, 0xc0084812, 0) = 0
"#;
    assert_eq!(
        calls(log.as_bytes()),
        "0 3 nvhost-ctrl CTRL_SYNC_FILE_EXTRACT 0\n0 4 nvhost-channel CHANNEL_GET_CLIENT_MANAGED_SYNCPOINT 0\n\
         0 5 channel 0xc0104813 ENOTTY\n0 4 nvhost-channel CHANNEL_SET_TIMEOUT_EX 0\n\
         0 5 channel CHANNEL_SET_TIMEOUT_EX 0\n"
    );
}

#[test]
fn the_x86_driver() {
    let log = r#"
openat(AT_FDCWD, "/dev/nvidiactl", O_RDWR) = 3</dev/nvidiactl>
openat(AT_FDCWD, "/dev/nvidia0", O_RDWR) = 4</dev/nvidia0>
openat(AT_FDCWD, "/dev/nvidia-uvm", O_RDWR) = 5</dev/nvidia-uvm>
openat(AT_FDCWD, "/dev/nvidia-modeset", O_RDWR) = 6</dev/nvidia-modeset>
openat(AT_FDCWD, "/dev/dri/renderD128", O_RDWR) = 7</dev/dri/renderD128>
openat(AT_FDCWD, "/dev/nvidia-caps/nvidia-cap1", O_RDONLY) = 8
ioctl(3</dev/nvidiactl>, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0xd2, 0x48), 0x7ffc) = 0
ioctl(3</dev/nvidiactl>, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0xc8, 0x900), 0x7ffc) = 0
ioctl(4</dev/nvidia0>, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0x2b, 0x20), 0x7ffc) = 0
ioctl(4</dev/nvidia0>, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0x2b, 0x30), 0x7ffc) = 0
ioctl(4</dev/nvidia0>, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0x2b, 0x31), 0x7ffc) = 0
ioctl(5</dev/nvidia-uvm>, _IOC(_IOC_NONE, 0, 0x1, 0x3000), 0x7ffc) = 0
ioctl(5</dev/nvidia-uvm>, FIBMAP, 0x7ffc) = 0
ioctl(5</dev/nvidia-uvm>, _IOC(_IOC_NONE, 0, 0x25, 0), 0x7ffc) = 0
ioctl(6</dev/nvidia-modeset>, _IOC(_IOC_READ|_IOC_WRITE, 0x6d, 0, 0x10), 0x7ffc) = 0
ioctl(7</dev/dri/renderD128>, DRM_IOCTL_VERSION, 0x7ffc) = 0
ioctl(7</dev/dri/renderD128>, DRM_IOCTL_QXL_ALLOC, 0x7ffc) = 0
ioctl(8, 0x1, 0) = 0
"#;
    assert_eq!(
        calls(log.as_bytes()),
        "0 3 nvidiactl NV_ESC_CHECK_VERSION_STR 0\n0 3 nvidiactl NV_ESC_CARD_INFO 0\n\
         0 4 nvidia NV_ESC_RM_ALLOC 0\n0 4 nvidia NV_ESC_RM_ALLOC 0\n0 4 nvidia NV_ESC_RM_ALLOC 0\n\
         0 5 nvidia-uvm UVM_INITIALIZE 0\n0 5 nvidia-uvm UVM_RESERVE_VA 0\n0 5 nvidia-uvm UVM_REGISTER_GPU 0\n\
         0 6 nvidia-modeset CMD 0\n0 7 drm VERSION 0\n0 7 drm NVIDIA_GET_CRTC_CRC32 0\n0 8 nvidia-caps 0x1 0\n"
    );
    let decoded = report(log);
    let gpu = decoded.devices.iter().find(|device| device.path.as_deref() == Some("/dev/nvidia0"));
    let notes: Vec<_> = gpu.unwrap().calls.iter().map(|row| row.notes.join("")).collect();
    assert_eq!(notes, ["", "", "49 bytes, 550.163.01 has 32 or 48"]);
    assert_eq!(decoded.releases, None);
}

#[test]
fn the_release_is_told_from_the_requests() {
    let release = |request: &str| {
        let log = format!(
            "openat(AT_FDCWD, \"/dev/nvgpu/igpu0/ctrl\", O_RDWR) = 3\nioctl(3, {request}, 0) = 0\n"
        );
        report(&log).releases.unwrap()
    };
    assert_eq!(release("0xc0184709"), ["tegra-r36.4"]); // OPEN_TSG with 24 bytes
    assert_eq!(release("0xc0084709"), ["tegra-r35.4.1"]); // and with 8
    assert_eq!(release("0xc0104705").len(), 2);
}

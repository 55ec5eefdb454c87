//! `nvabi trace tui` on a terminal: real traces, keys typed, screens read.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use nvabi_trace::{Event, EventKind, Launch, SiteRow, V2Writer};

const ROWS: u16 = 24;
const COLUMNS: u16 = 110;
/// No screen takes that long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program on a terminal of its own.
struct Terminal {
    program: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl Terminal {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let (master, slave) = pty();
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
        command.current_dir(folder).env("TERM", "xterm").args(arguments);
        command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        // SAFETY: between fork and exec, only system calls that are safe there.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let program = command.spawn().unwrap();
        // The program has the only others: when it ends, reading does.
        drop((command, slave));
        let keys = File::from(master);
        let mut from = keys.try_clone().unwrap();
        let (sender, output) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { program, keys, output, screen: vt100::Parser::new(ROWS, COLUMNS, 0) }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen shows a text, and gives the screen.
    fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.screen.screen().contents();
            if shown.contains(text) {
                return shown;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(error) => panic!("no {text:?} ({error}) on the screen:\n{shown}"),
            }
        }
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.program.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn pty() -> (OwnedFd, OwnedFd) {
    let size = libc::winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut master, mut slave) = (0, 0);
    let (name, settings) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: both numbers are written, and the size is read.
    let failed = unsafe { libc::openpty(&mut master, &mut slave, name, settings, &size) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call gave both, and nobody else has them.
    let (master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    for fd in [&master, &slave] {
        // SAFETY: a flag of a descriptor of ours: programs of other tests do not get it.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    (master, slave)
}

/// Rounds of the loop that each warp makes.
const ROUNDS: u64 = 50;

/// A kernel with a loop at `scale.cu:3` and a branch at `scale.cu:6`. In the other trace, warp 2 goes
/// the other way at the branch, and the loop of warp 5 runs twice more.
fn write(path: &Path, other: bool) {
    let row = |key, line| SiteRow {
        key,
        file: "src/scale.cu".to_owned(),
        function: "scale".to_owned(),
        inlined: String::new(),
        line,
        column: 5,
        ordinal: 0,
        kind: EventKind::BRANCH.0,
        bytes: 8,
    };
    let mut out = V2Writer::new(File::create(path).unwrap(), Some(1)).unwrap();
    out.sites(0, 0, &[row(0x1001, 3), row(0x1002, 6)], false).unwrap();
    let kernel = "scale".to_owned();
    let launch =
        Launch { kernel, grid: [4, 1, 1], block: [64, 1, 1], warps: 8, ..Launch::default() };
    out.launch(&launch, 0).unwrap();
    for warp in 0..8 {
        out.warp(warp).unwrap();
        let event = |site, direction, value| Event {
            site,
            kind: EventKind::BRANCH,
            direction,
            mask: !0,
            ballot: None,
            value: Some(value),
        };
        let more = if other && warp == 5 { 2 } else { 0 };
        for round in 0..ROUNDS + more {
            out.event(0, &event(0x1001, 1, round)).unwrap();
        }
        out.event(0, &event(0x1001, 0, ROUNDS)).unwrap();
        let way = if other && warp == 2 { (0, 7) } else { (1, 9) };
        out.event(1, &event(0x1002, way.0, way.1)).unwrap();
        out.end_warp(0).unwrap();
    }
    out.end_launch().unwrap();
    out.finish().unwrap();
}

fn traces() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.trace"), false);
    write(&folder.path().join("b.trace"), true);
    std::fs::create_dir(folder.path().join("src")).unwrap();
    let text = "__global__ void scale(float *x, int n) {\n    int i = threadIdx.x;\n    \
                while (i < n)\n        i += 32;\n    /* then */\n    if (x[i] > limit)\n        \
                x[i] = 0;\n}\n";
    std::fs::write(folder.path().join("src/scale.cu"), text).unwrap();
    folder
}

#[test]
fn walks_from_difference_to_difference() {
    let folder = traces();
    let mut terminal = Terminal::start(folder.path(), &["trace", "tui", "a.trace", "b.trace"]);
    let shown = terminal.wait_for("2 of 8 warps differ");
    assert!(shown.contains("warp 2 of scale: 1 difference, 52 of 52 rows"), "{shown}");
    assert!(shown.contains("branch ✓     ffffffff scale.cu:6 9"), "{shown}");
    assert!(shown.contains("branch ✗     ffffffff scale.cu:6 7"), "{shown}");
    assert!(shown.contains("direction (proven: input-dependent-branch)"), "{shown}");
    assert!(shown.contains("     6      if (x[i] > limit)"), "{shown}");

    terminal.press("]");
    let shown = terminal.wait_for("warp 5 of scale: ");
    assert!(shown.contains("     3      while (i < n)"), "{shown}");
    terminal.press("n");
    terminal.wait_for("loop-bound");
    terminal.press("n");
    terminal.wait_for("no more differences in this warp");

    terminal.press("/scale.cu:6\r");
    terminal.wait_for("54 of 54 rows");
    terminal.press("/nowhere\r");
    terminal.wait_for("not found: nowhere");

    terminal.press("w7\r");
    terminal.wait_for("warp 7 of scale: 0 differences, 1 of 52 rows");
    terminal.press("?");
    terminal.wait_for("next, previous warp that differs");
    terminal.press(" q");
    assert_eq!(terminal.exit_code(), Some(0));
}

#[test]
fn gives_the_terminal_back() {
    let folder = traces();
    let mut terminal = Terminal::start(folder.path(), &["trace", "tui", "a.trace", "a.trace"]);
    terminal.wait_for("0 of 8 warps differ");
    assert!(terminal.screen.screen().alternate_screen());
    terminal.press("\u{3}");
    assert_eq!(terminal.exit_code(), Some(0));
    while let Ok(bytes) = terminal.output.recv_timeout(PATIENCE) {
        terminal.screen.process(&bytes);
    }
    assert!(!terminal.screen.screen().alternate_screen());
    assert!(!terminal.screen.screen().hide_cursor());
}

#[test]
fn refuses_what_it_cannot_show() {
    let folder = traces();
    std::fs::write(folder.path().join("no.trace"), "no trace").unwrap();
    let mut terminal = Terminal::start(folder.path(), &["trace", "tui", "a.trace", "no.trace"]);
    terminal.wait_for("trace-unreadable");
    assert_eq!(terminal.exit_code(), Some(2));

    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.current_dir(folder.path()).args(["trace", "tui", "a.trace", "b.trace"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("trace-no-terminal"));
}

//! A machine that a test has for itself.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nvabi_test::{Need, skip};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

/// Says to a test which client it is.
const CLIENT: &str = "NVABI_MACHINE_CLIENT";

/// What a client exits with whose body has run to its end.
pub(crate) const PASSED: i32 = 42;

/// What a machine says that has read which program is to run.
pub(crate) const TAKEN: &[u8] = b"t\0\0\0\0";

/// A machine, in a folder of its own.
pub(crate) struct Lab {
    pub(crate) folder: tempfile::TempDir,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) told: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), told: text(&output.stderr) }
    }
}

impl Lab {
    /// No machine yet.
    pub(crate) fn empty() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn up(args: &[&str]) -> Self {
        let lab = Self::empty();
        let done = lab.rm(&[&["up", "lab"], args].concat());
        assert_eq!(done.code, Some(0), "{}", done.told);
        lab.need_programs();
        lab
    }

    /// Skips the test where no program can run on the machine, which is up.
    pub(crate) fn need_programs(&self) {
        let tried = self.rm(&["run", "lab", "--", "true"]);
        if tried.told.contains("does not permit") {
            skip(Need::Supervise, tried.told.trim());
        }
    }

    /// What looks like a machine that is up: `answer` has each connection to it, and the letter of what was asked.
    pub(crate) fn pretended(answer: impl Fn(u8, UnixStream) + Send + 'static) -> (Self, File) {
        let lab = Self::empty();
        let folder = lab.make_folder();
        let lock = File::create(folder.join("lock")).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let listener = UnixListener::bind(folder.join("socket")).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut letter = [0];
                // Some only look whether it is there.
                if stream.read_exact(&mut letter).is_ok() {
                    answer(letter[0], stream);
                }
            }
        });
        (lab, lock)
    }

    /// The folder of a machine, empty.
    pub(crate) fn make_folder(&self) -> PathBuf {
        let folder = self.own_folder();
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
        folder
    }

    /// `nvabi rm` with some arguments.
    pub(crate) fn rm(&self, args: &[&str]) -> Done {
        self.command(args).output().unwrap().into()
    }

    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: &[A]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
        command.arg("rm").args(args).env("XDG_RUNTIME_DIR", self.folder.path());
        // Tests that run in the background are begun with signals ignored, which are not passed on.
        unsafe {
            command.pre_exec(|| {
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
        command
    }

    /// A script on the machine, to its end.
    pub(crate) fn sh(&self, script: &str) -> Done {
        self.rm(&["run", "lab", "--", "sh", "-c", script])
    }

    /// A script on the machine that goes on, when it has written a line.
    pub(crate) fn begin(&self, script: &str) -> Program {
        Program::begin(self.command(&["run", "lab", "--", "sh", "-c", script]), |_| true).0
    }

    /// A test's own program as a client.
    pub(crate) fn client(&self, test: &str, part: &str) -> Command {
        let own = std::env::current_exe().unwrap();
        let name = test.split_once("::").map_or(test, |(_, name)| name);
        let own = own.to_str().unwrap();
        let args = ["--exact", name, "--nocapture", "--test-threads", "1"];
        let mut command = self.command(&[&["run", "lab", "--", own], &args[..]].concat());
        command.env(CLIENT, part);
        command
    }

    pub(crate) fn status(&self) -> Value {
        let done = self.rm(&["status", "lab", "--json"]);
        assert_eq!(done.code, Some(0), "{}", done.told);
        serde_json::from_str::<Value>(&done.out).unwrap()[0].clone()
    }

    /// Its programs, when there are so many.
    pub(crate) fn programs(&self, count: usize) -> Vec<Value> {
        let mut programs = Vec::new();
        wait_until(|| {
            programs = self.status()["programs"].as_array().unwrap().clone();
            programs.len() == count
        });
        programs
    }

    /// The folder that the machine has while it is up.
    pub(crate) fn own_folder(&self) -> PathBuf {
        self.folder.path().join("nvabi/lab")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Ok(down) = self.command(&["down", "lab"]).stderr(Stdio::null()).spawn() {
            ends_within(down, Duration::from_secs(60));
        }
    }
}

/// Plays a client's part, when this process is that client.
pub(crate) fn play(part: &str, body: impl FnOnce()) {
    if std::env::var(CLIENT).is_ok_and(|told| told == part) {
        // The harness has begun a line.
        println!();
        body();
        std::process::exit(PASSED);
    }
}

/// Does something again and again, until this process's input ends.
pub(crate) fn until_input_ends(mut body: impl FnMut()) {
    let mut poll = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    while unsafe { libc::poll(&mut poll, 1, 0) } == 0 {
        body();
    }
}

/// A command that goes on.
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) out: BufReader<ChildStdout>,
}

impl Program {
    /// Begins a command and waits for a line that is meant.
    pub(crate) fn begin(mut command: Command, is_meant: impl Fn(&str) -> bool) -> (Self, String) {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while {
            line.clear();
            out.read_line(&mut line).unwrap() > 0
        } {
            if is_meant(line.trim()) {
                return (Self { child, out }, line.trim().to_owned());
            }
        }
        panic!("it ended: {:?}", Done::from(child.wait_with_output().unwrap()));
    }

    pub(crate) fn tell(&self, signal: i32) {
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Waits for its end, with what it still wrote.
    pub(crate) fn end(mut self) -> Done {
        drop(self.child.stdin.take());
        let mut out = String::new();
        while self.out.read_line(&mut out).unwrap() > 0 {}
        Done { out, ..self.child.wait_with_output().unwrap().into() }
    }
}

/// Whether a process ends in time; one that does not is killed.
pub(crate) fn ends_within(mut child: Child, time: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < time {
        if child.try_wait().is_ok_and(|status| status.is_some()) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// Waits, and not for ever.
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is there; one that waits to be reaped is not.
pub(crate) fn is_running(process: u64) -> bool {
    // The first thread of a process that was killed can be gone before the others, which still have its files.
    let tasks = std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("task"));
    tasks.into_iter().flatten().flatten().any(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    })
}

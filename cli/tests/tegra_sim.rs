//! `nvabi tegra sim`: how a run ends, by signals and when it cannot go on, and what it leaves to the program.
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks)]

#[macro_use]
extern crate nvabi_test;

use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nvabi_test::{Need, skip};

test_main!();

/// A simulator with a program in it, and the folder where both may put files.
struct Run {
    simulator: Child,
    program: i32,
    folder: PathBuf,
}

/// Begins a script that says its number after its first part.
fn begin(name: &str, first: &str, script: &str) -> Run {
    let nvabi = env!("CARGO_BIN_EXE_nvabi");
    let folder = std::env::temp_dir().join(format!("nvabi-test-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let script = format!("{first}; echo $$; {script}");
    let mut command = Command::new(nvabi);
    command.args(["tegra", "sim", "--", "sh", "-c", &script]).env("TMPDIR", &folder);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    // Tests that run in the background are begun with signals ignored, and a shell sets no trap for those.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    let mut simulator = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(simulator.stdout.take().unwrap()).read_line(&mut line).unwrap();
    match line.trim().parse() {
        Ok(program) => Run { simulator, program, folder },
        Err(_) => {
            assert_eq!(simulator.wait().unwrap().code(), Some(2));
            skip(Need::Supervise, "nvabi tegra sim starts no program here");
        }
    }
}

impl Run {
    fn tell(&self, signal: i32) {
        unsafe { libc::kill(self.simulator.id() as i32, signal) };
    }

    fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.simulator.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the program is there; one that waits to be reaped is not.
    fn is_running(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.program));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.simulator.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_signal_goes_to_the_program() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        let trap = format!("trap 'exit 7' {signal}");
        let mut run = begin("signal", &trap, "while :; do sleep 0.01; done");
        run.tell(signal);
        assert_eq!(run.wait().code(), Some(7), "the program's own answer");
        assert!(!run.is_running());
        assert_eq!(std::fs::read_dir(&run.folder).unwrap().count(), 0, "files are left");
    }
}

#[test]
fn a_second_signal_ends_what_the_program_left() {
    let mut run = begin("second", ":", "(while :; do cat /dev/null; sleep 0.01; done) & exit 3");
    while run.is_running() {
        std::thread::yield_now();
    }
    let start = Instant::now();
    while run.simulator.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(10), "it does not end");
        run.tell(libc::SIGTERM);
        // A third one may come when the simulator itself is about to end, on a busy machine.
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(run.wait().code(), Some(3));
}

#[test]
fn a_program_ends_with_its_simulator() {
    let mut run = begin("killed", ":", "while :; do sleep 0.01; done");
    run.tell(libc::SIGKILL);
    assert_eq!(run.wait().signal(), Some(libc::SIGKILL));
    let start = Instant::now();
    while run.is_running() {
        assert!(start.elapsed() < Duration::from_secs(10), "it goes on");
    }
}

/// Processes that have this among their arguments.
fn processes_with(argument: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        let line = std::fs::read(format!("/proc/{name}/cmdline")).ok()?;
        let mut arguments = line.split(|byte| *byte == 0);
        arguments.any(|it| it == argument.as_bytes()).then_some(name)
    });
    all.collect()
}

#[test]
fn nothing_is_left_of_a_simulator_that_is_killed() {
    let time = format!("9{}", std::process::id());
    let sleep = format!("sleep {time}");
    // Children, orphans, one in a session of its own, one that ignores signals.
    let first = format!(
        "{sleep} & ({sleep} & {sleep} &); setsid {sleep} & (trap '' TERM HUP INT; {sleep}) & :"
    );
    let mut run = begin("nothing", &first, &format!("{sleep}; :"));
    let start = Instant::now();
    while processes_with(&time).len() < 6 {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", processes_with(&time));
        std::thread::sleep(Duration::from_millis(5));
    }
    run.tell(libc::SIGKILL);
    assert_eq!(run.wait().signal(), Some(libc::SIGKILL));
    let start = Instant::now();
    while !processes_with(&time).is_empty() || run.is_running() {
        assert!(start.elapsed() < Duration::from_secs(10), "left: {:?}", processes_with(&time));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(std::fs::read_dir(&run.folder).unwrap().count(), 0, "files are left");
}

#[test]
fn a_second_signal_ends_what_makes_no_calls() {
    let mut run = begin("idle", ":", "sleep 1000 & exit 3");
    let start = Instant::now();
    while run.is_running() {
        assert!(start.elapsed() < Duration::from_secs(10), "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    while run.simulator.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not end");
        run.tell(libc::SIGTERM);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(run.wait().code(), Some(3));
}

#[test]
fn diagnostics_are_told_at_once() {
    let file = "/sys/class/devfreq/17000000.gpu/min_freq";
    let script = format!("echo fast > {file}; cat {file}; exec sleep 60");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.args(["tegra", "sim", "--", "sh", "-c", &script]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut simulator = command.spawn().unwrap();
    let mut stderr = BufReader::new(simulator.stderr.take().unwrap());
    let (mut line, start) = (String::new(), Instant::now());
    stderr.read_line(&mut line).unwrap();
    if line.contains("does not permit") {
        skip(Need::Supervise, line);
    }
    assert!(line.contains("bad-frequency") && line.contains("\"fast\""), "{line}");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert!(simulator.try_wait().unwrap().is_none(), "it still runs");
    unsafe { libc::kill(simulator.id() as i32, libc::SIGTERM) };
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    simulator.wait().unwrap();
    assert!(!rest.contains("bad-frequency") && rest.contains("1 diagnostics"), "once: {rest}");
}

/// Requests that the kernel answers by itself are none of a driver's.
#[test]
fn a_file_is_inherited_when_it_is_asked_to_be() {
    const SCRIPT: &str = "import os\nfor path in '/dev/nvmap', '/dev/nvhost-ctrl-gpu':\n    \
                          file = os.open(path, os.O_RDWR)\n    os.set_inheritable(file, True)\n    \
                          os.set_blocking(file, False)\n    print(os.get_inheritable(file))";
    if Command::new("python3").arg("--version").output().is_err() {
        skip(Need::Python, "there is no python3")
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.args(["tegra", "sim", "--", "python3", "-c", SCRIPT]);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    if told.contains("does not permit") {
        skip(Need::Supervise, told)
    }
    assert_eq!(
        (output.status.code(), &output.stdout[..]),
        (Some(0), &b"True\nTrue\n"[..]),
        "{told}"
    );
    assert!(told.contains("0 diagnostics"), "{told}");
}

#[test]
fn a_keeper_that_is_stopped_keeps_nobody_waiting() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.args(["tegra", "sim", "--", "sh", "-c", "kill -STOP $PPID; exit 5"]);
    let mut simulator = command.stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        match simulator.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > Duration::from_secs(20) => {
                simulator.kill().unwrap();
                break simulator.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    // 2: nothing can be simulated here.
    assert!(matches!(status.code(), Some(2 | 5)), "{status}");
}

#[test]
fn how_a_program_ends_is_told() {
    let nvabi = env!("CARGO_BIN_EXE_nvabi");
    for (script, code) in
        [("exit 0", 0), ("exit 77", 77), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)]
    {
        let mut command = Command::new(nvabi);
        let output = command.args(["tegra", "sim", "--", "sh", "-c", script]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        if told.contains("does not permit") {
            skip(Need::Supervise, told);
        }
        assert_eq!(output.status.code(), Some(code), "{script}: {told}");
    }
    let mut command = Command::new(nvabi);
    let output = command.args(["tegra", "sim", "--", "/no/such/program"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("cannot run /no/such/program: No such file"), "{told}");
}

#[test]
fn a_simulator_in_a_simulator_is_refused_for_its_reason() {
    let nvabi = env!("CARGO_BIN_EXE_nvabi");
    let mut command = Command::new(nvabi);
    command.args(["tegra", "sim", "--", nvabi, "rm", "sim", "--", "true"]);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    if told.contains("does not permit") && !told.contains("Simulated") {
        skip(Need::Supervise, told);
    }
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("simulators cannot run inside each other"), "{told}");
}

#[test]
fn a_simulation_that_cannot_begin_is_an_error() {
    let nvabi = env!("CARGO_BIN_EXE_nvabi");
    let mut command = Command::new(nvabi);
    let command = command.args(["tegra", "sim", "--", "sleep", "60"]).env("TMPDIR", "/nonexistent");
    let start = Instant::now();
    assert_eq!(command.stderr(Stdio::null()).status().unwrap().code(), Some(2));
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_program_keeps_its_own_limit_of_files() {
    let script = format!(
        "ulimit -Sn 200 && {} tegra sim -- sh -c 'exit $(ulimit -Sn)'",
        env!("CARGO_BIN_EXE_nvabi")
    );
    let mut command = Command::new("sh");
    let status = command.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    // 2: nothing can be simulated here.
    assert!(matches!(status.unwrap().code(), Some(2 | 200)));
}

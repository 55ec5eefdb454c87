//! How programs and machines begin and end.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::lab::{Done, Lab, Program, TAKEN, ends_within, is_running, wait_until};

#[test]
fn how_a_program_ends_is_told() {
    let lab = Lab::up(&[]);
    assert_eq!(lab.sh("exit 7").code, Some(7));
    assert_eq!(lab.sh("kill -KILL $$").code, Some(128 + libc::SIGKILL));
    for command in [&["run", "lab"][..], &["sim"]] {
        let done = lab.rm(&[command, &["--", "/none"]].concat());
        assert_eq!(done.code, Some(2));
        assert!(done.told.contains("cannot run /none: No such file"), "{}", done.told);
    }
    let report = lab.rm(&["run", "lab", "--report", "/none/report", "--", "true"]);
    assert_eq!(report.code, Some(2), "before the program runs");
}

#[test]
fn signals_go_to_the_program() {
    let lab = Lab::up(&[]);
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1] {
        let program =
            lab.begin(&format!("trap 'exit 7' {signal}; echo on; while :; do sleep 0.01; done"));
        program.tell(signal);
        assert_eq!(program.end().code, Some(7), "{signal}");
    }
    // One that sets no trap ends by it, and is not left.
    let program = lab.begin("echo on; exec sleep 60");
    program.tell(libc::SIGTERM);
    assert_eq!(program.end().code, Some(128 + libc::SIGTERM));
    lab.programs(0);
}

#[test]
fn a_stopped_command_stops_its_program() {
    let lab = Lab::up(&[]);
    let program = lab.begin("echo on; exec sleep 60");
    let process = lab.programs(1)[0]["pid"].as_u64().unwrap();
    let state = |process: u64| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    program.tell(libc::SIGTSTP);
    wait_until(|| state(process) == 'T' && state(program.child.id().into()) == 'T');
    program.tell(libc::SIGCONT);
    wait_until(|| state(process) == 'S');
    program.tell(libc::SIGTERM);
    assert_eq!(program.end().code, Some(128 + libc::SIGTERM));
}

#[test]
fn a_killed_command_ends_its_program() {
    let lab = Lab::up(&[]);
    let file = lab.folder.path().join("told");
    let script = format!(
        "trap 'echo hung up >{}; exit' HUP; echo on; while :; do sleep 0.01; done",
        file.display()
    );
    let program = lab.begin(&script);
    program.tell(libc::SIGKILL);
    wait_until(|| std::fs::read_to_string(&file).is_ok_and(|told| told == "hung up\n"));
    lab.programs(0);
    // One that does not heed it is killed.
    let start = Instant::now();
    let program = lab.begin("trap '' HUP; echo on; while :; do sleep 0.01; done");
    program.tell(libc::SIGKILL);
    lab.programs(0);
    assert!(start.elapsed() > Duration::from_secs(4), "it has time");
}

#[test]
fn what_a_program_left_goes_on() {
    let lab = Lab::up(&[]);
    let file = lab.folder.path().join("told");
    let left =
        format!("trap 'echo asked >{}; exit' TERM; while :; do sleep 0.01; done", file.display());
    let done = lab.sh(&format!("({left}) >/dev/null 2>&1 & echo $!"));
    assert_eq!(done.code, Some(0));
    let left: u64 = done.out.trim().parse().unwrap();
    assert!(is_running(left));
    assert_eq!(lab.programs(1)[0]["has_ended"], true);
    assert!(lab.rm(&["status"]).out.contains("(has ended and left processes)"));
    assert_eq!(lab.rm(&["down", "lab"]).code, Some(0));
    assert!(!is_running(left));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "asked\n", "it ends by SIGTERM");
}

#[test]
fn a_machine_that_goes_down_ends_its_programs() {
    let lab = Lab::up(&[]);
    let stubborn = lab.begin("trap '' TERM; echo on; while :; do sleep 0.01; done");
    let polite = lab.begin("trap 'exit 3' TERM; echo on; while :; do sleep 0.01; done");
    let processes: Vec<u64> =
        lab.programs(2).iter().map(|it| it["pid"].as_u64().unwrap()).collect();
    let done = lab.rm(&["down", "lab"]);
    assert_eq!((done.code, done.told.trim()), (Some(0), "Down lab"));
    assert!(!processes.into_iter().any(is_running));
    assert!(!lab.own_folder().exists());
    assert_eq!((polite.end().code, stubborn.end().code), (Some(3), Some(128 + libc::SIGKILL)));
    let again = lab.rm(&["down", "lab"]);
    assert_eq!(again.code, Some(2));
    assert!(again.told.contains("there is no machine `lab` in"), "{}", again.told);
}

#[test]
fn a_machine_ends_by_a_signal() {
    let lab = Lab::empty();
    let mut command = lab.command(&["up", "lab", "--foreground"]);
    let mut machine = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    wait_until(|| lab.rm(&["status", "lab"]).code == Some(0));
    lab.need_programs();
    let program = lab.begin("echo on; exec sleep 60");
    unsafe { libc::kill(machine.id() as i32, libc::SIGTERM) };
    assert_eq!(program.end().code, Some(128 + libc::SIGTERM));
    assert_eq!(machine.wait().unwrap().code(), Some(0));
    assert!(!lab.own_folder().exists());
}

#[test]
fn a_machine_whose_folder_is_removed_ends() {
    let lab = Lab::empty();
    let mut command = lab.command(&["up", "lab", "--foreground"]);
    let machine = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    wait_until(|| lab.rm(&["status", "lab"]).code == Some(0));
    lab.need_programs();
    let program = lab.begin("echo on; exec sleep 60");
    std::fs::remove_dir_all(lab.own_folder()).unwrap();
    // Another one in its place is not touched.
    assert_eq!(lab.rm(&["up", "lab"]).code, Some(0));
    let output = machine.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("machine `lab`: its folder was removed, and nobody could reach it"),
        "{told}"
    );
    assert_eq!(program.end().code, Some(128 + libc::SIGTERM));
    assert_eq!(lab.sh("echo hello").out, "hello\n");
}

#[test]
fn a_machine_that_was_killed_is_found_dead() {
    let lab = Lab::up(&[]);
    let program = lab.begin("echo on; exec sleep 60");
    let process = lab.programs(1)[0]["pid"].as_u64().unwrap();
    let machine = lab.status()["pid"].as_i64().unwrap();
    unsafe { libc::kill(machine as i32, libc::SIGKILL) };
    let done = program.end();
    assert_eq!(done.code, Some(2));
    assert!(
        done.told.contains("machine `lab` went down, and the program with it"),
        "{}",
        done.told
    );
    wait_until(|| !is_running(process));
    let status = lab.rm(&["status"]);
    assert_eq!((status.code, status.out.as_str()), (Some(1), "no machine is up\n"));
    assert!(status.told.contains("machine `lab` is dead"), "{}", status.told);
    assert!(!lab.own_folder().exists());
    assert_eq!(lab.rm(&["status", "lab"]).code, Some(2));
    for _ in 0..2 {
        let up = lab.rm(&["up", "lab"]);
        assert_eq!(up.code, Some(0), "again: {}", up.told);
        let machine = lab.status()["pid"].as_i64().unwrap();
        unsafe { libc::kill(machine as i32, libc::SIGKILL) };
        wait_until(|| !is_running(machine as u64));
    }
}

#[test]
fn what_is_wrong_is_refused() {
    let lab = Lab::up(&[]);
    let done = lab.rm(&["up", "lab"]);
    assert_eq!(done.code, Some(2));
    assert!(
        done.told.contains("a machine `lab` is up: end it with `nvabi rm down lab`"),
        "{}",
        done.told
    );
    assert_eq!(lab.sh("exit 0").code, Some(0), "it is still there");
    for name in ["", "a/b", "..", ".lab", "-", "a b", &"a".repeat(41)] {
        for args in [vec!["up", "--", name], vec!["down", "--", name]] {
            let done = lab.rm(&args);
            assert_eq!(done.code, Some(2), "{name}");
            assert!(done.told.contains("expected at most 40 letters"), "{name}: {}", done.told);
        }
    }
    let done = lab.rm(&["up", "other", "--gpu", "none"]);
    assert_eq!(done.code, Some(2));
    assert!(done.told.contains("none"), "{}", done.told);
    let done = lab.rm(&["up", "other", "--fault", "NOTHING:1:EIO"]);
    assert_eq!(done.code, Some(2));
    assert!(done.told.contains("no simulated call is named `NOTHING`"), "{}", done.told);
    assert_eq!(lab.rm(&["run", "other", "--", "true"]).code, Some(2));
    assert_eq!(
        std::fs::read_dir(lab.folder.path().join("nvabi")).unwrap().count(),
        1,
        "no folder is left"
    );
}

#[test]
fn a_folder_of_others_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::empty();
    let folder = lab.folder.path().join("nvabi");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let done = lab.rm(&["up", "lab"]);
    assert_eq!(done.code, Some(2));
    assert!(
        done.told.contains("with mode 700, found one of user") && done.told.contains("755"),
        "{}",
        done.told
    );
}

#[test]
fn two_machines_are_two() {
    let lab = Lab::up(&["--tag", "535.183.01"]);
    assert_eq!(lab.rm(&["up", "other", "--tag", "595.45.04", "--gpus", "2"]).code, Some(0));
    let version = |name: &str| {
        let script = "cat /sys/module/nvidia/version; ls /dev | grep -c 'nvidia[0-9]'";
        lab.rm(&["run", name, "--", "sh", "-c", script]).out
    };
    assert_eq!([version("lab"), version("other")], ["535.183.01\n1\n", "595.45.04\n2\n"]);
    let status = lab.rm(&["status"]).out;
    assert_eq!(status.lines().filter(|line| line.contains(": driver ")).count(), 2, "{status}");
    assert_eq!(lab.rm(&["down", "other"]).code, Some(0));
}

#[test]
fn a_machine_needs_no_rights() {
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        nvabi_test::skip(
            nvabi_test::Need::Setuid,
            "a process without rights tests this with every other test",
        );
    }
    let lab = Lab::empty();
    std::os::unix::fs::chown(lab.folder.path(), Some(65534), Some(65534)).unwrap();
    // It may be in a folder that nobody else can enter.
    let nvabi = lab.folder.path().join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_nvabi"), &nvabi).unwrap();
    let nvabi = nvabi.display();
    // Who may not read a program may not look at a process of it either: its paths are the kernel's.
    let closed = lab.folder.path().join("closed");
    std::fs::copy("/bin/echo", &closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o711)).unwrap();
    let closed = closed.display();
    let script = format!(
        "{nvabi} rm up lab && {nvabi} rm run lab -- cat /sys/module/nvidia/version; \
         {nvabi} rm run lab -- {closed} runs; {nvabi} rm down lab"
    );
    let mut command = std::process::Command::new("setpriv");
    command.args([
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
    ]);
    command.args(["sh", "-c", &script]).env("XDG_RUNTIME_DIR", lab.folder.path()).current_dir("/");
    let done: Done = match command.output() {
        Ok(done) => done.into(),
        Err(error) => nvabi_test::skip(nvabi_test::Need::Setuid, format!("setpriv: {error}")),
    };
    if done.told.contains("does not permit") {
        nvabi_test::skip(nvabi_test::Need::Supervise, done.told.trim());
    }
    assert_eq!((done.code, done.out.as_str()), (Some(0), "550.163.01\nruns\n"), "{}", done.told);
}

/// Keeps a command and all that comes of it from making some calls, as a container's profile does.
fn forbid(command: &mut std::process::Command, calls: &[i64]) {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(command, move || {
            seccompiler::apply_filter(&filter).map_err(|_| std::io::ErrorKind::Other.into())
        });
    }
}

/// What the default profiles of Docker and Podman forbid of the calls that a machine makes, to processes without
/// CAP_SYS_PTRACE: `profiles/seccomp/default.json` of moby, `pkg/seccomp/seccomp.json` of containers/common.
#[test]
fn a_machine_needs_no_more_than_containers_have() {
    let docker = [libc::SYS_pidfd_getfd, libc::SYS_userfaultfd, libc::SYS_kcmp];
    let podman = [libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev];
    for (name, calls) in [("docker", &docker), ("podman", &podman)] {
        let lab = Lab::empty();
        let mut up = lab.command(&["up", "lab", "--gpus", "3"]);
        forbid(&mut up, calls);
        assert_eq!(up.output().unwrap().status.code(), Some(0), "{name}");
        lab.need_programs();
        let script = "ls /dev | grep -c 'nvidia[0-9]'; ls /dev | sort | uniq -d; ls /proc/driver/nvidia/gpus; \
                      find /proc/driver/nvidia -name version | xargs cat | head -c 12; ls /dev/null";
        let gpus = "0000:01:00.0\n0000:02:00.0\n0000:03:00.0\n";
        let done = lab.sh(script);
        assert_eq!(done.out, format!("3\n{gpus}NVRM version/dev/null\n"), "{name}: {}", done.told);
    }
}

/// Programs that begin and end at the same time on one machine.
#[test]
fn many_programs_come_and_go() {
    let lab = Lab::up(&[]);
    let count = 24;
    let begun: Vec<Program> = (0..count)
        .map(|number| {
            lab.begin(&format!(
                "echo on; read line; cat /sys/module/nvidia/version >/dev/null; exit {number}"
            ))
        })
        .collect();
    assert_eq!(lab.programs(count).len(), count);
    for (number, program) in (0..).zip(begun) {
        assert_eq!(program.end().code, Some(number));
    }
    lab.programs(0);
}

#[test]
fn up_says_why_there_is_no_machine() {
    let lab = Lab::empty();
    let folder = lab.folder.path().join("x".repeat(100));
    std::fs::create_dir(&folder).unwrap();
    let done: Done =
        lab.command(&["up", "lab"]).env("XDG_RUNTIME_DIR", &folder).output().unwrap().into();
    assert_eq!(done.code, Some(2));
    assert!(done.told.contains("set XDG_RUNTIME_DIR to a shorter path"), "{}", done.told);
    assert!(!folder.join("nvabi/lab").exists());
}

#[test]
fn a_runtime_folder_that_is_not_there_is_told() {
    let lab = Lab::empty();
    let missing = lab.folder.path().join("missing");
    let rm = |args: &[&str]| -> Done {
        let mut command = lab.command(args);
        command.env("XDG_RUNTIME_DIR", &missing).env("TMPDIR", lab.folder.path());
        command.output().unwrap().into()
    };
    let text = format!("XDG_RUNTIME_DIR `{}` is no absolute path of a folder", missing.display());
    let status = rm(&["status"]);
    let run = rm(&["run", "other", "--", "true"]);
    let up = rm(&["up", "lab"]);
    let down = rm(&["down", "lab"]);
    assert_eq!([&status, &run, &up, &down].map(|done| done.code), [0, 2, 0, 0].map(Some));
    for done in [status, run, up] {
        assert!(done.told.contains(&text), "{}", done.told);
    }
    assert!(!down.told.contains("Note"), "{}", down.told);
}

#[test]
fn a_name_may_come_after_two_dashes() {
    let lab = Lab::empty();
    let done = lab.rm(&["up", "--gpu", "a100", "--", "lab"]);
    assert_eq!(done.code, Some(0), "{}", done.told);
    assert!(done.told.contains("Up lab: driver"), "{}", done.told);
}

#[test]
fn a_signal_that_is_ignored_ends_no_machine() {
    let lab = Lab::empty();
    let mut command = lab.command(&["up", "lab", "--foreground"]);
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            Ok(())
        });
    }
    let machine = command.stderr(Stdio::null()).spawn().unwrap();
    wait_until(|| lab.rm(&["status", "lab"]).code == Some(0));
    unsafe { libc::kill(machine.id() as i32, libc::SIGHUP) };
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(lab.rm(&["status", "lab"]).code, Some(0));
    assert_eq!(lab.rm(&["down", "lab"]).code, Some(0));
    assert!(ends_within(machine, Duration::from_secs(20)));
}

#[test]
fn what_is_left_of_a_beginning_is_removed() {
    for command in [vec!["status"], vec!["down", "lab"], vec!["run", "lab", "--", "true"]] {
        for has_lock in [false, true] {
            let lab = Lab::empty();
            let folder = lab.make_folder();
            if has_lock {
                std::fs::write(folder.join("lock"), "").unwrap();
            }
            let done = lab.rm(&command);
            assert!(!done.told.contains("dead"), "{}", done.told);
            assert!(!folder.exists(), "{command:?} {has_lock}");
            assert_eq!(done.code, if command.len() == 1 { Some(0) } else { Some(2) });
        }
    }
    let lab = Lab::empty();
    assert_eq!(lab.rm(&["status"]).out, "no machine is up\n");
    assert!(!lab.folder.path().join("nvabi").exists(), "who looks makes nothing");
}

#[test]
fn a_machine_that_does_not_go_down_is_told() {
    let (lab, _lock) = Lab::pretended(|_, mut stream| {
        stream.write_all(b"x\x03\0\0\0no!").unwrap();
    });
    let done = lab.rm(&["down", "lab"]);
    assert_eq!((done.code, done.told.trim()), (Some(2), "Failed no!"));
    let (lab, _lock) = Lab::pretended(|_, stream| drop(stream));
    let done = lab.rm(&["down", "lab"]);
    assert_eq!(done.code, Some(2));
    let text = format!("is still up: its process is {0}, and `kill -KILL {0}`", std::process::id());
    assert!(done.told.contains(&text), "{}", done.told);
}

#[test]
fn a_machine_that_does_not_answer_is_told() {
    let (lab, _lock) = Lab::pretended(|letter, stream| {
        if letter == b's' {
            std::mem::forget(stream);
        }
    });
    let done = lab.rm(&["status"]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), "lab: up, and does not answer\n"));
    assert_eq!(done.told.trim(), "Silent machine `lab` does not answer within 10 s");
    // Killed in the middle of what it says.
    let (lab, _lock) = Lab::pretended(|_, mut stream| {
        stream.write_all(b"g\x03\0\0\0x").unwrap();
    });
    let done = lab.sh("true");
    assert_eq!(done.code, Some(2));
    assert!(
        done.told.contains("machine `lab` went down, and the program with it"),
        "{}",
        done.told
    );
}

#[test]
fn a_signal_ends_a_command_whose_program_has_not_begun() {
    for answer in [b"".as_slice(), TAKEN] {
        let (asked, is_asked) = std::sync::mpsc::channel();
        let (lab, _lock) = Lab::pretended(move |letter, mut stream| {
            if letter == b'r' {
                stream.write_all(answer).unwrap();
                asked.send(()).unwrap();
                std::mem::forget(stream);
            }
        });
        for signal in [libc::SIGTERM, libc::SIGINT] {
            let mut command = lab.command(&["run", "lab", "--", "true"]).spawn().unwrap();
            is_asked.recv().unwrap();
            unsafe { libc::kill(command.id() as i32, signal) };
            wait_until(|| command.try_wait().unwrap().is_some());
            assert_eq!(command.wait().unwrap().signal(), Some(signal), "{answer:?}");
        }
    }
}

#[test]
fn a_signal_reaches_a_program_that_has_just_begun() {
    let (asked, is_asked) = std::sync::mpsc::channel();
    let (lab, _lock) = Lab::pretended(move |letter, mut stream| {
        if letter == b'r' {
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            stream.read_exact(&mut vec![0; u32::from_le_bytes(length) as usize]).unwrap();
            stream.write_all(TAKEN).unwrap();
            asked.send(()).unwrap();
            let mut byte = [0];
            while byte[0] != libc::SIGTERM as u8 {
                stream.read_exact(&mut byte).unwrap();
            }
            let ended = br#"{"status": 1792, "report": "", "ending": "well"}"#;
            let head = [b"b\0\0\0\0e", (ended.len() as u32).to_le_bytes().as_slice()].concat();
            stream.write_all(&[&head, ended.as_slice()].concat()).unwrap();
        }
    });
    let command = lab.command(&["run", "lab", "--", "true"]).stderr(Stdio::piped()).spawn();
    let command = command.unwrap();
    is_asked.recv().unwrap();
    // Signals are kept as soon as it is told.
    let kept = format!("/proc/{}/status", command.id());
    let is_kept = || {
        let status = std::fs::read_to_string(&kept).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
        u64::from_str_radix(line, 16).unwrap() >> (libc::SIGTERM - 1) & 1 == 1
    };
    wait_until(is_kept);
    unsafe { libc::kill(command.id() as i32, libc::SIGTERM) };
    let done: Done = command.wait_with_output().unwrap().into();
    assert_eq!((done.code, done.told.trim()), (Some(7), "well"));
}

#[test]
fn a_machine_that_is_stopped_runs_nothing_later() {
    let lab = Lab::up(&[]);
    let machine = lab.status()["pid"].as_i64().unwrap();
    unsafe { libc::kill(machine as i32, libc::SIGSTOP) };
    let made = lab.folder.path().join("made");
    let piped = |args: &[&str]| {
        lab.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let status = piped(&["status", "--json"]);
    let run = piped(&["run", "lab", "--", "touch", made.to_str().unwrap()]);
    let (status, run): (Done, Done) =
        (status.wait_with_output().unwrap().into(), run.wait_with_output().unwrap().into());
    unsafe { libc::kill(machine as i32, libc::SIGCONT) };
    assert_eq!(run.code, Some(2));
    assert_eq!(run.told.trim(), "Failed machine `lab` does not answer within 10 s");
    let found: serde_json::Value = serde_json::from_str(&status.out).unwrap();
    assert_eq!(found, serde_json::json!([{ "name": "lab", "is_silent": true }]));
    assert_eq!(lab.sh("true").code, Some(0));
    lab.programs(0);
    assert!(!made.exists());
}

#[test]
fn nothing_is_left_of_a_machine_that_is_down() {
    for _ in 0..5 {
        let lab = Lab::empty();
        assert_eq!(lab.rm(&["up", "lab", "--gpu", "h100", "--gpus", "8"]).code, Some(0));
        let machine = lab.status()["pid"].as_u64().unwrap();
        assert_eq!(lab.rm(&["down", "lab"]).code, Some(0));
        assert!(!is_running(machine));
    }
}

#[test]
fn a_machine_that_goes_down_answers() {
    let lab = Lab::up(&[]);
    let program = lab.begin("trap '' TERM; echo on; while :; do sleep 0.01; done");
    let down = lab.command(&["down", "lab"]).stderr(Stdio::null()).spawn().unwrap();
    wait_until(|| lab.sh("true").told.contains("machine `lab` is going down"));
    assert_eq!(lab.status()["programs"].as_array().unwrap().len(), 1);
    assert!(ends_within(down, Duration::from_secs(20)));
    assert_eq!(program.end().code, Some(128 + libc::SIGKILL));
}

#[test]
fn a_command_is_one_line_of_the_table() {
    let lab = Lab::up(&[]);
    let _program = lab.begin(&format!("echo on; exec sleep 60 # \n\u{1b}{}", "x".repeat(100_000)));
    lab.programs(1);
    let status = lab.rm(&["status"]).out;
    let line = status.lines().find(|line| line.contains("sleep 60")).unwrap();
    assert!(line.contains(r"sleep 60 # \n\u{1b}xxx") && line.ends_with("x…"), "{line}");
    assert!(line.len() < 300);
}

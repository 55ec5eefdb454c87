//! What programs on one machine share, and what is each one's own.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};

use crate::client::*;
use crate::lab::{Done, Lab, PASSED, Program, play, wait_until};

/// Bytes that a client holds.
const HELD: u64 = 64 << 20;

/// Takes memory of the first GPU, and keeps it until its input ends.
pub(crate) fn hold() {
    let (client, device, _) = Client::with_device();
    let mut params = memory_params(VIDEO_MEMORY, HELD);
    client.alloc(device, VIDEO_MEMORY, Some(&mut params)).unwrap();
    println!("held by {}", std::process::id());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// The processes that have memory, as a compute class has them.
fn processes(client: &Client, subdevice: u32) -> Vec<u64> {
    const AMPERE_COMPUTE_A: u64 = 0xc6c0;
    let mut params = Struct::new("NV2080_CTRL_GPU_GET_PIDS_PARAMS").with("id", AMPERE_COMPUTE_A);
    assert_eq!(client.control(subdevice, "NV2080_CTRL_CMD_GPU_GET_PIDS", &mut params), 0);
    (0..params.get("pidTblCount")).map(|at| params.get(&format!("pidTbl[{at}]"))).collect()
}

/// Prints what a process has.
fn look() {
    let (client, _, subdevice) = Client::with_device();
    for process in processes(&client, subdevice) {
        let mut params = Struct::new("NV2080_CTRL_GPU_GET_PID_INFO_PARAMS")
            .with("pidInfoListCount", 2)
            .with("pidInfoList[0].pid", process)
            .with("pidInfoList[1].index", 9);
        assert_eq!(client.control(subdevice, "NV2080_CTRL_CMD_GPU_GET_PID_INFO", &mut params), 0);
        let private = params.get("pidInfoList[0].data.vidMemUsage.memPrivate");
        let (result, wrong) =
            (params.get("pidInfoList[0].result"), params.get("pidInfoList[1].result"));
        assert_eq!((result, wrong), (0, status::INVALID_ARGUMENT.into()));
        println!("seen: {process} has {private}");
    }
}

#[test]
fn memory_of_one_program_is_seen_by_another() {
    const TEST: &str = "rm_machine::shared::memory_of_one_program_is_seen_by_another";
    play("hold", hold);
    play("look", look);
    let lab = Lab::up(&["--gpu", "a100"]);
    let (holder, line) = Program::begin(lab.client(TEST, "hold"), |line| line.starts_with("held"));
    let process = line.rsplit(' ').next().unwrap().to_owned();
    let seen = Program::begin(lab.client(TEST, "look"), |line| line.starts_with("seen"));
    assert_eq!(seen.1, format!("seen: {process} has {HELD}"));
    assert_eq!(seen.0.end().code, Some(PASSED));
    let status = lab.status();
    assert_eq!(status["gpus"][0]["used"], HELD);
    let program = &lab.programs(1)[0];
    assert_eq!(
        (&program["pid"], &program["gpu_memory"]),
        (&process.parse::<u64>().unwrap().into(), &HELD.into())
    );
    assert!(program["calls"].as_u64().unwrap() >= 5, "{program}");
    assert_eq!(holder.end().code, Some(PASSED));
    lab.programs(0);
    assert_eq!(lab.status()["gpus"][0]["used"], 0, "what a program had is given back");
}

/// Gives the rules for compute a value, and says what they were.
fn set_rules(rules: u64) {
    let (client, _, subdevice) = Client::with_device();
    let mut params = Struct::new("NV2080_CTRL_GPU_QUERY_COMPUTE_MODE_RULES_PARAMS");
    assert_eq!(
        client.control(subdevice, "NV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES", &mut params),
        0
    );
    println!("rules {}", params.get("rules"));
    let mut params =
        Struct::new("NV2080_CTRL_GPU_SET_COMPUTE_MODE_RULES_PARAMS").with("rules", rules);
    assert_eq!(
        client.control(subdevice, "NV2080_CTRL_CMD_GPU_SET_COMPUTE_MODE_RULES", &mut params),
        0
    );
}

#[test]
fn what_one_program_sets_the_next_one_sees() {
    const TEST: &str = "rm_machine::shared::what_one_program_sets_the_next_one_sees";
    play("set", || set_rules(2));
    let lab = Lab::up(&[]);
    let rules = || {
        let (program, line) =
            Program::begin(lab.client(TEST, "set"), |line| line.starts_with("rules"));
        assert_eq!(program.end().code, Some(PASSED));
        line
    };
    assert_eq!([rules(), rules()], ["rules 0", "rules 2"]);
}

/// The folder of nvidia-persistenced, and another path of it.
const DAEMON: [&str; 2] = ["/run/nvidia-persistenced", "/var/run/nvidia-persistenced"];

/// Does with that folder what nvidia-persistenced does, until its input ends; then a letter comes by its socket.
fn serve() {
    let at = |name: &str| format!("{}/{name}", DAEMON[1]);
    fs::create_dir(DAEMON[1]).unwrap();
    assert!(fs::create_dir(DAEMON[0]).is_err());
    fs::set_permissions(DAEMON[1], Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(DAEMON[1], None, None).unwrap();
    fs::write(at("nvidia-persistenced.pid"), std::process::id().to_string()).unwrap();
    assert!(fs::remove_file(at("socket")).is_err());
    let listener = UnixListener::bind(at("socket")).unwrap();
    fs::set_permissions(at("socket"), Permissions::from_mode(0o777)).unwrap();
    println!("serves {}", std::process::id());
    let mut letter = [0];
    listener.accept().unwrap().0.read_exact(&mut letter).unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    for name in ["socket", "nvidia-persistenced.pid"] {
        fs::rename(at(name), format!("{}/gone", DAEMON[0])).unwrap();
        fs::remove_file(at("gone")).unwrap();
    }
    fs::remove_dir(DAEMON[1]).unwrap();
    println!("letter {letter:?}");
}

/// Says what is in that folder, by both of its paths and by others, and writes to its socket.
fn visit() {
    let mut seen = Vec::new();
    let links = tempfile::tempdir().unwrap();
    let link = |name: &str| links.path().join(name).into_os_string().into_string().unwrap();
    for (to, name) in [(DAEMON[0], "straight"), ("straight", "again"), ("..", "up")] {
        symlink(to, link(name)).unwrap();
    }
    let by_links = [link("straight"), link("again"), link("straight/../nvidia-persistenced")];
    std::env::set_current_dir("/run").unwrap();
    let folders = [
        "/proc/self/cwd/nvidia-persistenced",
        "nvidia-persistenced",
        "/run/../run/./nvidia-persistenced",
    ];
    let by_links = by_links.iter().map(String::as_str);
    for folder in DAEMON.into_iter().chain(folders).chain(by_links) {
        let mut names: Vec<String> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        let process =
            fs::read_to_string(format!("{folder}/nvidia-persistenced.pid")).unwrap_or_default();
        let is_socket =
            fs::metadata(format!("{folder}/socket")).is_ok_and(|it| it.file_type().is_socket());
        seen.push(format!("{} {process} {is_socket}", names.join(",")));
    }
    assert!(seen.iter().all(|other| *other == seen[0]), "{seen:?}");
    // The way up from there leads to the real machine's, whatever is in between.
    let above = fs::metadata(format!("{}/../nvidia-persistenced/..", DAEMON[1]));
    assert_eq!(above.unwrap().ino(), fs::metadata("/run").unwrap().ino());
    if let Ok(mut stream) = UnixStream::connect(format!("{}/socket", DAEMON[0])) {
        stream.write_all(b"x").unwrap();
    }
    println!("seen {}", seen[0]);
}

#[test]
fn a_daemon_is_its_own_machines() {
    const TEST: &str = "rm_machine::shared::a_daemon_is_its_own_machines";
    play("serve", serve);
    play("visit", visit);
    let (ours, other) = (Lab::empty(), Lab::up(&[]));
    // What the machine makes in the place of `/run` is there as long as it is up.
    let temporary = ours.folder.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let up = ours.command(&["up", "lab"]).env("TMPDIR", &temporary).output().unwrap();
    assert_eq!(up.status.code(), Some(0));
    let left = || fs::read_dir(&temporary).unwrap().count();
    let visit =
        |lab: &Lab| Program::begin(lab.client(TEST, "visit"), |line| line.starts_with("seen")).1;
    assert_eq!((visit(&ours), left()), ("seen   false".to_owned(), 0));
    let (daemon, line) =
        Program::begin(ours.client(TEST, "serve"), |line| line.starts_with("serves"));
    let process = line.rsplit(' ').next().unwrap();
    assert_eq!(visit(&other), "seen   false");
    assert!(
        DAEMON
            .iter()
            .all(|folder| fs::read_to_string(format!("{folder}/nvidia-persistenced.pid")).is_err())
    );
    assert_eq!(visit(&ours), format!("seen nvidia-persistenced.pid,socket {process} true"));
    let done = daemon.end();
    assert_eq!((done.code, done.out.as_str()), (Some(PASSED), "letter [120]\n"), "{}", done.told);
    assert_eq!((visit(&ours), left()), ("seen   false".to_owned(), 1));
    assert_eq!(ours.rm(&["down", "lab"]).code, Some(0));
    assert_eq!(left(), 0);
}

/// Begins the machine of a lab with this folder for temporary files, from the lab's own.
fn up_with(lab: &Lab, temporary: &str) {
    let mut up = lab.command(&["up", "lab"]);
    let up: Done =
        up.current_dir(lab.folder.path()).env("TMPDIR", temporary).output().unwrap().into();
    assert_eq!(up.code, Some(0), "{}", up.told);
}

#[test]
fn a_daemon_is_found_whatever_the_temporary_folder_is_called() {
    const TEST: &str =
        "rm_machine::shared::a_daemon_is_found_whatever_the_temporary_folder_is_called";
    play("serve", serve);
    play("visit", visit);
    let lab = Lab::empty();
    let long = lab.folder.path().join("long/".repeat(30)).into_os_string().into_string().unwrap();
    for temporary in ["relative", &long] {
        let place = lab.folder.path().join(temporary);
        fs::create_dir_all(&place).unwrap();
        up_with(&lab, temporary);
        let (daemon, line) =
            Program::begin(lab.client(TEST, "serve"), |line| line.starts_with("serves"));
        let process = line.rsplit(' ').next().unwrap();
        let seen = Program::begin(lab.client(TEST, "visit"), |line| line.starts_with("seen")).1;
        assert_eq!(seen, format!("seen nvidia-persistenced.pid,socket {process} true"));
        // Folders that come later are there as well.
        const AGAIN: &str = "echo 1 >/sys/bus/pci/devices/0000:01:00.0/remove && \
                             echo 1 >/sys/bus/pci/rescan && ls /sys/bus/pci/devices/0000:01:00.0/";
        assert!(lab.sh(AGAIN).out.contains("vendor\n"), "{:?}", lab.sh(AGAIN));
        let made = fs::read_dir(&place).unwrap().count();
        assert_eq!(made, usize::from(temporary != long), "a socket has no room in the long one");
        assert_eq!(daemon.end().out, "letter [120]\n");
        assert_eq!(lab.rm(&["down", "lab"]).code, Some(0));
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    }
}

#[test]
fn a_name_that_is_too_long_for_a_socket_is_said() {
    const TEST: &str = "rm_machine::shared::a_name_that_is_too_long_for_a_socket_is_said";
    play("bind", || {
        fs::create_dir(DAEMON[0]).unwrap();
        let bound = UnixListener::bind(format!("{}/{}", DAEMON[0], "a".repeat(82)));
        println!("bound {:?}", bound.map(drop).map_err(|error| error.raw_os_error()));
    });
    let lab = Lab::empty();
    up_with(&lab, lab.folder.path().to_str().unwrap());
    let (program, line) =
        Program::begin(lab.client(TEST, "bind"), |line| line.starts_with("bound"));
    assert_eq!(line, format!("bound Err(Some({}))", libc::EINVAL));
    let told = program.end().told;
    assert!(told.contains("a socket's path has at most 107 bytes, and is really /"), "{told}");
}

#[test]
fn what_killed_machines_made_goes_with_the_next_one() {
    let lab = Lab::empty();
    let temporary = lab.folder.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let left = || fs::read_dir(&temporary).unwrap().count();
    up_with(&lab, "temporary");
    let other = Lab::empty();
    up_with(&other, temporary.to_str().unwrap());
    for lab in [&lab, &other] {
        assert_eq!(lab.sh(&format!("mkdir {0} && echo >{0}/file", DAEMON[0])).code, Some(0));
    }
    let machine = lab.status()["pid"].as_u64().unwrap();
    unsafe { libc::kill(machine as i32, libc::SIGKILL) };
    // Who ends its programs goes a moment after it.
    wait_until(|| lab.rm(&["status", "lab"]).code == Some(2));
    assert_eq!(left(), 2);
    up_with(&lab, "temporary");
    assert_eq!(left(), 1, "the other machine is up");
    assert_eq!(other.sh(&format!("cat {}/file", DAEMON[0])).out, "\n");
    assert_eq!(other.rm(&["down", "lab"]).code, Some(0));
    assert_eq!(left(), 0);
}

#[test]
fn a_report_is_of_its_own_program() {
    const TEST: &str = "rm_machine::shared::a_report_is_of_its_own_program";
    play("hold", hold);
    play("unknown", || {
        let client = Client::new();
        client.control_with(client.handle, 0x7ff, 0, 0);
    });
    let lab = Lab::up(&[]);
    let (holder, _) = Program::begin(lab.client(TEST, "hold"), |line| line.starts_with("held"));
    let done: crate::lab::Done = lab.client(TEST, "unknown").output().unwrap().into();
    assert_eq!(done.code, Some(PASSED));
    let told: Vec<&str> = done.told.lines().map(str::trim).collect();
    assert!(told[0].starts_with("unknown-call") && told[0].contains("0x000007ff"), "{told:?}");
    assert!(told.contains(&"Simulated  3 calls, 1 failed, 1 diagnostics"), "{told:?}");
    let report = lab.folder.path().join("report.json");
    let mut command = lab.command(&["run", "lab", "--report"]);
    command.arg(&report).args(lab.client(TEST, "unknown").get_args().skip(3));
    command.env("NVABI_MACHINE_CLIENT", "unknown");
    assert_eq!(command.output().unwrap().status.code(), Some(PASSED));
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert_eq!(report["diagnostics"].as_array().unwrap().len(), 1, "{report:#}");
    assert_eq!(report["calls"]["open"]["total"], 1, "{report:#}");
    let held = holder.end();
    assert!(!held.told.contains("unknown-call"), "{}", held.told);
}

#[test]
fn a_fault_is_the_machines() {
    const TEST: &str = "rm_machine::shared::a_fault_is_the_machines";
    play("open", || println!("opened {:?}", open("/dev/nvidiactl").map(drop)));
    let lab = Lab::up(&["--fault", "open:2:EMFILE", "--fault", "UVM_MIGRATE:1:EIO"]);
    let opened = || Program::begin(lab.client(TEST, "open"), |line| line.starts_with("opened")).1;
    assert_eq!(opened(), "opened Ok(())");
    assert_eq!(opened(), format!("opened Err({})", libc::EMFILE));
    assert_eq!(opened(), "opened Ok(())");
    assert_eq!(lab.status()["unmet_faults"], serde_json::json!(["UVM_MIGRATE:1:EIO"]));
}

#[test]
fn a_program_has_what_its_command_has() {
    let lab = Lab::up(&[]);
    let folder = lab.folder.path().canonicalize().unwrap();
    let script = "pwd; umask; echo \"$A\"; echo ${HOME-none}; echo \"$1\"; cat; echo wrong >&2; tty; ls -l /proc/self/fd | wc -l";
    let mut command = lab.command(&["run", "lab", "--", "sh", "-c", script, "sh", "a  b"]);
    command.current_dir(&folder).env("A", "x\ny").env_remove("HOME");
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            libc::umask(0o27);
            Ok(())
        });
    }
    let (mut program, first) = Program::begin(command, |_| true);
    assert_eq!(first, folder.to_str().unwrap());
    use std::io::Write as _;
    program.child.stdin.as_mut().unwrap().write_all(b"through\n").unwrap();
    let done = program.end();
    // The list has a line before, the three files and that of the folder which is listed.
    assert_eq!(done.out, "0027\nx\ny\nnone\na  b\nthrough\nnot a tty\n5\n");
    assert!(done.told.starts_with("wrong\n"), "{}", done.told);
    assert_eq!(done.code, Some(0));
}

#[test]
fn status_names_gpus_without_a_driver() {
    let lab = Lab::up(&["--gpus", "2"]);
    lab.need_programs();
    let told = |name: &str| {
        let written = lab.sh(&format!("echo 0000:02:00.0 >/sys/bus/pci/drivers/nvidia/{name}"));
        assert_eq!(written.code, Some(0), "{}", written.told);
        let status = lab.status();
        let gpus = [0, 1].map(|gpu: usize| status["gpus"][gpu]["is_unbound"].as_bool());
        assert_eq!(gpus, [Some(false), Some(name == "unbind")]);
        lab.rm(&["status", "lab"]).out
    };
    let text = told("unbind");
    assert!(text.contains("  GPU 1 NVIDIA GeForce RTX 3090: unbound; 0 of 24576 MiB"), "{text}");
    assert!(!told("bind").contains("unbound"));
}

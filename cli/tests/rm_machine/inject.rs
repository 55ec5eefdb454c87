//! What is injected into GPUs while programs use them.

use std::io::{BufRead as _, Write as _};

use nvabi::driver::AnyDriver;

use crate::channel::Rig;
use crate::client::status::OK;
use crate::client::*;
use crate::lab::{Done, Lab, PASSED, Program, play};

/// NV_ERR_GPU_IS_LOST.
const GPU_IS_LOST: u32 = 0xf;

/// NV2080_NOTIFIERS: RC_ERROR, ECC_SBE, ECC_DBE.
const XID: u64 = 37;
const CORRECTED: u64 = 111;
const UNCORRECTED: u64 = 112;

/// The newest driver of each branch of this build.
fn newest() -> Vec<&'static str> {
    let all = AnyDriver::all();
    let branch_of_next = |at: usize| all.get(at + 1).map(|next| next.branch());
    let newest = (0..).zip(all).filter(|(at, it)| branch_of_next(*at) != Some(it.branch()));
    newest.map(|(_, driver)| driver.tag()).collect()
}

/// Waits for events of two GPUs, and writes each: GPU, index, what it says. A line that comes in says to look.
fn watch() {
    let client = Client::new();
    let subdevices = [client.device(0), client.device(1)];
    let file = file_of(&client);
    let mut listeners = Vec::new();
    for (gpu, (_, subdevice)) in (0..).zip(subdevices) {
        for index in [XID, CORRECTED, UNCORRECTED] {
            listeners.push((listen(&client, subdevice, index, file).unwrap(), gpu));
            assert_eq!(arm(&client, subdevice, index, REPEAT), OK);
        }
    }
    println!("armed");
    loop {
        let files = [file, 0].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        let [told, asked] = wait(files);
        if told {
            let (event, _) = next_event(file).unwrap();
            let gpu = listeners.iter().find(|(it, _)| u64::from(*it) == event.get("hObject"));
            let gpu: i32 = gpu.unwrap().1;
            let [index, info, more] = ["NotifyIndex", "info32", "info16"].map(|it| event.get(it));
            println!("event {gpu} {index} {info} {more}");
        } else if asked {
            let mut line = String::new();
            if std::io::stdin().lock().read_line(&mut line).unwrap() == 0 {
                return;
            }
            let [first, second] = subdevices;
            let first = look(&client, 0, first.0, first.1);
            println!("seen {first}; {}", look(&client, 1, second.0, second.1));
        }
    }
}

fn wait(mut files: [libc::pollfd; 2]) -> [bool; 2] {
    assert!(unsafe { libc::poll(files.as_mut_ptr(), 2, 60_000) } > 0, "nothing comes");
    files.map(|file| file.revents != 0)
}

/// What a GPU says of errors of its memory, or the status of the call; then statuses: of an object that is made of it, of
/// UVM, and of a command that needs no GPU.
fn look(client: &Client, gpu: u8, device: u32, subdevice: u32) -> String {
    let mut counts = Struct::new("NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS");
    let asked = client.control(subdevice, "NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS", &mut counts);
    let count = |field: &str| counts.get(&format!("units[0].{field}.count"));
    let counted = match asked {
        OK => format!("{} {}", count("sbe"), count("dbe")),
        status => format!("{status:#x}"),
    };
    let mut params = memory_params(VIDEO_MEMORY, 1 << 20);
    let made = client.alloc(device, VIDEO_MEMORY, Some(&mut params));
    let made = made.map(|memory| client.free(memory)).unwrap_or_else(|status| status);
    let mut classes = Struct::new("NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS");
    let listed = client.control(device, "NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2", &mut classes);
    // Its name needs no GPU since 550.40.07.
    let mut name = Struct::new("NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS");
    let named = client.control(subdevice, "NV2080_CTRL_CMD_GPU_GET_NAME_STRING", &mut name);
    assert_eq!(named, if is_since(&[550, 40, 7]) { OK } else { made });
    format!("{counted} {made:#x} {:#x} {listed:#x}", register(gpu))
}

/// The status of a GPU's registration with UVM.
fn register(gpu: u8) -> u32 {
    let file = open("/dev/nvidia-uvm").unwrap();
    assert_eq!(uvm(file, "UVM_INITIALIZE", &mut Struct::new("UVM_INITIALIZE_PARAMS")), OK);
    let mut params = Struct::new("UVM_REGISTER_GPU_PARAMS");
    let mut uuid = *b"nvabi-simulated\0";
    uuid[15] = gpu;
    params.put("gpu_uuid", &uuid);
    let status = uvm(file, "UVM_REGISTER_GPU", &mut params);
    assert_eq!(unsafe { libc::close(file) }, 0);
    status
}

/// A program that watches, and a machine of two GPUs.
struct Watched {
    program: Program,
    lab: Lab,
}

impl Watched {
    fn begin(test: &str, lab: Lab) -> Self {
        let (program, _) = Program::begin(lab.client(test, "watch"), |line| line == "armed");
        Self { program, lab }
    }

    fn inject(&self, args: &[&str]) -> Done {
        let done = self.lab.rm(&[&["inject", "lab"], args].concat());
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.told);
        done
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.program.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn look(&mut self) -> String {
        self.program.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.line()
    }
}

#[test]
fn who_waits_is_told_of_the_right_gpu() {
    const TEST: &str = "rm_machine::inject::who_waits_is_told_of_the_right_gpu";
    play("watch", watch);
    let all = newest();
    assert!(all.len() > 10, "{all:?}");
    for tag in all {
        let lab = Lab::up(&["--tag", tag, "--gpu", "a100", "--gpus", "2"]);
        let mut watched = Watched::begin(TEST, lab);
        let done = watched.inject(&["--gpu", "1", "xid", "31"]);
        assert_eq!(watched.line(), "event 1 37 31 233", "{tag}");
        let told = "Injected Xid 31 into GPU 1 of lab, NVIDIA A100-SXM4-80GB; 1 event raised\n";
        assert!(done.told.ends_with(told), "{tag}: {}", done.told);
        watched.inject(&["xid", "4294967295"]);
        assert_eq!(watched.line(), "event 0 37 4294967295 233", "{tag}");

        watched.inject(&["ecc"]);
        assert_eq!(watched.line(), "event 0 111 0 0", "{tag}");
        watched.inject(&["ecc", "--count", "4", "--gpu", "1"]);
        assert_eq!(watched.line(), "event 1 111 0 0", "{tag}");
        watched.inject(&["--gpu", "1", "ecc", "--uncorrected"]);
        assert_eq!(watched.line(), "event 1 112 0 0", "{tag}");
        assert_eq!(watched.look(), "seen 1 0 0x0 0x0 0x0; 4 1 0x0 0x0 0x0", "{tag}");

        watched.inject(&["--gpu", "1", "lost"]);
        assert_eq!(watched.line(), "event 1 37 79 0", "{tag}");
        let lost = format!("{GPU_IS_LOST:#x} {GPU_IS_LOST:#x} {GPU_IS_LOST:#x} 0x0");
        assert_eq!(watched.look(), format!("seen 1 0 0x0 0x0 0x0; {lost}"), "{tag}");
        watched.inject(&["xid", "13"]);
        assert_eq!(watched.line(), "event 0 37 13 233", "{tag}: others go on");
        let refused = watched.lab.rm(&["inject", "lab", "--gpu", "1", "xid", "13"]);
        assert_eq!(refused.code, Some(2), "{}", refused.told);
        let status = watched.lab.status();
        let is_lost = [0, 1].map(|gpu: usize| status["gpus"][gpu]["is_lost"].as_bool());
        assert_eq!(is_lost, [Some(false), Some(true)]);
        assert!(
            watched.lab.rm(&["status", "lab"]).out.contains("GPU 1 NVIDIA A100-SXM4-80GB: lost")
        );
        let Watched { program, lab } = watched;
        let done = program.end();
        assert_eq!(done.code, Some(PASSED), "{tag}: {} {}", done.out, done.told);

        // Nobody keeps it awake any more, and it cannot be started again.
        lab.programs(0);
        let opened = lab.sh("exec 3<>/dev/nvidia0; exec 4<>/dev/nvidia1");
        assert!(opened.told.contains("/dev/nvidia1: Input/output error"), "{tag}: {}", opened.told);
    }
}

/// Copies on the first GPU, again whenever another is lost, and waits for its channel's end when that one is.
fn copy() {
    let mut rig = Rig::new();
    assert!(rig.works());
    println!("copied");
    for line in std::io::stdin().lines() {
        match line.unwrap() == "0" {
            true => println!("error {}", rig.error()),
            false => println!("{}", if rig.works() { "works" } else { "stands still" }),
        }
    }
}

#[test]
fn channels_of_a_lost_gpu_end() {
    const TEST: &str = "rm_machine::inject::channels_of_a_lost_gpu_end";
    play("copy", copy);
    let lab = Lab::up(&["--gpu", "a100", "--gpus", "2"]);
    let (mut program, _) = Program::begin(lab.client(TEST, "copy"), |line| line == "copied");
    for (gpu, word) in [("1", "works\n"), ("0", "error 79\n")] {
        let done = lab.rm(&["inject", "lab", "--gpu", gpu, "lost"]);
        assert_eq!(done.code, Some(0), "{}", done.told);
        writeln!(program.child.stdin.as_mut().unwrap(), "{gpu}").unwrap();
        let mut line = String::new();
        program.out.read_line(&mut line).unwrap();
        assert_eq!(line, word, "GPU {gpu} is lost");
    }
    assert_eq!(program.end().code, Some(PASSED));
}

#[test]
fn what_cannot_happen_is_refused() {
    let lab = Lab::up(&["--gpu", "a100", "--gpu", "rtx3090"]);
    for (args, told) in [
        (&["nowhere", "xid", "13"][..], "there is no machine `nowhere`"),
        (&["lab", "--gpu", "2", "xid", "13"], "there is no GPU 2: the machine has GPU 0 to 1"),
        (&["lab", "--gpu", "1", "ecc"], "GPU 1 has no ECC, or it is off"),
        (&["lab", "xid", "0"], "0 is not in 1.."),
        (&["lab", "xid", "many"], "invalid value 'many'"),
        (&["lab", "ecc", "--count", "0"], "0 is not in 1.."),
        (
            &["lab", "ecc", "--sram", "--instance", "2"],
            "GPU 0 has no instance 2: it is not divided",
        ),
        (&["lab", "ecc", "--instance", "2"], "--sram"),
        (&["lab", "temperature", "256"], "256 is not in 0..=200"),
        (&["lab", "temperature"], "DEGREES"),
        (&["lab", "flood"], "unexpected argument 'flood'"),
        (&["lab"], "requires a subcommand"),
    ] {
        let done = lab.rm(&[&["inject"], args].concat());
        assert_eq!(done.code, Some(2), "{args:?}: {}", done.told);
        assert!(done.told.contains(told), "{args:?}: {}", done.told);
    }
    let done = lab.rm(&["inject", "lab", "xid", "13"]);
    assert!(done.told.contains("; no program waits for this event"), "{}", done.told);
    let done = lab.rm(&["--json", "inject", "lab", "temperature", "90"]);
    assert_eq!(done.code, Some(0), "{}", done.told);
    let value: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(value["gpu_name"], "NVIDIA A100-SXM4-80GB");
    assert!(value["events"].is_null());
}

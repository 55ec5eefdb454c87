//! GPUs that the driver is told to let go, and to take again.

use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::status::*;
use crate::client::*;
use crate::rules;

const NAME: &str = "0000:01:00.0";
const GPU: &str = "/sys/bus/pci/devices/0000:01:00.0";
const DRIVER: &str = "/sys/bus/pci/drivers/nvidia";
const CARD: &str = "/proc/driver/nvidia/gpus/0000:01:00.0";

/// What is there of a GPU while its driver has it, while that lets it go, and after that.
const BOUND: [bool; 4] = [true; 4];
const LEAVING: [bool; 4] = [true, false, false, true];
const UNBOUND: [bool; 4] = [true, false, false, false];

fn shown() -> [bool; 4] {
    let has = |path: &str| fs::symlink_metadata(path).is_ok();
    [has(GPU), has(&format!("{GPU}/driver")), has(&format!("{DRIVER}/{NAME}")), has(CARD)]
}

fn tell(file: &str, name: &str) {
    fs::write(format!("{DRIVER}/{file}"), name).unwrap();
}

/// Waits for what is there of a GPU, and not for ever.
fn wait_for(expected: [bool; 4]) {
    let start = Instant::now();
    while shown() != expected {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?} stays", shown());
    }
}

/// Begins a program that has the GPU unbound and then says whether its card is still there.
fn unbinder() -> Child {
    let script = format!("printf {NAME} >{DRIVER}/unbind; [ -e {CARD} ]; echo $?");
    Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap()
}

/// The same, when nobody has it.
fn assert_returned(writer: Child) {
    assert_eq!(String::from_utf8_lossy(&writer.wait_with_output().unwrap().stdout), "1\n");
}

/// Forks, and gives the child a number, if this process may do that.
fn fork_as(number: u32) -> Option<i32> {
    let numbers = [number as i32];
    let mut args = [0_u64; 10];
    (args[4], args[8], args[9]) = (libc::SIGCHLD as u64, numbers.as_ptr() as u64, 1);
    let child = unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args)) };
    (child >= 0).then_some(child as i32)
}

rules! {
    a_driver_lets_go_of_a_gpu_when_nobody_has_it {
        let client = Client::new();
        let started = |id: u32| {
            // NV0000_CTRL_CMD_GPU_GET_INIT_STATUS, which the specs do not have.
            let mut params = [id, 9];
            let address = params.as_mut_ptr() as u64;
            (client.control_with(client.handle, 0x203, address, 8), params[1])
        };
        let drain = |state: u64| {
            let record = "NV0000_CTRL_GPU_MODIFY_DRAIN_STATE_PARAMS";
            let mut params = Struct::new(record).with("gpuId", 0x100).with("newState", state);
            client.control(client.handle, "NV0000_CTRL_CMD_GPU_MODIFY_DRAIN_STATE", &mut params)
        };
        // Whether it could be started is known of one that was, since the driver has it.
        for file in ["unbind", "bind"] {
            tell(file, NAME);
        }
        assert_eq!([started(0x100), started(0x300)], [(INVALID_STATE, 9), (INVALID_ARGUMENT, 9)]);
        let file = open("/dev/nvidia0").unwrap();
        assert_eq!(started(0x100), (OK, 0));
        unsafe { libc::close(file) };
        assert_eq!(started(0x100), (OK, 0), "the last time");
        // Who is not named keeps its driver.
        tell("unbind", "0000:09:00.0");
        assert_eq!((drain(1), shown()), (OK, BOUND));
        tell("unbind", "0000:01:00.0\n");
        assert_eq!(shown(), UNBOUND);
        assert_eq!((open("/dev/nvidia0"), started(0x100).0), (Err(libc::ENODEV), INVALID_ARGUMENT));
        assert_eq!(drain(0), INVALID_ARGUMENT);
        tell("bind", NAME);
        assert_eq!((shown(), started(0x100).0), (BOUND, INVALID_STATE));
        // It drains no more. The write of who wants it to be let go returns when nobody has it.
        let file = open("/dev/nvidia0").unwrap();
        let writer = unbinder();
        wait_for(LEAVING);
        // Others go on, and have time to see it there.
        (0..200).for_each(|_| assert_eq!(shown(), LEAVING));
        assert_eq!(started(0x100), (OK, 0));
        unsafe { libc::close(file) };
        assert_returned(writer);
        assert_eq!(shown(), UNBOUND);
        tell("bind", NAME);
        assert!(open("/dev/nvidia0").is_ok());
    }

    who_comes_while_a_driver_lets_go_is_refused_since_575 {
        let space = crate::uvm::space();
        let file = open("/dev/nvidia0").unwrap();
        let writer = unbinder();
        wait_for(LEAVING);
        let opened = open("/dev/nvidia0");
        let registered = crate::uvm::register(space, crate::uvm::UUID);
        if is_since(&[575]) {
            assert_eq!((opened, registered), (Err(libc::ENODEV), GENERIC));
        } else {
            assert_eq!((opened.is_ok(), registered), (true, OK));
        }
        for file in [opened, Ok(space), Ok(file)].into_iter().flatten() {
            assert_eq!(shown(), LEAVING);
            unsafe { libc::close(file) };
        }
        assert_returned(writer);
        tell("bind", NAME);
    }

    a_thread_in_a_write_leaves_others_alone {
        let file = open("/dev/nvidia0").unwrap();
        let writer = std::thread::spawn(|| {
            tell("unbind", NAME);
            shown()
        });
        wait_for(LEAVING);
        assert!(!writer.is_finished());
        unsafe { libc::close(file) };
        assert_eq!(writer.join().unwrap(), UNBOUND);
        tell("bind", NAME);
    }

    a_gpu_that_unified_memory_alone_has_is_waited_for {
        let space = crate::uvm::space();
        assert_eq!(crate::uvm::register(space, crate::uvm::UUID), OK);
        let writer = unbinder();
        wait_for(LEAVING);
        assert_eq!(crate::uvm::unregister(space, crate::uvm::UUID), OK);
        assert_returned(writer);
        assert_eq!(shown(), UNBOUND);
        tell("bind", NAME);
    }

    a_driver_takes_again_what_it_lets_go {
        let file = open("/dev/nvidia0").unwrap();
        // The writes themselves do not wait: the next call does.
        let writer = std::thread::spawn(|| {
            let open = |name: &str| fs::OpenOptions::new().write(true).open(format!("{DRIVER}/{name}")).unwrap();
            let (mut unbind, mut bind) = (open("unbind"), open("bind"));
            unbind.write_all(NAME.as_bytes()).unwrap();
            bind.write_all(NAME.as_bytes()).unwrap();
            shown()
        });
        wait_for(LEAVING);
        (0..200).for_each(|_| assert_eq!(shown(), LEAVING));
        assert!(!writer.is_finished());
        unsafe { libc::close(file) };
        assert_eq!((writer.join().unwrap(), shown()), (BOUND, BOUND));
    }

    what_a_killed_program_wrote_is_done {
        let file = open("/dev/nvidia0").unwrap();
        let mut writer = unbinder();
        wait_for(LEAVING);
        writer.kill().unwrap();
        writer.wait().unwrap();
        (0..200).for_each(|_| assert_eq!(shown(), LEAVING));
        // Who gets its number is not in a write.
        match fork_as(writer.id()) {
            Some(0) => unsafe {
                libc::alarm(20);
                libc::_exit(i32::from(shown() != LEAVING))
            },
            Some(child) => {
                let mut status = -1;
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(status, 0, "as the killed one, it is held");
            }
            None => assert_eq!(errno(), libc::EPERM),
        }
        unsafe { libc::close(file) };
        wait_for(UNBOUND);
        tell("bind", NAME);
    }
}

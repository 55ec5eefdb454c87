//! Programs that begin while others work.

use std::process::Stdio;

use crate::client::*;
use crate::lab::{Lab, PASSED, Program, play, until_input_ends, wait_until};

/// Opens a device again and again until its input ends.
fn open_and_close() {
    println!("works");
    until_input_ends(|| {
        let fd = open("/dev/nvidiactl").unwrap();
        assert_eq!(unsafe { libc::close(fd) }, 0);
    });
}

/// A program that is not there ends while somebody opens a device: both go on.
#[test]
fn what_cannot_begin_stops_nobody() {
    const TEST: &str = "rm_machine::begins::what_cannot_begin_stops_nobody";
    play("open", open_and_close);
    let lab = Lab::up(&[]);
    let (worker, _) = Program::begin(lab.client(TEST, "open"), |line| line == "works");
    for _ in 0..20 {
        let mut command = lab.command(&["run", "lab", "--", "/there/is/no/such/program"]);
        let mut begun = command.stderr(Stdio::null()).spawn().unwrap();
        let mut ended = None;
        wait_until(|| {
            ended = begun.try_wait().unwrap();
            ended.is_some()
        });
        assert_ne!(ended.unwrap().code(), Some(0));
    }
    let worked = worker.end();
    assert_eq!(worked.code, Some(PASSED), "{} {}", worked.out, worked.told);
}

//! Doorbells that are rung after a while.

use std::os::fd::AsRawFd as _;
use std::time::Duration;

use crate::channel::Rig;
use crate::client::status::OK;
use crate::rules;

/// More than a machine watches.
const MANY: usize = 300;

/// Waits until the next write to the registers is watched: the kernel's own ones fail then.
fn is_watched(registers: &mut [u8]) -> bool {
    let unused = &mut registers[0x200..0x204];
    (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        let zeros = std::fs::File::open("/dev/zero").unwrap();
        // SAFETY: there is room for four bytes.
        let read = unsafe { libc::read(zeros.as_raw_fd(), unused.as_mut_ptr().cast(), 4) };
        let error = std::io::Error::last_os_error();
        assert!(read == 4 || error.raw_os_error() == Some(libc::EFAULT), "{error}");
        read != 4
    })
}

rules! {
    who_rings_after_a_while_is_waited_for {
        let mut rig = Rig::new();
        for _ in 0..3 {
            assert!(is_watched(rig.registers));
            assert!(rig.works());
        }
    }

    registers_that_nobody_looks_at_hold_nobody {
        let mut rig = Rig::new();
        assert!(rig.works() && is_watched(rig.registers));
        assert_eq!(rig.client.free(rig.client.handle), OK);
        // SAFETY: no file is used any more.
        assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) }, 0);
        std::thread::sleep(Duration::from_millis(100));
        rig.registers[0x90] = 1;
        assert_eq!(rig.registers[0x90], 1);
    }

    registers_that_have_moved_are_rung {
        let mut rig = Rig::new();
        assert!(rig.works() && is_watched(rig.registers));
        let (start, length) = (rig.registers.as_mut_ptr(), rig.registers.len());
        let may_move = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the registers are moved to where nothing else is, and used there alone from now on.
        rig.registers = unsafe {
            let (flags, none) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, std::ptr::null_mut());
            let to = libc::mmap(none, length, libc::PROT_NONE, flags, -1, 0);
            let moved = libc::mremap(start.cast(), length, length, may_move, to);
            assert_eq!(moved, to);
            std::slice::from_raw_parts_mut(moved.cast(), length)
        };
        for pause in [0, 1, 30] {
            std::thread::sleep(Duration::from_millis(pause));
            assert!(rig.works());
        }
    }

    all_of_many_registers_are_rung {
        let mut rig = Rig::new();
        let mut all: Vec<_> = (0..MANY).map(|_| rig.more_registers()).collect();
        std::mem::swap(&mut rig.registers, &mut all[0]);
        for registers in [0, 1, MANY / 2, MANY - 1] {
            std::mem::swap(&mut rig.registers, &mut all[registers]);
            std::thread::sleep(Duration::from_millis(20));
            assert!(rig.works());
        }
    }
}

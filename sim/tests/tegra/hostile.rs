//! Clients that mean harm, or fight with the kernel for other reasons: nobody waits for them, and nothing
//! grows without bound.

use std::time::{Duration, Instant};

use nvabi::call::Ioctl;

use crate::client::*;
use crate::rules;

/// Longer than any call takes, on a busy machine too.
const PROMPT: Duration = Duration::from_secs(5);

rules! {
    a_text_that_grows_freezes_nobody {
        let path = "/sys/class/devfreq/17000000.gpu/min_freq";
        let text = open_with(path, libc::O_RDWR).unwrap();
        assert_eq!(unsafe { libc::ftruncate(text, 3 << 30) }, 0);
        let begun = Instant::now();
        assert!(std::fs::read_to_string(path).is_ok());
        assert!(open("/dev/nvmap").is_ok());
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    }

    signals_that_stop_do_not_end_a_mapping {
        let (nvmap, parent) = (nvmap(), std::process::id() as i32);
        let fd = buffer(nvmap, 4096);
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                unsafe {
                    for signal in [libc::SIGCONT, libc::SIGSTOP, libc::SIGCONT] {
                        if libc::kill(parent, signal) != 0 || libc::getppid() != parent {
                            libc::_exit(0);
                        }
                    }
                    libc::usleep(50);
                }
            }
        }
        for round in 0..2000 {
            let memory = mmap(fd, 4096, 0).unwrap();
            memory.write(0, round);
            assert_eq!(memory.read(0), round);
        }
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }

    a_process_that_was_continued_goes_on {
        let nvmap = nvmap();
        let fd = buffer(nvmap, 4096);
        for _ in 0..20 {
            let child = unsafe { libc::fork() };
            if child == 0 {
                for _ in 0..20 {
                    drop(mmap(fd, 4096, 0).unwrap());
                }
                unsafe { libc::_exit(0) };
            }
            // Stopped once and continued once, somewhere in its calls.
            for signal in [libc::SIGSTOP, libc::SIGCONT] {
                std::thread::sleep(Duration::from_micros(300));
                assert_eq!(unsafe { libc::kill(child, signal) }, 0);
            }
            let (mut status, begun) = (0, Instant::now());
            while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
                assert!(begun.elapsed() < PROMPT, "it is stopped for ever");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
        }
    }

    handlers_stay_when_a_file_is_mapped {
        extern "C" fn handler(_: libc::c_int) {}
        let nvmap = nvmap();
        let address = handler as *const () as usize;
        unsafe { libc::signal(libc::SIGTRAP, address) };
        let _memory = mmap(buffer(nvmap, 4096), 4096, 0).unwrap();
        assert_eq!(unsafe { libc::signal(libc::SIGTRAP, libc::SIG_DFL) }, address);
    }
}

#[test]
fn unknown_requests_are_counted_together() {
    let name = concat!(module_path!(), "::unknown_requests_are_counted_together");
    let report = crate::simulate(name, &["CREATE:1:EIO"], || {
        let nvmap = nvmap();
        assert_eq!(create(nvmap, 4096).map(drop), Err(libc::EIO));
        for number in 0..20_000 {
            assert!(raw(nvmap, 0x4000_0000 + number, 0).is_err());
        }
        assert!(create(nvmap, 4096).is_ok(), "known calls have names of their own");
    });
    assert!(report.calls.len() < 100, "{} names", report.calls.len());
    let total: u64 = report.calls.values().map(|count| count.total).sum();
    assert!(total >= 20_000, "{total} calls are counted");
    assert_eq!(report.calls["NVMAP_IOC_CREATE"].total, 2);
}

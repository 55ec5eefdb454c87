//! Clients that mean harm, or fight with the kernel for other reasons: nobody waits for them, and nothing
//! grows without bound.

use std::ffi::CString;
use std::time::{Duration, Instant};

use nvabi::call::Ioctl;

use crate::client::*;
use crate::faulting::{Faulting, Served};
use crate::rules;

/// Longer than any call takes, on a busy machine too.
const PROMPT: Duration = Duration::from_secs(5);

/// What `/proc` calls the file that a descriptor means.
fn link_of(fd: Fd) -> String {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap().to_str().unwrap().to_owned()
}

rules! {
    a_name_that_becomes_a_fifo_hangs_nobody {
        let folder = open_with("/dev/nvgpu/igpu0", libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
        let fifo = format!("{}/ctrl", link_of(folder));
        // Where there is no such name any more nobody can replace it.
        if std::fs::remove_file(&fifo).is_ok() {
            let fifo = CString::new(fifo).unwrap();
            assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o666) }, 0);
        }
        let begun = Instant::now();
        assert!(open_with("/dev/nvgpu/igpu0/ctrl", libc::O_PATH).is_ok());
        assert!(open("/dev/nvgpu/igpu0/ctrl").is_ok());
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    }

    a_path_that_faults_blocks_its_caller_alone {
        let Some(faulting) = Faulting::new() else { return };
        let page = faulting.page;
        let waiter = std::thread::spawn(move || unsafe {
            libc::open(page as *const libc::c_char, libc::O_RDONLY)
        });
        std::thread::sleep(Duration::from_millis(100));
        let begun = Instant::now();
        assert!(open("/dev/nvmap").is_ok());
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        assert!(!waiter.is_finished(), "its own call waits, as on any machine");
        faulting.answer("/dev/null\0");
        assert!(waiter.join().unwrap() >= 0);
    }

    an_argument_that_faults_is_not_there {
        let Some(faulting) = Faulting::new() else { return };
        let nvmap = nvmap();
        assert_eq!(raw(nvmap, NVMAP_IOC_CREATE_64::REQUEST, faulting.page), EFAULT);
        faulting.answer("\0\0\u{1}\0\0\0\0\0");
        assert_eq!(raw(nvmap, NVMAP_IOC_CREATE_64::REQUEST, faulting.page), Ok(0));
        let made = unsafe { (faulting.page as *const u32).read_volatile() };
        assert_ne!(made, 0x1_0000, "the handle is written to the page");
    }

    memory_that_may_not_be_written_is_not_written {
        // Programs that answer faults of their own are looked at by other means.
        let Some(_faulting) = Faulting::new() else { return };
        let nvmap = nvmap();
        let pages = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let pages = libc::mmap(std::ptr::null_mut(), 8192, protection, flags, -1, 0);
            pages.cast::<u64>().write(4096);
            libc::mprotect(pages, 4096, libc::PROT_READ);
            pages as u64
        };
        assert_eq!(raw(nvmap, NVMAP_IOC_CREATE_64::REQUEST, pages), EFAULT);
        assert_eq!(unsafe { (pages as *const u64).read_volatile() }, 4096);
        unsafe { libc::mprotect(pages as _, 4096, libc::PROT_NONE) };
        assert_eq!(raw(nvmap, NVMAP_IOC_CREATE_64::REQUEST, pages), EFAULT);
    }

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

#[test]
fn a_file_system_of_the_program_blocks_its_callers_alone() {
    let name = concat!(module_path!(), "::a_file_system_of_the_program_blocks_its_callers_alone");
    Served::needed();
    crate::simulate(name, &[], || {
        let mut served = Served::mount().unwrap();
        // Before it stops: what it answers is read.
        assert_eq!(raw(nvmap(), NVMAP_IOC_CREATE_64::REQUEST, served.page(0)), Ok(0));
        served.stop();
        let (path, file) = (served.page(1), served.file);
        let outside = format!("../../../..{}", served.folder.display());
        let waiters = [
            std::thread::spawn(move || unsafe {
                libc::open(path as *const libc::c_char, libc::O_RDONLY);
            }),
            std::thread::spawn(move || unsafe {
                libc::fstat(file, &mut std::mem::zeroed());
            }),
            std::thread::spawn(move || {
                assert_eq!(unsafe { libc::chdir(c"/sys/class/devfreq/17000000.gpu".as_ptr()) }, 0);
                let _ = open_with(&outside, libc::O_RDONLY | libc::O_DIRECTORY);
            }),
        ];
        std::thread::sleep(Duration::from_millis(100));
        let begun = Instant::now();
        in_child(|| assert!(open("/dev/nvmap").is_ok()));
        assert_eq!(raw(nvmap(), NVMAP_IOC_CREATE_64::REQUEST, served.page(2)), EFAULT);
        in_child(|| assert!(open("/dev/nvmap").is_ok()));
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "their own calls wait");
        served.end();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

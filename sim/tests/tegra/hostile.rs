//! Clients that mean harm, or fight with the kernel for other reasons: nobody waits for them, and nothing
//! grows without bound.

use std::ffi::CString;
use std::time::{Duration, Instant};

use nvabi::call::Ioctl;
use nvabi_test::Random;

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

/// How many random calls are made, where it is not the few of each test run: `NVABI_SIM_CALLS=1000000`.
const CALLS: &str = "NVABI_SIM_CALLS";
const FEW: u32 = 5_000;

/// Requests of each node, and where in their arguments a file may be meant.
const OF_NVMAP: [u32; 12] = [
    NVMAP_IOC_CREATE::REQUEST,
    NVMAP_IOC_CREATE_64::REQUEST,
    NVMAP_IOC_ALLOC::REQUEST,
    NVMAP_IOC_FREE::REQUEST,
    NVMAP_IOC_FROM_FD::REQUEST,
    NVMAP_IOC_GET_FD::REQUEST,
    NVMAP_IOC_READ::REQUEST,
    NVMAP_IOC_WRITE::REQUEST,
    NVMAP_IOC_CACHE::REQUEST,
    NVMAP_IOC_DUP_HANDLE::REQUEST,
    NVMAP_IOC_PARAMETERS::REQUEST,
    NVMAP_IOC_QUERY_HEAP_PARAMS::REQUEST,
];
const OF_CTRL: [u32; 8] = [
    NVGPU_GPU_IOCTL_ALLOC_AS::REQUEST,
    NVGPU_GPU_IOCTL_OPEN_TSG::REQUEST,
    NVGPU_GPU_IOCTL_OPEN_CHANNEL::REQUEST,
    NVGPU_GPU_IOCTL_GET_CHARACTERISTICS::REQUEST,
    NVGPU_GPU_IOCTL_GET_TPC_MASKS::REQUEST,
    NVGPU_GPU_IOCTL_GET_ENGINE_INFO::REQUEST,
    NVGPU_GPU_IOCTL_REGISTER_BUFFER::REQUEST,
    NVGPU_GPU_IOCTL_GET_CPU_TIME_CORRELATION_INFO::REQUEST,
];
const OF_SPACES: [u32; 9] = [
    NVGPU_AS_IOCTL_BIND_CHANNEL::REQUEST,
    NVGPU_AS_IOCTL_ALLOC_SPACE::REQUEST,
    NVGPU_AS_IOCTL_FREE_SPACE::REQUEST,
    NVGPU_AS_IOCTL_MAP_BUFFER_EX::REQUEST,
    NVGPU_AS_IOCTL_MAP_BUFFER_BATCH::REQUEST,
    NVGPU_AS_IOCTL_UNMAP_BUFFER::REQUEST,
    NVGPU_AS_IOCTL_REMAP::REQUEST,
    NVGPU_AS_IOCTL_GET_VA_REGIONS::REQUEST,
    NVGPU_AS_IOCTL_MAPPING_MODIFY::REQUEST,
];
const OF_GROUPS: [u32; 7] = [
    NVGPU_TSG_IOCTL_BIND_CHANNEL::REQUEST,
    NVGPU_TSG_IOCTL_BIND_CHANNEL_EX::REQUEST,
    NVGPU_TSG_IOCTL_UNBIND_CHANNEL::REQUEST,
    NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT::REQUEST,
    NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT::REQUEST,
    NVGPU_IOCTL_TSG_SET_TIMESLICE::REQUEST,
    NVGPU_IOCTL_TSG_EVENT_ID_CTRL::REQUEST,
];
const OF_CHANNELS: [u32; 8] = [
    NVGPU_IOCTL_CHANNEL_SETUP_BIND::REQUEST,
    NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX::REQUEST,
    NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT::REQUEST,
    NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER::REQUEST,
    NVGPU_IOCTL_CHANNEL_WDT::REQUEST,
    NVGPU_IOCTL_CHANNEL_SET_TIMEOUT_EX::REQUEST,
    NVGPU_IOCTL_CHANNEL_ENABLE::REQUEST,
    NVGPU_IOCTL_CHANNEL_PREEMPT::REQUEST,
];

/// A channel that is ready, and what was made on the way to it: files, each with the requests of its node.
fn targets() -> Vec<(Fd, &'static [u32])> {
    let (bound, ring, userd) = ready();
    vec![
        (bound.nvmap, &OF_NVMAP),
        (bound.ctrl, &OF_CTRL),
        (bound.space, &OF_SPACES),
        (bound.tsg, &OF_GROUPS),
        (bound.channel, &OF_CHANNELS),
        (channel(bound.ctrl), &OF_CHANNELS),
        (ring, &[]),
        (userd, &[]),
    ]
}

/// An argument: all random, or zeros but for some files, small numbers and random words.
fn argument(random: &mut Random, files: &[(Fd, &[u32])]) -> [u32; 64] {
    let mut words = [0_u32; 64];
    if random.below(4) == 0 {
        words.iter_mut().for_each(|word| *word = random.next() as u32);
        return words;
    }
    for _ in 0..random.below(6) {
        let at = random.below(12);
        words[at] = match random.below(4) {
            0 => files[random.below(files.len())].0 as u32,
            1 => random.below(16) as u32,
            2 => 1 << random.below(32),
            _ => random.next() as u32,
        };
    }
    words
}

/// Calls of every node with arguments that are wrong in some way; how many the kernel took.
fn attack(calls: u32) -> u32 {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut files, mut taken) = (targets(), 0);
    let first = files[0].0;
    for call in 0..calls {
        if call % 256 == 255 {
            // Some of them may be closed by now; what calls have opened is behind them.
            unsafe { libc::close_range(first as u32, u32::MAX, 0) };
            files = targets();
        }
        let (fd, requests) = files[random.below(files.len() - 2)];
        let mut request = requests[random.below(requests.len())];
        if random.below(20) == 0 {
            request ^= 1 << random.below(30);
        }
        let mut words = argument(&mut random, &files);
        let address = match random.below(50) {
            0 => random.next(),
            _ => words.as_mut_ptr() as u64,
        };
        taken += u32::from(raw(fd, request, address).is_ok());
    }
    taken
}

/// Another process makes the same calls again and again until its parent has ended or kills it, and writes how long
/// the longest took.
fn neighbour(longest: &std::sync::atomic::AtomicU64) {
    let nvmap = nvmap();
    loop {
        let begun = Instant::now();
        close(buffer(nvmap, 4096));
        let took = begun.elapsed().as_micros() as u64;
        longest.fetch_max(took, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn random_calls_harm_nobody() {
    let name = concat!(module_path!(), "::random_calls_harm_nobody");
    let calls = std::env::var(CALLS).map_or(FEW, |text| text.parse().unwrap());
    let begun = Instant::now();
    let report = crate::simulate(name, &[], || {
        let calls = std::env::var(CALLS).map_or(FEW, |text| text.parse().unwrap());
        let longest = unsafe {
            let (none, flags) = (std::ptr::null_mut(), libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let shared = libc::mmap(none, 8, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            &*shared.cast::<std::sync::atomic::AtomicU64>()
        };
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            neighbour(longest);
        }
        let taken = attack(calls);
        assert!(taken > calls / 50, "the kernel takes {taken} of {calls}: they are too wrong");
        let mut status = 0;
        unsafe {
            assert_eq!(libc::waitpid(child, &mut status, libc::WNOHANG), 0, "it goes on");
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, &mut status, 0);
        }
        let longest = Duration::from_micros(longest.load(std::sync::atomic::Ordering::Relaxed));
        eprintln!("{taken} of {calls} calls are taken; a neighbour's longest round: {longest:?}");
        assert!(!longest.is_zero() && longest < PROMPT, "{longest:?}");
    });
    println!("{calls} calls in {:.1} s", begun.elapsed().as_secs_f64());
    let total: u64 = report.calls.values().map(|count| count.total).sum();
    assert!(total >= calls.into(), "{total} calls");
    assert_eq!(report.live_buffers, 0, "{report}");
}

//! The seccomp filter: which system calls stop, so that all others cost nothing.

use std::io;

use nvabi_supervise as supervise;
use seccompiler::{BpfProgram, sock_filter};

/// Calls that are always looked at.
const ALWAYS: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
];

/// Requests of terminals, and those that the kernel answers before a driver is asked: libraries make
/// them on any file, and none of our drivers has one of these numbers.
const OF_NO_DRIVER: [u32; 8] = [
    libc::TCGETS as u32,
    libc::TCGETS2 as u32,
    libc::TIOCGWINSZ as u32,
    libc::FIONREAD as u32,
    libc::FIONBIO as u32,
    libc::FIOASYNC as u32,
    libc::FIOCLEX as u32,
    libc::FIONCLEX as u32,
];

/// Which ioctls are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ioctls {
    /// All: they may be of any file.
    All,
    /// Those that a driver of ours may be asked, known or not.
    OfDrivers,
}

impl Ioctls {
    pub(super) fn has(self, request: u32) -> bool {
        self == Self::All || !OF_NO_DRIVER.contains(&request)
    }
}

/// The program, in the kernel's instructions: it returns `action` for what is looked at.
///
/// Programs of another architecture have other numbers: nothing of theirs stops.
pub(super) fn program(action: u32, ioctls: Ioctls) -> io::Result<BpfProgram> {
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let of_interest = match ioctls {
        Ioctls::All => Vec::new(),
        Ioctls::OfDrivers => supervise::unless(1, &OF_NO_DRIVER)?,
    };
    let rules = [
        (libc::SYS_ioctl, of_interest),
        // Mappings of files.
        (libc::SYS_mmap, supervise::when(3, libc::MAP_ANONYMOUS as u64, 0)?),
        // A filter with a listener of its own comes before ours.
        (libc::SYS_seccomp, supervise::when(1, listener, listener)?),
    ];
    supervise::program(ALWAYS, rules, action, libc::SECCOMP_RET_ALLOW)
}

/// Puts this process, and what becomes of it, under a filter: 0, the descriptor of its listener if
/// `flags` ask for one, or a negative error.
///
/// Rights may not be gained under a filter, unless one has them: so that is asked for only where the
/// kernel demands it. Between `fork` and `exec` this may be called: it neither allocates nor locks.
pub(super) fn install(program: &[sock_filter], flags: libc::c_ulong) -> i64 {
    // SAFETY: `program` is what this module makes: it allows a call, or hands it to the tracer or the listener,
    // which let the kernel make it.
    match unsafe { supervise::load(program, flags) } {
        error if error == -i64::from(libc::EACCES) => {
            // SAFETY: this `prctl` takes numbers alone and changes what this process may gain, no memory.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            // SAFETY: as above, the module's own program.
            unsafe { supervise::load(program, flags) }
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use nvabi_pipeline::lock;
    use nvabi_pipeline::spec::{Spec, spec_of};
    use nvabi_reports::list;

    use super::*;

    /// Which of some requests stop: a filter cannot be got rid of, so a child is asked.
    fn stopped(ioctls: Ioctls, requests: &[u32]) -> Option<Vec<bool>> {
        const STOPPED: i32 = libc::ENOSTR;
        let program = program(libc::SECCOMP_RET_ERRNO | STOPPED as u32, ioctls).unwrap();
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let mut answers = vec![0; requests.len()];
        // SAFETY: other threads are not in the child, which may hold locks for ever: it makes system calls alone,
        // on memory that was made before, until it ends.
        match unsafe { libc::fork() } {
            0 => {
                let installed = install(&program, 0) >= 0;
                for (answer, request) in answers.iter_mut().zip(requests) {
                    // SAFETY: -1 is no descriptor, so that no driver sees the request; `errno` is this thread's own.
                    unsafe {
                        libc::ioctl(-1, (*request).into(), 0);
                        *answer = 1 + u8::from(*libc::__errno_location() == STOPPED);
                    }
                }
                let sent = installed && theirs.write_all(&answers).is_ok();
                // SAFETY: it ends the process and returns nowhere.
                unsafe { libc::_exit((!sent).into()) }
            }
            child => {
                drop(theirs);
                let read = ours.read_exact(&mut answers);
                // SAFETY: no status is asked for, so the kernel writes nothing.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
                read.ok()?;
            }
        }
        Some(answers.iter().map(|answer| *answer == 2).collect())
    }

    #[test]
    fn every_request_of_a_driver_stops() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("abi-specs");
        let mut requests = BTreeSet::new();
        for (family, folder) in [("", "lock"), ("tegra", "lock-tegra")] {
            let specs = Spec::load_family(&root, family).unwrap();
            let (locked, _) = lock::read(&root.join(folder)).unwrap();
            // What a release has, those of its branch have but for a few.
            let mut newest = locked.tags.iter().map(|locked| &locked.tag).peekable();
            while let Some(tag) = newest.next() {
                if newest.peek().is_some_and(|next| next.branch() == tag.branch()) {
                    continue;
                }
                let facts = locked.facts(tag).unwrap();
                for listed in list::ioctls(&facts, spec_of(&specs, tag).unwrap()) {
                    let made = || Some(3 << 30 | listed.magic? << 8 | listed.nr?);
                    let request = listed.request.or_else(made).or(listed.nr);
                    requests.extend(request.and_then(|request| u32::try_from(request).ok()));
                }
            }
        }
        assert!(requests.len() > 300, "{}", requests.len());
        assert!(requests.contains(&0x5403), "NVGPU_IOCTL_TSG_ENABLE is next to those of terminals");
        let requests: Vec<u32> = requests.into_iter().collect();
        let of_drivers = stopped(Ioctls::OfDrivers, &requests).expect("a kernel with filters");
        let lost: Vec<_> = requests.iter().zip(of_drivers).filter(|(_, stops)| !stops).collect();
        assert_eq!(lost, []);
    }

    #[test]
    fn what_no_driver_is_asked_does_not_stop() {
        let none = stopped(Ioctls::OfDrivers, &OF_NO_DRIVER).expect("a kernel with filters");
        assert_eq!(none, [false; OF_NO_DRIVER.len()]);
        assert_eq!(stopped(Ioctls::All, &OF_NO_DRIVER).unwrap(), [true; OF_NO_DRIVER.len()]);
    }
}

//! Threads of other processes that are traced: `ptrace` and `waitpid`, each request with its own types.
//!
//! nix's `ptrace` and `wait` serve as far as they go, which is not far enough: they know no real-time
//! signals, so a tracer could neither see nor pass one on, neither `PTRACE_LISTEN` nor signal masks, and
//! their `getregset` takes for written what the kernel leaves out for a 32-bit thread.
//!
//! No request can change this process's own memory or registers, whatever number is given: a process may
//! not trace threads of its own (`ptrace_attach` in `kernel/ptrace.c` refuses the same thread group with
//! `EPERM`), and all other requests are of traced threads alone (`ptrace_check_attach`, `ESRCH`). So they
//! are safe to make as long as the addresses in them are of local variables of the right size.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use crate::check;

/// `si_signo` of a stop at a system call, with `PTRACE_O_TRACESYSGOOD`.
pub const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// `PTRACE_GETSIGMASK` and `PTRACE_SETSIGMASK`, which libc has for some targets alone.
const GET_MASK: libc::c_uint = 0x420a;
const SET_MASK: libc::c_uint = 0x420b;

/// General registers, as a register set.
const NT_PRSTATUS: usize = 1;

/// The number of a thread that this thread traces, or is to trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tracee(pub i32);

/// How a stopped thread goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// Until something else stops it.
    Freely,
    /// Until it makes a system call or returns from one.
    ToCall,
    /// For one instruction.
    Step,
}

/// Where a thread stopped at a system call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStop {
    /// It makes one.
    Enter {
        /// `AUDIT_ARCH_*` of the call.
        arch: u32,
        /// Its number.
        call: u64,
        /// Its arguments, as the registers have them.
        args: [u64; 6],
    },
    /// It returns from one with this result.
    Return(i64),
    /// It is at none.
    Elsewhere,
}

/// What has become of a thread that was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It has stopped.
    Stopped {
        /// The signal that stopped it.
        signal: i32,
        /// `PTRACE_EVENT_*`; 0 for none.
        event: i32,
    },
    /// It has ended.
    Ended(ExitStatus),
}

impl Waited {
    fn of(status: i32) -> Self {
        match libc::WIFSTOPPED(status) {
            true => Self::Stopped { signal: libc::WSTOPSIG(status), event: status >> 16 },
            false => Self::Ended(ExitStatus::from_raw(status)),
        }
    }
}

/// Waits until one of the children and traced threads stops or ends; none when there are none.
pub fn wait_for_any() -> io::Result<Option<(Tracee, Waited)>> {
    match wait(-1) {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        result => result.map(Some),
    }
}

/// Waits until a child ends. One that is traced must have been let go.
pub fn wait_for_end(child: i32) -> io::Result<ExitStatus> {
    loop {
        if let Waited::Ended(status) = Tracee(child).wait()? {
            return Ok(status);
        }
    }
}

/// Signals that come meanwhile do not end the wait.
fn wait(which: i32) -> io::Result<(Tracee, Waited)> {
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes one `int`, through a pointer to a local one.
        match check(unsafe { libc::waitpid(which, &mut status, libc::__WALL) }) {
            Ok(thread) => return Ok((Tracee(thread), Waited::of(status))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Tracee {
    /// Begins to trace it, with `PTRACE_O_*`; it goes on meanwhile.
    pub fn seize(self, options: libc::c_int) -> io::Result<()> {
        // SAFETY: the request takes no address.
        unsafe { self.request(libc::PTRACE_SEIZE, 0, options as usize) }
    }

    /// Lets it go.
    pub fn detach(self) -> io::Result<()> {
        // SAFETY: the request takes no address.
        unsafe { self.request(libc::PTRACE_DETACH, 0, 0) }
    }

    /// Stops it: to be waited for.
    pub fn interrupt(self) -> io::Result<()> {
        // SAFETY: the request takes no address.
        unsafe { self.request(libc::PTRACE_INTERRUPT, 0, 0) }
    }

    /// Lets it go on, with a signal that it gets; 0 for none.
    pub fn resume(self, how: Resume, signal: i32) -> io::Result<()> {
        let request = match how {
            Resume::Freely => libc::PTRACE_CONT,
            Resume::ToCall => libc::PTRACE_SYSCALL,
            Resume::Step => libc::PTRACE_SINGLESTEP,
        };
        // SAFETY: the requests take a number of a signal, which the kernel checks, and no address.
        unsafe { self.request(request, 0, signal as usize) }
    }

    /// Leaves it stopped by job control until that continues it.
    pub fn listen(self) -> io::Result<()> {
        // SAFETY: the request takes no address.
        unsafe { self.request(libc::PTRACE_LISTEN, 0, 0) }
    }

    /// What there is to know of the event that it stopped at.
    pub fn event_message(self) -> io::Result<u64> {
        let mut message: libc::c_ulong = 0;
        // SAFETY: the kernel writes one `unsigned long` (`put_user` in `ptrace_request`).
        unsafe { self.request(libc::PTRACE_GETEVENTMSG, 0, (&raw mut message) as usize)? };
        Ok(message)
    }

    /// The system call that it stopped at.
    pub fn call_stop(self) -> io::Result<CallStop> {
        // SAFETY: the struct is of integers and a union of structs of integers: zeros are a value of it.
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        let address = (&raw mut info) as usize;
        // SAFETY: the kernel writes at most as many bytes as the second number says
        // (`ptrace_get_syscall_info`), which is the size of `info`.
        unsafe { self.request(libc::PTRACE_GET_SYSCALL_INFO, size_of_val(&info), address)? };
        Ok(match info.op {
            // A stop by a filter begins with what a stop at a call has.
            libc::PTRACE_SYSCALL_INFO_ENTRY | libc::PTRACE_SYSCALL_INFO_SECCOMP => {
                // SAFETY: all members of the union are integers, and all of its bytes were initialised.
                let entry = unsafe { info.u.entry };
                CallStop::Enter { arch: info.arch, call: entry.nr, args: entry.args }
            }
            // SAFETY: as for `entry`: integers, of initialised bytes.
            libc::PTRACE_SYSCALL_INFO_EXIT => CallStop::Return(unsafe { info.u.exit.sval }),
            _ => CallStop::Elsewhere,
        })
    }

    /// Waits until it stops or ends.
    pub fn wait(self) -> io::Result<Waited> {
        wait(self.0).map(|(_, waited)| waited)
    }

    /// Replaces the signals that it blocks, of which bit 0 is signal 1; returns those that it blocked.
    pub fn replace_mask(self, mask: u64) -> io::Result<u64> {
        let mut old = 0_u64;
        let size = size_of::<u64>();
        // SAFETY: the kernel writes one mask, of the size that it is told and refuses if it is another
        // (`PTRACE_GETSIGMASK` in `ptrace_request`).
        unsafe { self.request(GET_MASK, size, (&raw mut old) as usize)? };
        // SAFETY: the kernel reads one mask, of the size that it is told and refuses if it is another.
        unsafe { self.request(SET_MASK, size, (&raw const mask) as usize)? };
        Ok(old)
    }

    /// Its general registers.
    pub fn registers(self) -> io::Result<Registers> {
        // SAFETY: the struct is of integers: zeros are a value of it.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        self.register_set(libc::PTRACE_GETREGSET as _, &mut registers)?;
        Ok(Registers(registers))
    }

    /// Sets its general registers.
    pub fn set_registers(self, registers: &Registers) -> io::Result<()> {
        let mut registers = registers.0;
        self.register_set(libc::PTRACE_SETREGSET as _, &mut registers)
    }

    /// Reads or writes the general registers; an error where it has others, as in a 32-bit program.
    fn register_set(
        self,
        request: libc::c_uint,
        registers: &mut libc::user_regs_struct,
    ) -> io::Result<()> {
        let size = size_of::<libc::user_regs_struct>();
        let mut part =
            libc::iovec { iov_base: std::ptr::from_mut(registers).cast(), iov_len: size };
        // SAFETY: the kernel reads and writes the `iovec`, and at most as many bytes as it says of the
        // registers, which outlive the call (`ptrace_regset` in `kernel/ptrace.c`).
        unsafe { self.request(request, NT_PRSTATUS, (&raw mut part) as usize)? };
        match part.iov_len == size {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::Unsupported, "a thread of 32 bits")),
        }
    }

    /// # Safety
    ///
    /// Where the request takes an address, in either number, that must be of memory which the kernel may
    /// read or write as the request says, and which outlives the call.
    unsafe fn request(self, request: libc::c_uint, first: usize, second: usize) -> io::Result<()> {
        // SAFETY: the caller vouches for addresses; without any, a request has no effect on the memory of
        // this process.
        match unsafe { libc::ptrace(request as _, self.0, first, second) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// The general registers of a thread.
#[derive(Debug, Clone, Copy)]
pub struct Registers(libc::user_regs_struct);

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// What the call returned.
    pub fn result(&self) -> i64 {
        self.0.rax as i64
    }

    /// As if the call had returned this.
    pub fn with_result(&self, result: i64) -> Self {
        let mut registers = *self;
        registers.0.rax = result as u64;
        registers
    }

    /// As if a signal had come before the call could do anything: when the signal has its handler, that says whether
    /// the kernel makes the call again.
    pub fn interrupted(&self) -> Self {
        /// `ERESTARTSYS`.
        const AGAIN: i64 = 512;
        self.with_result(-AGAIN)
    }

    /// The same instruction again, for another call.
    pub fn with_call(&self, call: u64, args: [u64; 6]) -> Self {
        let mut registers = *self;
        registers.0.rip -= 2;
        registers.0.rax = call;
        // There is no call to restart.
        registers.0.orig_rax = u64::MAX;
        let it = &mut registers.0;
        [it.rdi, it.rsi, it.rdx, it.r10, it.r8, it.r9] = args;
        registers
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    /// What the call returned.
    pub fn result(&self) -> i64 {
        self.0.regs[0] as i64
    }

    /// As if the call had returned this.
    pub fn with_result(&self, result: i64) -> Self {
        let mut registers = *self;
        registers.0.regs[0] = result as u64;
        registers
    }

    /// As if a signal had ended the call: the kernel would make it again with an argument that no tracer can set.
    pub fn interrupted(&self) -> Self {
        self.with_result(-i64::from(libc::EINTR))
    }

    /// The same instruction again, for another call.
    pub fn with_call(&self, call: u64, args: [u64; 6]) -> Self {
        let mut registers = *self;
        registers.0.pc -= 4;
        registers.0.regs[8] = call;
        registers.0.regs[..6].copy_from_slice(&args);
        registers
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use super::*;

    fn sleeper(seconds: &str) -> Child {
        Command::new("sleep").arg(seconds).spawn().unwrap()
    }

    extern "C" fn ignore(_: libc::c_int) {}

    #[test]
    #[expect(clippy::zombie_processes, reason = "waited for by what is tested")]
    fn a_signal_does_not_end_a_wait() {
        // SAFETY: the handler does nothing; without `SA_RESTART`, system calls end when it has run.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        }
        let child = sleeper("0.5");
        let number = child.id() as i32;
        // SAFETY: it says a number.
        let waiter = unsafe { libc::gettid() };
        let begun = Instant::now();
        let signals = std::thread::spawn(move || {
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(50));
                // SAFETY: it signals a thread of this process, which has a handler.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), waiter, libc::SIGUSR1) };
            }
        });
        assert!(wait_for_end(number).unwrap().success());
        assert!(begun.elapsed() > Duration::from_millis(400));
        signals.join().unwrap();
    }

    #[test]
    fn threads_that_are_not_traced_are_refused() {
        // SAFETY: it says a number.
        let own = Tracee(unsafe { libc::gettid() });
        let errno = |result: io::Result<()>| result.unwrap_err().raw_os_error();
        assert_eq!(errno(own.seize(0)), Some(libc::EPERM), "a thread of its own");
        assert_eq!(errno(own.registers().map(drop)), Some(libc::ESRCH));
        assert_eq!(errno(own.replace_mask(0).map(drop)), Some(libc::ESRCH));
        assert_eq!(errno(own.resume(Resume::Freely, 0)), Some(libc::ESRCH));
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "waited for by what is tested")]
    fn a_real_time_signal_is_seen_and_passed_on() {
        let mut child = sleeper("10");
        let thread = Tracee(child.id() as i32);
        if let Err(error) = thread.seize(0) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("a machine that allows ptrace: {error}");
        }
        let signal = libc::SIGRTMIN() + 3;
        // SAFETY: it signals a child.
        assert_eq!(unsafe { libc::kill(thread.0, signal) }, 0);
        assert_eq!(thread.wait().unwrap(), Waited::Stopped { signal, event: 0 });
        thread.resume(Resume::Freely, signal).unwrap();
        let Waited::Ended(status) = thread.wait().unwrap() else { panic!("it goes on") };
        assert_eq!(status.signal(), Some(signal));
    }
}

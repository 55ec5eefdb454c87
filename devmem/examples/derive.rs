//! How fast `derive` is, beside a plain port of the C library's algorithm. `benches/devmem.sh` runs it.
//!
//! The port does what the C library does for each pair: merge the constraints into a new list, then
//! compare each capability with each by their bytes, with two lists made anew, and one piece of
//! memory for every capability that is kept. What the C library leaks, the port leaks. A call is
//! measured with the drop of its result, as callers have both.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use nvabi_devmem::{
    Capability, CapabilitySet, Constraint, ConstraintName, Offer, Operation, Use, derive,
    derive_all, explain,
};

/// Sets as the C library has them: a capability is a head of 12 bytes and its payload.
mod port {
    use nvabi_devmem::{Capability, CapabilitySet, Constraint};

    pub(super) struct Set {
        pub(super) constraints: Vec<(u32, u64)>,
        pub(super) capabilities: Vec<Box<[u8]>>,
    }

    /// Vendor, name and words: what of the head is compared.
    const COMMON: usize = 8;
    const HEAD: usize = 12;

    impl From<&CapabilitySet> for Set {
        fn from(set: &CapabilitySet) -> Self {
            let bytes = |capability: &Capability| {
                let mut bytes = capability.vendor.to_le_bytes().to_vec();
                bytes.extend(capability.name.to_le_bytes());
                bytes.extend((capability.payload.len() as u16).to_le_bytes());
                bytes.extend([u8::from(capability.required), 0, 0, 0]);
                capability.payload.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
                bytes.into_boxed_slice()
            };
            let constraint = |constraint: &Constraint| (constraint.name.0, constraint.value);
            Self {
                constraints: set.constraints.iter().map(constraint).collect(),
                capabilities: set.capabilities.iter().map(bytes).collect(),
            }
        }
    }

    pub(super) fn derive(left: &[Set], right: &[Set]) -> Vec<Set> {
        let mut derived: Vec<Set> = Vec::new();
        for left in left {
            for right in right {
                let Some(constraints) = merge(&left.constraints, &right.constraints) else {
                    continue;
                };
                let Some(capabilities) = intersect(&left.capabilities, &right.capabilities) else {
                    std::mem::forget(constraints);
                    continue;
                };
                derived.reserve_exact(1);
                derived.push(Set { constraints, capabilities });
            }
        }
        derived
    }

    fn merge(left: &[(u32, u64)], right: &[(u32, u64)]) -> Option<Vec<(u32, u64)>> {
        let mut merged = Vec::with_capacity(left.len());
        let mut common = 0;
        for &(name, value) in left {
            match right.iter().find(|(other, _)| *other == name) {
                Some(&(_, other)) => {
                    common += 1;
                    merged.push((name, MERGE.get(name as usize)?(value, other)));
                }
                None => merged.push((name, value)),
            }
        }
        if left.len() + right.len() - common != left.len() {
            merged.reserve_exact(right.len() - common);
            let new = |(name, _): &&(u32, u64)| !left.iter().any(|(known, _)| known == name);
            merged.extend(right.iter().filter(new));
        }
        Some(merged)
    }

    static MERGE: [fn(u64, u64) -> u64; 3] = [multiple, multiple, u64::min];

    /// In 32 bits, and multiplied first, as the C library does it.
    fn multiple(a: u64, b: u64) -> u64 {
        let (a, b) = (a as u32, b as u32);
        let (mut x, mut y) = (a, b);
        while y != 0 {
            (x, y) = (y, x % y);
        }
        u64::from(a.wrapping_mul(b) / x)
    }

    fn equal(a: &[u8], b: &[u8]) -> bool {
        a.len() == b.len() && a[..COMMON] == b[..COMMON] && a[HEAD..] == b[HEAD..]
    }

    fn intersect(left: &[Box<[u8]>], right: &[Box<[u8]>]) -> Option<Vec<Box<[u8]>>> {
        if left.is_empty() || right.is_empty() {
            return None;
        }
        let mut kept: Vec<Box<[u8]>> = Vec::with_capacity(left.len().min(right.len()));
        let mut matched = vec![0_i32; right.len()];
        for capability in left {
            match right.iter().position(|other| equal(capability, other)) {
                Some(at) => {
                    matched[at] = 1;
                    let mut copy = capability.clone();
                    copy[COMMON] |= right[at][COMMON];
                    kept.push(copy);
                }
                None if capability[COMMON] != 0 => return None,
                None => {}
            }
        }
        if right.iter().zip(&matched).any(|(other, matched)| *matched == 0 && other[COMMON] != 0) {
            return None;
        }
        // The C library goes on with an empty set here, which it then frees twice.
        if kept.is_empty() {
            return None;
        }
        kept.shrink_to_fit();
        Some(kept)
    }
}

/// The C library itself, where a variable names it: of pairs that share nothing it makes sets that it cannot free, so
/// that only cases in which all pairs match can be measured with it.
mod library {
    use std::ffi::{c_int, c_void};

    use nvabi_devmem::CapabilitySet;

    #[repr(C)]
    struct Constraint {
        name: u32,
        value: u64,
    }

    #[repr(C)]
    struct Set {
        constraint_count: u32,
        capability_count: u32,
        constraints: *const Constraint,
        capabilities: *const *const u32,
    }

    type Derive =
        unsafe extern "C" fn(u32, *const Set, u32, *const Set, *mut u32, *mut *mut c_void) -> c_int;
    type Free = unsafe extern "C" fn(u32, *mut c_void);

    /// Sets as the library takes them; what they point to stays.
    pub(super) struct Sets(Vec<Set>);

    impl From<&[CapabilitySet]> for Sets {
        fn from(sets: &[CapabilitySet]) -> Self {
            let set = |set: &CapabilitySet| {
                let constraints: Vec<Constraint> = set
                    .constraints
                    .iter()
                    .map(|asked| Constraint { name: asked.name.0, value: asked.value })
                    .collect();
                let capabilities: Vec<*const u32> = set
                    .capabilities
                    .iter()
                    .map(|capability| {
                        let name = u32::from(capability.name);
                        let words = capability.payload.len() as u32;
                        let head =
                            [capability.vendor, name | words << 16, capability.required.into()];
                        [&head[..], &capability.payload].concat().leak().as_ptr()
                    })
                    .collect();
                Set {
                    constraint_count: constraints.len() as u32,
                    capability_count: capabilities.len() as u32,
                    constraints: constraints.leak().as_ptr(),
                    capabilities: capabilities.leak().as_ptr(),
                }
            };
            Self(sets.iter().map(set).collect())
        }
    }

    pub(super) struct Library {
        derive: Derive,
        free: Free,
        _loaded: libloading::Library,
    }

    impl Library {
        pub(super) fn load(path: &std::ffi::OsStr) -> Result<Self, libloading::Error> {
            // SAFETY: who runs this names the library that benches/devmem.sh has just built.
            let loaded = unsafe { libloading::Library::new(path) }?;
            // SAFETY: both types are those of `allocator.h`, and the library stays as long as this.
            let (derive, free) = unsafe {
                (*loaded.get(b"derive_capabilities\0")?, *loaded.get(b"free_capability_sets\0")?)
            };
            Ok(Self { derive, free, _loaded: loaded })
        }

        /// Derives, frees what came of it, and says how many sets that were.
        pub(super) fn derive(&self, left: &Sets, right: &Sets) -> u32 {
            let (mut count, mut derived) = (0, std::ptr::null_mut());
            let (left, right) = (&left.0, &right.0);
            // SAFETY: both lists have so many sets, and what these point to was leaked; what the library gave goes
            // back to it.
            unsafe {
                (self.derive)(
                    left.len() as u32,
                    left.as_ptr(),
                    right.len() as u32,
                    right.as_ptr(),
                    &raw mut count,
                    &raw mut derived,
                );
                (self.free)(count, derived);
            }
            count
        }
    }
}

fn set(address: u64, pitch: u64, capabilities: Vec<Capability>) -> CapabilitySet {
    let constraints = [
        Constraint::new(ConstraintName::ADDRESS_ALIGNMENT, address),
        Constraint::new(ConstraintName::PITCH_ALIGNMENT, pitch),
        Constraint::new(ConstraintName::MAX_PITCH, 65_536),
    ];
    CapabilitySet::new(constraints, capabilities)
}

fn tiled(vendor: u32, name: u16, size: u32) -> Capability {
    Capability::new(vendor, name, vec![size, size * 2])
}

/// Two devices as in the C library's introduction: 2 sets and 4, of which 2 pairs match.
fn small() -> (Vec<CapabilitySet>, Vec<CapabilitySet>) {
    let linear = Capability::pitch_linear;
    let left = vec![set(512, 48, vec![tiled(0x13b5, 1, 16)]), set(4096, 64, vec![linear()])];
    let right = vec![
        set(4096, 64, vec![tiled(0x10de, 1, 32), Capability::new(0x10de, 2, Vec::new())]),
        set(4096, 128, vec![tiled(0x10de, 1, 32)]),
        set(1024, 32, vec![tiled(0x13b5, 1, 16)]),
        set(256, 16, vec![linear()]),
    ];
    (left, right)
}

/// 64 sets of 8 capabilities; `kind` is how those of one set differ from those of another.
fn large(kind: impl Fn(u32) -> u32) -> Vec<CapabilitySet> {
    let set_of = |at| {
        let capability = |name| tiled(0x10de, name, kind(at));
        set(4096 << (at % 4), 64 + 16 * u64::from(at % 5), (0..8).map(capability).collect())
    };
    (0..64).map(set_of).collect()
}

/// A name, both sides, and how much faster it is to be.
type Case = (&'static str, Vec<CapabilitySet>, Vec<CapabilitySet>, f64);

/// Calls one side with the small case so often, for who counts what that takes: `port 1000`, `derive 1000`.
fn call(side: &str, calls: u32) -> ExitCode {
    let (left, right) = small();
    let (old_left, old_right): (Vec<port::Set>, Vec<port::Set>) =
        (left.iter().map(Into::into).collect(), right.iter().map(Into::into).collect());
    for _ in 0..calls {
        match side {
            "port" => drop(black_box(port::derive(black_box(&old_left), black_box(&old_right)))),
            _ => drop(black_box(derive(black_box(&left), black_box(&right)))),
        }
    }
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [side, calls] = arguments.as_slice() {
        return call(side, calls.parse().unwrap_or(0));
    }
    let (left, right) = small();
    let cases: [Case; 4] = [
        ("2 x 4 sets", left, right, 2.0),
        ("64 x 64 x 8, all match", large(|_| 1), large(|_| 1), 5.0),
        ("64 x 64 x 8, diagonal", large(|at| at), large(|at| at), 5.0),
        ("64 x 64 x 8, none", large(|at| at), large(|at| at + 64), 5.0),
    ];
    // First, for what the port leaks counts as memory.
    let mut slow = !many_devices();
    slow |= !strangers();
    println!("{:<24} {:>12} {:>12} {:>7}  asked", "", "the port", "derive", "ratio");
    for (name, left, right, asked) in &cases {
        let (old_left, old_right): (Vec<port::Set>, Vec<port::Set>) =
            (left.iter().map(Into::into).collect(), right.iter().map(Into::into).collect());
        assert!(same(&port::derive(&old_left, &old_right), &derive(left, right)), "{name}");
        let (old, new) = medians(
            || port::derive(black_box(&old_left), black_box(&old_right)),
            || derive(black_box(left), black_box(right)),
        );
        let ratio = old / new;
        slow |= ratio < *asked;
        println!("{name:<24} {:>9.3} us {:>9.3} us {ratio:>6.1}x  {asked}x", old * 1e6, new * 1e6);
    }
    if let Some(path) = std::env::var_os("NVABI_ALLOCATOR_LIBRARY") {
        slow |= !beside_the_library(&path);
    }
    ExitCode::from(u8::from(slow))
}

/// Whether `derive` is fast enough beside the C library itself.
fn beside_the_library(path: &std::ffi::OsStr) -> bool {
    let library = match library::Library::load(path) {
        Ok(library) => library,
        Err(error) => {
            eprintln!("{error}");
            return false;
        }
    };
    println!("{:<24} {:>12} {:>12} {:>7}  asked", "", "the library", "derive", "ratio");
    let few = |count: usize| large(|_| 1).into_iter().take(count).collect::<Vec<_>>();
    let cases = [
        ("2 x 4 x 8, all match", few(2), few(4), 2.0),
        ("64 x 64 x 8, all match", few(64), few(64), 6.0),
    ];
    let mut fast = true;
    for (name, left, right, asked) in &cases {
        let (of_left, of_right) = (left.as_slice().into(), right.as_slice().into());
        assert_eq!(
            library.derive(&of_left, &of_right) as usize,
            derive(left, right).len(),
            "{name}"
        );
        let (old, new) = medians(
            || library.derive(black_box(&of_left), black_box(&of_right)),
            || derive(black_box(left), black_box(right)),
        );
        let ratio = old / new;
        fast &= ratio >= *asked;
        println!("{name:<24} {:>9.3} us {:>9.3} us {ratio:>6.1}x  {asked}x", old * 1e6, new * 1e6);
    }
    fast
}

/// 32 devices with 64 sets each that all merge, and of which none asks for less than another: whether the
/// bounds of `derive_all` keep it below a second and 64 MiB.
fn many_devices() -> bool {
    let mut state = 1_u64;
    let mut value = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        state >> 40
    };
    let mut set = || {
        let pitch = value();
        let size = value();
        let constraints = [
            Constraint::new(ConstraintName::MAX_PITCH, pitch),
            Constraint::new(ConstraintName::ROW_PADDING, pitch),
            Constraint::new(ConstraintName::MAX_SIZE, size),
            Constraint::new(ConstraintName::SIZE_PADDING, size),
        ];
        CapabilitySet::new(constraints, [Capability::pitch_linear()])
    };
    let lists: Vec<Vec<CapabilitySet>> =
        (0..32).map(|_| (0..64).map(|_| set()).collect()).collect();
    let start = processor_seconds();
    let derived = derive_all(&lists);
    let seconds = processor_seconds() - start;
    let kib = peak_kib();
    println!(
        "{:<24} {:>9.3} s, {} MiB at most, {} sets, complete: {}",
        "32 devices of 64 sets",
        seconds,
        kib >> 10,
        derived.sets.len(),
        derived.complete
    );
    seconds <= 1.0 && kib <= 64 << 10
}

/// Two devices of many sets that have nothing in common, explained: whether its bounds keep that below two seconds.
fn strangers() -> bool {
    let sets = |vendor| {
        let set = |name| CapabilitySet::new([], [Capability::new(vendor, name, Vec::new())]);
        (0..300).map(set).collect()
    };
    let uses = [("gpu", 0x10de), ("npu", 0x1a0a)];
    let offers = uses.map(|(device, vendor)| Offer {
        of: Use::new(device, Operation::Render),
        sets: sets(vendor),
    });
    let start = processor_seconds();
    let explained = explain(&offers);
    let seconds = processor_seconds() - start;
    println!(
        "{:<24} {seconds:>9.3} s, complete: {}",
        "explained, 2 x 300 sets", explained.complete
    );
    seconds <= 2.0
}

/// The most memory that this program had.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let digits = peak.and_then(|peak| peak.trim().split(' ').next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
}

fn same(old: &[port::Set], new: &[CapabilitySet]) -> bool {
    let equal = |old: &port::Set, new: &CapabilitySet| {
        let new: port::Set = new.into();
        old.constraints == new.constraints && old.capabilities == new.capabilities
    };
    old.len() == new.len() && old.iter().zip(new).all(|(old, new)| equal(old, new))
}

/// Seconds of a call of each: the medians of runs that take turns.
fn medians<A, B>(old: impl Fn() -> A, new: impl Fn() -> B) -> (f64, f64) {
    const RUNS: usize = 41;
    let (calls_old, calls_new) = (calls(&old), calls(&new));
    let (mut olds, mut news) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        olds.push(seconds(&old, calls_old));
        news.push(seconds(&new, calls_new));
    }
    olds.sort_by(f64::total_cmp);
    news.sort_by(f64::total_cmp);
    (olds[RUNS / 2], news[RUNS / 2])
}

/// So many that a run takes some 5 ms.
fn calls<T>(of: &impl Fn() -> T) -> usize {
    let each = seconds(of, 20).max(1e-9);
    ((Duration::from_millis(5).as_secs_f64() / each) as usize).clamp(1, 20_000)
}

fn seconds<T>(of: &impl Fn() -> T, calls: usize) -> f64 {
    let start = processor_seconds();
    for _ in 0..calls {
        drop(black_box(of()));
    }
    (processor_seconds() - start) / calls as f64
}

/// Time that the processor spent on this thread: others take their turns on this machine.
fn processor_seconds() -> f64 {
    let clock = nix::libc::CLOCK_THREAD_CPUTIME_ID;
    let mut time = nix::libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes a time to where the pointer leads, which is one.
    let failed = unsafe { nix::libc::clock_gettime(clock, &raw mut time) } != 0;
    assert!(!failed, "Linux has this clock");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

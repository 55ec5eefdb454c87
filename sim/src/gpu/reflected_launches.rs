//! Launches that kernels ask for by a page of the scheduler's.

use super::rig::{self, CLASSES, CODE, Channel, DATA, QMD, REFLECTED, Shared};
use super::{Clock, Fault};

/// Takes a number off a word where it is not zero, and launches itself again: its parameters are where the word is, where
/// the scheduler is, and what to store there. What comes back of the scheduler is left behind the word.
const TEXT: &str = "
.version 7.8
.target sm_80
.address_size 64
.visible .entry again(.param .u64 data, .param .u64 scheduler, .param .u64 message) {
  .reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .pred %p<2>;
  ld.param.u64 %rd0, [data]; ld.param.u64 %rd1, [scheduler]; ld.param.u64 %rd2, [message];
  ld.global.u32 %r0, [%rd0]; setp.eq.u32 %p0, %r0, 0; @%p0 ret;
  sub.u32 %r0, %r0, 1; st.global.u32 [%rd0], %r0;
  STORE
  ret;
}
";
const EXCHANGE: &str = "atom.global.cas.b64 %rd3, [%rd1], 0, %rd2; or.b64 %rd3, %rd3, 7; st.global.u64 [%rd0+8], %rd3;";
const STORE: &str = "st.global.u64 [%rd1], %rd2; st.global.u64 [%rd0+8], 7;";
const WORD: &str = "st.global.u32 [%rd1], %rd2;";

/// Another description of the same kernel.
const OTHER: u64 = QMD + 0x400;
const SEND_PCAS_A: u32 = 0x2b4;
const SEND_SIGNALING_PCAS2_B: u32 = 0x2c0;

/// The other description waits until somebody schedules it.
const HOLD: [(u32, u32); 2] = [(SEND_PCAS_A, (OTHER >> 8) as u32), (SEND_SIGNALING_PCAS2_B, 11)];

/// How often it ran of so many times, how it went wrong, and what came back.
fn run(
    class: u32,
    store: &str,
    scheduler: u64,
    message: u64,
    times: u32,
) -> (u32, Option<Fault>, u64) {
    let space = Shared::new();
    for at in [QMD, OTHER] {
        space.put(at, &rig::description(class, [1, 1, 1, 1, 1, 1, 1024, 0, 16, CODE]));
    }
    space.put(CODE, &[TEXT.replace("STORE", store).as_bytes(), &[0]].concat());
    for (at, parameter) in (0..).step_by(8).zip([DATA, scheduler, message]) {
        space.put(rig::parameters(class) + at, &parameter.to_le_bytes());
    }
    space.put(DATA, &times.to_le_bytes());
    let mut channel = Channel::new(space.clone(), class, &HOLD);
    channel.takes_ptx = true;
    let fault = channel.end(&Clock::new());
    let mut words = [0; 16];
    space.get(DATA, &mut words);
    let [left, back] = [0, 8].map(|at| {
        let word = words[at..].first_chunk().unwrap();
        u64::from_le_bytes(*word)
    });
    (times - left as u32, fault, back)
}

#[test]
fn a_kernel_launches_what_it_stores_into_a_reflected_page() {
    /// SCHEDULE and INVALIDATE_COPY_SCHEDULE, and an action that prefetches.
    const ACTIONS: [(u64, u32); 3] = [(2, 5), (3, 5), (1, 1)];
    for class in CLASSES {
        for (action, expected) in ACTIONS {
            for store in [EXCHANGE, STORE] {
                let message = action << 32 | QMD >> 8;
                let (ran, fault, back) = run(class, store, REFLECTED + 0x40, message, 5);
                let what = format!("{class:#x}, action {action}, {store}: {fault:?}");
                assert_eq!((ran, fault.is_none(), back), (expected, true, 7), "{what}");
            }
        }
    }
}

#[test]
fn what_is_held_is_launched_by_a_kernel_alone() {
    for class in CLASSES {
        // The first alone, and then the other one, which goes on by itself.
        for (message, expected) in [(0, 1), (2 << 32 | OTHER >> 8, 5)] {
            let (ran, fault, _) = run(class, EXCHANGE, REFLECTED, message, 5);
            assert_eq!((ran, fault.is_none()), (expected, true), "{class:#x}: {fault:?}");
        }
    }
}

#[test]
fn what_is_no_message_is_an_error() {
    let message = 2 << 32 | QMD >> 8;
    for (store, at) in [(WORD, REFLECTED), (EXCHANGE, REFLECTED + 0x1000), (STORE, REFLECTED - 8)] {
        let (ran, fault, _) = run(CLASSES[0], store, at, message, 5);
        let is_of_memory = matches!(&fault, Some(fault) if fault.trap().is_some());
        assert!(is_of_memory && ran == 1, "{store} at {at:#x}: {ran}, {fault:?}");
    }
    // No description is there.
    let (ran, fault, _) = run(CLASSES[0], STORE, REFLECTED, 2 << 32 | (DATA + 0x100) >> 8, 5);
    assert!(matches!(fault, Some(Fault::Unsupported(_))) && ran == 1, "{ran}, {fault:?}");
}

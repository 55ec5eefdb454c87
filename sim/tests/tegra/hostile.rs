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

//! Clients that mean harm, or fight with the kernel for other reasons: nobody waits for them, and nothing
//! grows without bound.


use nvabi::call::Ioctl;

use crate::client::*;

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

//! Which methods compute classes have, and the class for data that comes in the stream
//! (`classes/compute/clc6c0.h` to `clcec0.h` and `classes/inline-to-memory/cla140.h` of NVIDIA's open-gpu-doc; of these
//! the open driver has `clc6c0.h`, `clc7c0.h` and `clcdc0.h`).

/// AMPERE_COMPUTE_A and _B, HOPPER_COMPUTE_A, BLACKWELL_COMPUTE_A and _B; ADA_COMPUTE_A has the methods of 0xc7c0.
const AMPERE_A: u32 = 0xc6c0;
const AMPERE_B: u32 = 0xc7c0;
const HOPPER: u32 = 0xcbc0;
const BLACKWELL_A: u32 = 0xcdc0;
const BLACKWELL_B: u32 = 0xcec0;
/// KEPLER_INLINE_TO_MEMORY_B.
const INLINE: u32 = 0xa140;

/// Whether a class has a method. One that is older than the tables has every method up to the last that there can be.
pub(super) fn is_defined(class: u32, method: u32) -> bool {
    let has =
        |rows: &[(u32, u32)]| rows.iter().any(|(first, last)| (*first..=*last).contains(&method));
    match class {
        INLINE => has(&INLINE_METHODS),
        AMPERE_A.. => METHODS
            .iter()
            .any(|(since, until, rows)| (*since..=*until).contains(&class) && has(rows)),
        _ => method < END,
    }
}

/// Behind the last method.
pub(super) const END: u32 = 0x4000;

/// Rows of methods, first and last of each.
type Rows = &'static [(u32, u32)];

/// The first class that has the methods, the last, and which they are.
#[rustfmt::skip]
const METHODS: [(u32, u32, Rows); 8] = [
    (AMPERE_A, u32::MAX, &[
        (0x100, 0x110), (0x130, 0x154), (0x180, 0x190), (0x1b0, 0x1b4), (0x1dc, 0x1e8), (0x1f0, 0x208), (0x210, 0x210),
        (0x21c, 0x23c), (0x244, 0x268), (0x280, 0x288), (0x298, 0x298), (0x2a0, 0x2a4), (0x2b0, 0x2c0), (0x2cc, 0x2cc),
        (0x2e4, 0x2ec), (0x310, 0x310), (0x318, 0x41c), (0x500, 0x53c), (0x790, 0x794), (0x7b0, 0x7b4), (0xd94, 0xd94),
        (0xda0, 0xddc), (0xde4, 0xde4), (0x1288, 0x1288), (0x12a8, 0x12a8), (0x1330, 0x1338), (0x1424, 0x1424),
        (0x1528, 0x1528), (0x1550, 0x1564), (0x1574, 0x157c), (0x1698, 0x1698), (0x1944, 0x1944), (0x1a2c, 0x1a3c),
        (0x1b00, 0x1b0c), (0x25f8, 0x25fc), (0x2608, 0x2608), (0x32f4, 0x33ec), (0x3400, 0x37fc),
    ]),
    (AMPERE_A, HOPPER, &[(0x194, 0x1ac), (0x214, 0x218), (0x29c, 0x29c)]),
    (AMPERE_A, HOPPER - 1, &[(0x270, 0x270), (0x290, 0x290), (0x2a8, 0x2a8)]),
    (AMPERE_B, u32::MAX, &[
        (0x114, 0x124), (0x158, 0x168), (0x1ec, 0x1ec), (0x550, 0x570), (0x7fc, 0x7fc), (0xdec, 0xdec), (0x3800, 0x3ffc),
    ]),
    (AMPERE_B, HOPPER, &[(0x574, 0x574)]),
    // The longer description of a launch, and the version of texture headers.
    (HOPPER, u32::MAX, &[(0x420, 0x49c), (0x7ac, 0x7ac), (0x7b8, 0x7bc)]),
    (BLACKWELL_A, u32::MAX, &[(0x74c, 0x74c), (0x75c, 0x75c), (0xffc, 0xffc)]),
    (BLACKWELL_B, u32::MAX, &[(0x20c, 0x20c), (0xf10, 0xf10), (0x1458, 0x1464), (0x1930, 0x1938)]),
];

const INLINE_METHODS: [(u32, u32); 9] = [
    (0x100, 0x110),
    (0x130, 0x144),
    (0x150, 0x154),
    (0x180, 0x1b4),
    (0x1dc, 0x1e4),
    (0x1f0, 0x27c),
    (0x1550, 0x1558),
    (0x1944, 0x1944),
    (0x3400, 0x37fc),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use nvabi_pipeline::lock;
    use nvabi_pipeline::model::Surface;

    use super::*;

    /// Methods that the headers have in rows: what a launch is, values of counters, scratch memory, macros.
    const IN_ROWS: [(u32, u32); 5] =
        [(0x320, 0x49c), (0xda0, 0xddc), (0x32f4, 0x3330), (0x333c, 0x33d8), (0x3400, 0x3ffc)];

    /// The newest headers in the lock.
    fn headers() -> Surface {
        let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi-specs");
        let (lock, _) = lock::read(&lock::folder(&specs, "")).unwrap();
        let newest = lock.tags.last().unwrap().tag.clone();
        lock.facts(&newest).unwrap().surfaces.remove("rm").unwrap()
    }

    /// A constant of a class is a method if there are fields of it.
    fn methods(headers: &Surface, class: u32) -> BTreeSet<u32> {
        let prefix = format!("NV{class:X}_");
        let names = headers.constants.range(prefix.clone()..);
        let own = names.take_while(|(name, _)| name.starts_with(&prefix));
        let is_method = |name: &str| {
            let fields = format!("{name}_");
            let mut next = headers.bit_ranges.range(fields.clone()..);
            next.next().is_some_and(|(name, _)| name.starts_with(&fields))
        };
        let own = own.filter(|(name, _)| is_method(name));
        own.map(|(_, constant)| u32::try_from(constant.value).unwrap()).collect()
    }

    #[test]
    fn the_driver_has_the_same_headers() {
        let headers = headers();
        for class in [AMPERE_A, AMPERE_B, BLACKWELL_A] {
            let known = methods(&headers, class);
            assert!(known.len() > 100, "{class:#x}: {known:x?}");
            for method in (0x100..END).step_by(4) {
                let in_rows =
                    IN_ROWS.iter().any(|(first, last)| (*first..=*last).contains(&method));
                let is_known = known.contains(&method);
                assert!(
                    in_rows || is_known == is_defined(class, method),
                    "{class:#x}: {method:#x}"
                );
            }
        }
    }

    #[test]
    fn a_class_has_what_its_launches_take() {
        for (class, last) in
            [(AMPERE_A, 0x41c), (0xc9c0, 0x41c), (HOPPER, 0x49c), (BLACKWELL_B, 0x49c)]
        {
            assert!(is_defined(class, last) && !is_defined(class, last + 4), "{class:#x}");
            assert!(!is_defined(class, END), "{class:#x}");
        }
    }
}

//! Sets and messages as bytes.

use nvabi_devmem::wire::{WireError, WriteError, v0, v1};
use nvabi_devmem::{
    Capability, CapabilitySet, Constraint, ConstraintName, Description, Detail, Fourcc, Image,
    Layout, Operation, Plane, Usage, Use,
};

use crate::random::Random;

fn message(random: &mut Random) -> v1::Message {
    let detail = |random: &mut Random| {
        Detail::vendor(random.of(&[0, 0x10de]), 7, random.list(2, |random| random.next() as u32))
    };
    let usage = Usage {
        image: Image::new(random.next() as u32, random.next() as u32, Fourcc(random.next() as u32)),
        uses: random.list(3, |random| Use {
            details: random.list(1, detail),
            ..Use::new(random.of(&["gpu", "g", "kamera ü"]), random.of(&Operation::ALL))
        }),
        details: random.list(1, detail),
    };
    let plane = |random: &mut Random| Plane {
        offset: random.next(),
        pitch: random.next(),
        size: random.next(),
    };
    let layout = (!random.one_in(3)).then(|| Layout {
        modifier: random.next(),
        planes: random.list(3, plane),
        size: random.next(),
    });
    let metadata = random.list(3, |random| {
        (random.of(&["hdr", "", "é"]).to_owned(), random.list(9, |random| random.next() as u8))
    });
    v1::Message { usage, sets: random.sets(3), layout, metadata }
}

#[test]
fn what_is_written_is_read() {
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let set = random.set();
        assert_eq!(v0::read(&v0::write(&set).expect("a set that fits")), Ok(set), "seed {seed}");
        let message = message(&mut random);
        let bytes = v1::write(&message).expect("a message that fits");
        assert_eq!(v1::read(&bytes).as_ref(), Ok(&message), "seed {seed}");
    }
}

/// Each byte of a message counts: whichever is changed or cut off, the message is refused.
#[test]
fn a_changed_message_is_refused() {
    for seed in 0..40 {
        let bytes = v1::write(&message(&mut Random::new(seed))).expect("a message that fits");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            assert!(v1::read(&changed).is_err(), "seed {seed}: byte {at}");
            assert!(v1::read(&bytes[..at]).is_err(), "seed {seed}: cut at {at}");
        }
    }
}

#[test]
fn a_description_is_a_message_of_one_set() {
    let description = Description {
        usage: Usage::new(Image::bytes(4096), vec![Use::new("gpu", Operation::Copy)]),
        set: CapabilitySet::new([], [Capability::pitch_linear()]),
        layout: Layout {
            modifier: 0,
            planes: vec![Plane { offset: 0, pitch: 4096, size: 4096 }],
            size: 4096,
        },
        metadata: vec![("owner".to_owned(), b"test".to_vec())],
    };
    let bytes = description.to_bytes().expect("a description that fits");
    assert_eq!(Description::from_bytes(&bytes), Ok(description.clone()));
    let mut message = v1::read(&bytes).expect("a message");
    message.layout = None;
    let bytes = v1::write(&message).expect("a message that fits");
    assert!(Description::from_bytes(&bytes).is_err());
}

/// The error says where; the checksum is made right so that what is behind it is looked at.
#[test]
fn errors_name_the_byte() {
    let message = v1::Message {
        usage: Usage::new(Image::bytes(1), vec![Use::new("a", Operation::Copy)]),
        sets: vec![CapabilitySet::new(
            [Constraint::new(ConstraintName::MAX_PITCH, 1)],
            [Capability::pitch_linear()],
        )],
        layout: None,
        metadata: vec![("n".to_owned(), vec![7])],
    };
    let bytes = v1::write(&message).expect("a message that fits");
    let with = |at, value| changed(&bytes, at, value);
    let at = |offset, what: &str| WireError { offset, what: what.to_owned() };
    assert_eq!(with(0, b'x'), at(0, "no `nvdm`"));
    assert_eq!(with(4, 2), at(4, "version 2, not 1"));
    assert_eq!(with(6, 1).offset, 4);
    assert_eq!(with(8, 1).offset, 8);
    assert_eq!(with(28, 255), at(32, "255 uses do not fit into the 63 bytes left"));
    assert_eq!(with(32, 99), at(32, "operation 99 is not known"));
    assert_eq!(with(38, 0xff), at(38, "the name of a device is not UTF-8"));
    assert_eq!(with(38, 7), at(38, r"the name `\u{7}` has the control character \u{7}"));
    assert_eq!(with(43, 200).what, "200 constraints do not fit into the 44 bytes left");
    assert_eq!(with(55, 1), at(55, "padding that is not zero"));
    assert_eq!(with(63, 1), at(59, "a value of 32 bits that has more"));
    assert_eq!(with(75, 2), at(75, "neither required nor not"));
    assert_eq!(with(79, 2), at(79, "2 layouts, not 0 or 1"));
}

/// What reading a message says of which one byte was changed, and the sum with it.
fn changed(message: &[u8], at: usize, value: u8) -> WireError {
    let mut changed = message.to_vec();
    changed[at] = value;
    let mut sum = crc32fast::Hasher::new();
    sum.update(&changed[..12]);
    sum.update(&changed[16..]);
    changed[12..16].copy_from_slice(&sum.finalize().to_le_bytes());
    v1::read(&changed).expect_err("an error")
}

#[test]
fn details_are_in_their_place() {
    let detail = |word| Detail::vendor(0x10de, 7, vec![word]);
    let uses = ["a", "b"].map(|device| Use::new(device, Operation::Copy).with(detail(1)));
    let mut message = v1::Message {
        usage: Usage::new(Image::bytes(1), uses.to_vec()),
        sets: Vec::new(),
        layout: None,
        metadata: Vec::new(),
    };
    let whole = v1::write(&message).expect("a message that fits");
    message.usage.uses.iter_mut().for_each(|each| each.details.clear());
    let plain = v1::write(&message).expect("a message that fits").len();
    // 4 bytes of a count, and 16 of each.
    assert_eq!(whole.len(), plain + 4 + 2 * 16);
    let with = |at, value| changed(&whole, at, value);
    let at = |offset, what: &str| WireError { offset, what: what.to_owned() };
    let (first, second) = (plain + 4, plain + 4 + 16);
    assert_eq!(with(plain, 0), at(plain, "a list of no details"));
    assert_eq!(with(first, 9), at(first, "a detail of a use that is not there"));
    assert_eq!(with(second, 0), at(second, "a detail that is not in its place"));
}

#[test]
fn counts_are_checked_before_anything_is_allocated() {
    let mut bytes = vec![0xff; 8];
    bytes.extend([0; 64]);
    assert_eq!(v0::read(&bytes).expect_err("too many").offset, 8);
    assert_eq!(v0::read(&[0; 7]).expect_err("too short").offset, 0);
    assert_eq!(
        v0::read(&[0; 9]),
        Err(WireError { offset: 8, what: "1 bytes are left over".to_owned() })
    );
}

#[test]
fn what_does_not_fit_is_not_written() {
    let wide = Constraint::new(ConstraintName::MAX_PITCH, 1 << 32);
    let set = CapabilitySet::new([wide], [Capability::pitch_linear()]);
    assert_eq!(v0::write(&set), Err(WriteError::Wide(0)));
    let set = CapabilitySet::new([], [Capability::new(1, 1, vec![0; 65_536])]);
    assert_eq!(v0::write(&set), Err(WriteError::Payload(0)));
    let usage = Usage::new(Image::bytes(1), vec![Use::new("", Operation::Copy)]);
    let nobody = v1::Message { usage, sets: Vec::new(), layout: None, metadata: Vec::new() };
    assert_eq!(v1::write(&nobody).expect_err("no name").to_string(), "the device has no name");
}

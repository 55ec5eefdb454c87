//! The second argument of `ioctl`, in every form that strace writes it.

use memchr::memmem;

use super::line::leading;
use super::words::WORDS;

/// The direction bits of a request.
const WRITE: u32 = 1;
const READ: u32 = 2;

/// A request as the log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said<'a> {
    /// The number.
    Number(u32),
    /// Names that strace knows the number by, of whatever driver: `SNDCTL_TMR_STOP or TCSETSW`.
    Words(&'a [u8]),
}

/// The request at the start of a text, and what follows it.
pub(crate) fn parse(text: &[u8]) -> Option<(Said<'_>, &[u8])> {
    let (number, rest) = match leading(text) {
        // A raw argument may be as wide as a register.
        Some((number, rest)) => (number as u32, rest),
        None => match built(text) {
            Some(found) => found,
            None => return words(text),
        },
    };
    // `-X verbose` adds the names, and older releases others of the same number.
    let rest = match rest.strip_prefix(b" /*") {
        Some(named) => memmem::find(named, b"*/").map_or(&b""[..], |at| &named[at + 2..]),
        None if rest.starts_with(b" or ") => words(rest)?.1,
        None => rest,
    };
    Some((Said::Number(number), rest))
}

/// `_IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0, 0x8)`, `_IOWR('N', 0, 8)`.
fn built(text: &[u8]) -> Option<(u32, &[u8])> {
    let open = text.iter().position(|b| *b == b'(')?;
    let (name, mut rest) = (&text[..open], &text[open + 1..]);
    let dir = match name {
        b"_IOC" => {
            let end = rest.iter().position(|b| *b == b',')?;
            let dir = direction(&rest[..end]);
            rest = &rest[end + 1..];
            dir
        }
        b"_IO" => 0,
        b"_IOR" => READ,
        b"_IOW" => WRITE,
        b"_IOWR" => READ | WRITE,
        _ => return None,
    };
    let (magic, rest) = part(rest)?;
    let (nr, rest) = part(rest.strip_prefix(b",")?)?;
    let (size, rest) = match rest.strip_prefix(b",") {
        Some(rest) => part(rest)?,
        None => (0, rest),
    };
    Some((
        dir << 30 | (size & 0x3fff) << 16 | (magic & 0xff) << 8 | nr & 0xff,
        rest.strip_prefix(b")")?,
    ))
}

fn direction(text: &[u8]) -> u32 {
    let has = |name: &[u8]| memmem::find(text, name).is_some();
    match leading(text) {
        Some((bits, _)) => bits as u32 & (READ | WRITE),
        None => u32::from(has(b"_IOC_WRITE")) * WRITE + u32::from(has(b"_IOC_READ")) * READ,
    }
}

/// A number or a character in quotes.
fn part(text: &[u8]) -> Option<(u32, &[u8])> {
    let text = text.trim_ascii_start();
    match text {
        [b'\'', letter, b'\'', rest @ ..] => Some(((*letter).into(), rest)),
        _ => leading(text).map(|(value, rest)| (value as u32, rest)),
    }
}

/// Names up to the comma that ends the argument.
fn words(text: &[u8]) -> Option<(Said<'_>, &[u8])> {
    let mut depth = 0;
    let end = text.iter().position(|byte| {
        match byte {
            b'(' => depth += 1,
            b')' if depth > 0 => depth -= 1,
            b')' | b',' => return depth == 0,
            _ => {}
        }
        false
    });
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let name = name.trim_ascii();
    let is_name = name.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_');
    is_name.then_some((Said::Words(name), rest))
}

/// The numbers that strace's names may stand for; most have one.
pub(crate) fn numbers(words: &str) -> impl Iterator<Item = u32> {
    words.split(" or ").flat_map(|word| {
        let from = WORDS.partition_point(|(known, _)| *known < word);
        WORDS[from..].iter().take_while(move |(known, _)| *known == word).map(|(_, number)| *number)
    })
}

/// The name that Linux itself has for a request of direct rendering.
pub(crate) fn drm_core() -> impl Iterator<Item = (&'static str, u32)> {
    let is_core =
        |number: u32| number >> 8 & 0xff == 0x64 && !(0x40..0xa0).contains(&(number & 0xff));
    WORDS.iter().copied().filter(move |(name, number)| name.starts_with("DRM_") && is_core(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Said<'_> {
        parse(text.as_bytes()).unwrap().0
    }

    #[test]
    fn every_form_of_one_request() {
        for text in [
            "_IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0, 0x8), 0x7ffc",
            "_IOC(_IOC_READ|_IOC_WRITE, 'N', 0, 8), 0x7ffc",
            "_IOC(0x3, 0x4e, 0, 0x8), 0x7ffc",
            "_IOWR('N', 0, 8), 0x7ffc",
            "0xc0084e00, 0x7ffc",
            "0xffffffffc0084e00, 0x7ffc",
            "3221769728, 0x7ffc",
            "0xc0084e00 /* NVMAP_IOC_CREATE */, 0x7ffc",
            "_IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0, 0x8) or SOMETHING(8), 0x7ffc",
        ] {
            let (said, rest) = parse(text.as_bytes()).unwrap();
            assert_eq!(said, Said::Number(0xc008_4e00), "{text}");
            assert_eq!(rest, b", 0x7ffc", "{text}");
        }
        assert_eq!(said("_IOC(_IOC_NONE, 0, 0x1, 0x3000), 0"), Said::Number(0x3000_0001));
        assert_eq!(said("_IO('T', 3)"), Said::Number(0x5403));
    }

    #[test]
    fn names_stay_names() {
        assert_eq!(
            said("SNDCTL_TMR_STOP or TCSETSW, NULL"),
            Said::Words(b"SNDCTL_TMR_STOP or TCSETSW")
        );
        assert_eq!(said("HIDIOCSFEATURE(16), 0"), Said::Words(b"HIDIOCSFEATURE(16)"));
        assert!(parse(b"\xff\xfe, 0").is_none());
        assert!(parse(b"").is_none());
    }

    #[test]
    fn foreign_names_give_the_number() {
        let numbers = |words| numbers(words).collect::<Vec<_>>();
        assert_eq!(numbers("SNDCTL_TMR_STOP or TCSETSW"), [0x5403, 0x5403]);
        assert_eq!(numbers("FIBMAP"), [1]);
        assert!(numbers("NO_SUCH_NAME").is_empty());
        assert!(WORDS.is_sorted());
    }
}

//! Lines of a reader of any length: nothing is kept but the end of the block that was read last.

use std::io::{self, BufRead};
use std::ops::ControlFlow;

use memchr::memchr;

/// What is kept of a line that is longer than any of strace's.
const LONGEST: usize = 1 << 20;
/// A line may have no end: nothing is read behind this much of it.
const ENDLESS: usize = 64 * LONGEST;

/// Calls `on_line` with each line, without its newline, until it wants no more.
pub(crate) fn each(
    mut log: impl BufRead,
    mut on_line: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut begun: Vec<u8> = Vec::new();
    let mut is_begun = false;
    let mut len_of_begun = 0;
    loop {
        let block = match log.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            block => block?,
        };
        let len = block.len();
        if len == 0 {
            if is_begun {
                // Nothing comes after it.
                let _ = on_line(&begun);
            }
            return Ok(());
        }
        let mut rest = block;
        while let Some(end) = memchr(b'\n', rest) {
            let next = match is_begun {
                true => {
                    keep(&mut begun, &rest[..end]);
                    let next = on_line(&begun);
                    begun.clear();
                    (is_begun, len_of_begun) = (false, 0);
                    next
                }
                false => on_line(&rest[..end]),
            };
            if next.is_break() {
                return Ok(());
            }
            rest = &rest[end + 1..];
        }
        if !rest.is_empty() {
            keep(&mut begun, rest);
            is_begun = true;
            len_of_begun += rest.len();
            if len_of_begun > ENDLESS {
                let message = format!("a line of it has more than {} MiB", ENDLESS >> 20);
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        }
        log.consume(len);
    }
}

fn keep(line: &mut Vec<u8>, more: &[u8]) {
    let room = LONGEST.saturating_sub(line.len());
    line.extend_from_slice(&more[..more.len().min(room)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn lines(text: &[u8], block: usize) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        each(BufReader::with_capacity(block, text), |line| {
            lines.push(line.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
        lines
    }

    #[test]
    fn blocks_of_any_size_give_the_same_lines() {
        let text = b"one\n\ntwo \xff\nthree";
        for block in 1..24 {
            assert_eq!(lines(text, block), [&b"one"[..], b"", b"two \xff", b"three"], "{block}");
        }
        assert!(lines(b"", 4).is_empty());
    }

    #[test]
    fn a_line_without_an_end_takes_bounded_room() {
        let long = vec![b'x'; 3 * LONGEST];
        assert_eq!(lines(&long, 4096)[0].len(), LONGEST);
        let endless = BufReader::new(io::Read::take(io::repeat(0), ENDLESS as u64 * 2));
        let read = each(endless, |_| ControlFlow::Continue(()));
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn reading_ends_when_enough_is_known() {
        let mut lines = 0;
        let read = each(BufReader::new(io::Cursor::new("one\n".repeat(9))), |_| {
            lines += 1;
            if lines == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((read.is_ok(), lines), (true, 2));
    }
}

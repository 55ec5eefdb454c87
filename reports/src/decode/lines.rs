//! Lines of a reader of any length: nothing is kept but the end of the block that was read last.

use std::io::{self, BufRead};

use memchr::memchr;

/// What is kept of a line that is longer than any of strace's.
const LONGEST: usize = 1 << 20;

/// Calls `on_line` with each line, without its newline.
pub(crate) fn each(mut log: impl BufRead, mut on_line: impl FnMut(&[u8])) -> io::Result<()> {
    let mut begun: Vec<u8> = Vec::new();
    let mut is_begun = false;
    loop {
        let block = match log.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            block => block?,
        };
        let len = block.len();
        if len == 0 {
            if is_begun {
                on_line(&begun);
            }
            return Ok(());
        }
        let mut rest = block;
        while let Some(end) = memchr(b'\n', rest) {
            match is_begun {
                true => {
                    keep(&mut begun, &rest[..end]);
                    on_line(&begun);
                    begun.clear();
                    is_begun = false;
                }
                false => on_line(&rest[..end]),
            }
            rest = &rest[end + 1..];
        }
        if !rest.is_empty() {
            keep(&mut begun, rest);
            is_begun = true;
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
        each(BufReader::with_capacity(block, text), |line| lines.push(line.to_vec())).unwrap();
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
    }
}

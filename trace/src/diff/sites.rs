//! Sites that have another key in the other trace, because their lines moved.

use std::path::Path;

use rustc_hash::FxHashMap;

use crate::error::{Error, Problem};

/// Reads a list of sites: on each line the key in A and the key in B, as `0x…` or in decimal; `#`
/// begins a comment.
///
/// # Errors
///
/// When a line is no pair of keys, or a site has two; the error names the line of `path`.
pub fn site_map(path: &Path, text: &str) -> Result<FxHashMap<u64, u64>, Error> {
    let mut sites = FxHashMap::default();
    for (number, line) in (1..).zip(text.lines()) {
        let fail = |why| Error::new(path, 0, Problem::Map { line: number, why });
        let keys = line.split('#').next().unwrap_or_default().split_whitespace();
        let keys: Vec<u64> = keys
            .map(key)
            .collect::<Option<_>>()
            .ok_or_else(|| fail("a key is a number, such as 0x1f or 31"))?;
        match keys[..] {
            [] => {}
            [a, b] => match sites.insert(a, b) {
                Some(other) if other != b => return Err(fail("the site has another key already")),
                _ => {}
            },
            _ => return Err(fail("a line has two keys: the one in A and the one in B")),
        }
    }
    Ok(sites)
}

fn key(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_two_keys_a_line() {
        let sites = site_map(Path::new("m"), "# moved\n0x10 17\n\n  18 0x12 # by two\n").unwrap();
        assert_eq!((sites.len(), sites[&16], sites[&18]), (2, 17, 18));
        for (text, told) in [
            ("1 2\n3", "m:2: a line has two keys: the one in A and the one in B"),
            ("1 x", "m:1: a key is a number, such as 0x1f or 31"),
            ("1 2\n1 3", "m:2: the site has another key already"),
        ] {
            assert_eq!(site_map(Path::new("m"), text).unwrap_err().to_string(), told);
        }
    }
}

//! Which programs make a call: what `tests/real/seen.py` saw on the simulated driver.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use super::html::Esc;

/// A line for each call and program: `NAME PROGRAM VERSION…`.
const LIST: &str = include_str!("seen.list");

/// A program, and its versions from old to new.
type User = (&'static str, Vec<&'static str>);

static USERS: LazyLock<BTreeMap<&'static str, Vec<User>>> = LazyLock::new(|| {
    let mut users: BTreeMap<_, Vec<User>> = BTreeMap::new();
    for line in LIST.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        if let (Some(name), Some(program)) = (words.next(), words.next()) {
            users.entry(name).or_default().push((program, words.collect()));
        }
    }
    users
});

/// `Seen in use by nvidia-smi (525.147.05 – 555.58.02), tinygrad (570.86.16).` as a paragraph; nothing where no
/// program makes the call.
pub(super) fn paragraph(body: &mut String, call: &str) {
    let Some(users) = USERS.get(call) else { return };
    body.push_str("<p class=m>Seen in use by ");
    for (at, (program, versions)) in users.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _ = write!(body, "{comma}{}", Esc(program));
        let _ = match versions.as_slice() {
            [] => Ok(()),
            [only] => write!(body, " ({})", Esc(only)),
            [first, .., last] => write!(body, " ({} – {})", Esc(first), Esc(last)),
        };
    }
    body.push_str(".\n");
}

//! One line of a log of strace, taken apart. It borrows from the line and knows no state.

use memchr::memmem;
use memchr::{memchr, memchr_iter, memrchr, memrchr_iter};

/// A pid on Linux is never above this; a larger number before a call is a time.
const PID_MAX: u64 = 1 << 22;

/// A line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Who made the call, where the log says so.
    pub(crate) pid: Option<u32>,
    /// What stands behind pid and time.
    pub(crate) event: Event<'a>,
}

/// What a line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// A call, or its beginning.
    Call(Call<'a>),
    /// `<... ioctl resumed>`: the end of a call that began on another line.
    Resumed { name: &'a [u8], rest: &'a [u8], result: Result<'a> },
    /// The process is gone.
    Exit,
    /// `strace: Process 12 attached`, which may cut a call's line in two: what stood before it.
    Attached { pid: u32, before: &'a [u8] },
    /// The end of a line that was cut so.
    Continued { rest: &'a [u8], result: Result<'a> },
    /// A signal, or a word of strace's own.
    Note,
    /// An empty line.
    Blank,
    /// No line of strace's.
    Other(&'a [u8]),
}

/// A system call as one line has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    /// Such as `ioctl`.
    pub(crate) name: &'a [u8],
    /// What stands between the brackets, as far as the line goes.
    pub(crate) args: &'a [u8],
    /// How it ended.
    pub(crate) result: Result<'a>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Result<'a> {
    /// A number came back, and with `-y` what it is the file descriptor of.
    Done { value: i64, path: Option<&'a [u8]> },
    /// `-1` and an error: its name, or digits where strace shows no name.
    Failed(&'a [u8]),
    /// `?`: nothing came back, as of `exit` or of a call that a signal cut short.
    Nothing,
    /// `<unfinished ...>`: the end is on a later line.
    Unfinished,
    /// The line ends before the result does.
    Cut,
}

/// Takes a line apart; it has no newline any more.
pub(crate) fn parse(line: &[u8]) -> Line<'_> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (pid, rest) = prefix(line);
    Line { pid, event: event(rest) }
}

fn event(rest: &[u8]) -> Event<'_> {
    match rest.first() {
        None => return Event::Blank,
        Some(b'-') if rest.starts_with(b"--- ") => return signal(rest),
        Some(b'+') if rest.starts_with(b"+++ ") => return exit(rest),
        Some(b'<') if rest.starts_with(b"<... ") => return resumed(rest),
        Some(b',' | b')' | b'<') => return continued(rest),
        _ => {}
    }
    let end = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'));
    let end = end.unwrap_or(rest.len());
    if end == 0 || rest[0].is_ascii_digit() || rest.get(end) != Some(&b'(') {
        return word(rest);
    }
    let (args, result) = match attached(&rest[end + 1..]) {
        Some((before, pid)) => return Event::Attached { pid, before: &rest[..end + 1 + before] },
        None => ended(&rest[end + 1..]),
    };
    Event::Call(Call { name: &rest[..end], args, result })
}

/// `--- SIGCHLD {si_signo=SIGCHLD, …} ---`, `--- stopped by SIGSTOP ---`; a diff has such lines too.
fn signal(rest: &[u8]) -> Event<'_> {
    let known = [&b"--- SIG"[..], b"--- stopped by "];
    match known.iter().any(|words| rest.starts_with(words)) {
        true => Event::Note,
        false => Event::Other(rest),
    }
}

/// `+++ exited with 0 +++`, `+++ killed by SIGKILL +++`; a superseded one lives on.
fn exit(rest: &[u8]) -> Event<'_> {
    let gone = [&b"+++ exited with "[..], b"+++ killed by "];
    match gone.iter().any(|words| rest.starts_with(words)) {
        true => Event::Exit,
        false if rest.starts_with(b"+++ superseded by ") => Event::Note,
        false => Event::Other(rest),
    }
}

fn resumed(rest: &[u8]) -> Event<'_> {
    let named = &rest[b"<... ".len()..];
    let Some(at) = memmem::find(named, b" resumed>") else { return Event::Other(rest) };
    let (rest, result) = ended(&named[at + b" resumed>".len()..]);
    Event::Resumed { name: &named[..at], rest, result }
}

fn continued(rest: &[u8]) -> Event<'_> {
    match ended(rest) {
        (_, Result::Cut) => Event::Other(rest),
        (rest, result) => Event::Continued { rest, result },
    }
}

/// What is neither a call nor a signal.
fn word(rest: &[u8]) -> Event<'_> {
    match attached(rest) {
        Some((0, pid)) => Event::Attached { pid, before: b"" },
        _ if rest.starts_with(b"strace: ") => Event::Note,
        _ => Event::Other(rest),
    }
}

/// Where `strace: Process 12 attached` ends the line, and the pid in it.
fn attached(text: &[u8]) -> Option<(usize, u32)> {
    const WORDS: &[u8] = b"strace: Process ";
    let before = text.strip_suffix(b" attached")?;
    let at = memmem::rfind(before, WORDS)?;
    let pid = number(&before[at + WORDS.len()..])?;
    Some((at, u32::try_from(pid).ok()?))
}

/// Pid and time before a call: the pid, and what comes behind them.
fn prefix(line: &[u8]) -> (Option<u32>, &[u8]) {
    let (mut pid, mut rest) = (None, line);
    loop {
        rest = &rest[rest.iter().take_while(|b| **b == b' ').count()..];
        let Some((token, after)) = token(rest) else { return (pid, rest) };
        if pid.is_none() {
            pid = pid_of(token);
        }
        rest = after;
    }
}

/// A token before the call: a number with `.` or `:` in it, or something in brackets.
fn token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    match text.first()? {
        b'[' => {
            let end = memchr(b']', &text[..text.len().min(64)])?;
            Some((&text[..=end], &text[end + 1..]))
        }
        // `-tt -r` writes `(+     0.000607)`.
        b'(' if text.starts_with(b"(+") => {
            let end = memchr(b')', text)?;
            Some((&text[..=end], &text[end + 1..]))
        }
        b'0'..=b'9' => {
            let end = text.iter().position(|b| !matches!(b, b'0'..=b'9' | b'.' | b':'))?;
            let end = match text[end] {
                b' ' => end,
                // With `-Y` the name of the program stands behind the pid.
                b'<' => end + memchr(b'>', &text[end..text.len().min(end + 64)])? + 1,
                _ => return None,
            };
            Some((&text[..end], &text[end..]))
        }
        _ => None,
    }
}

fn pid_of(token: &[u8]) -> Option<u32> {
    let digits = match token.strip_prefix(b"[pid ") {
        Some(rest) => {
            let rest = &rest[rest.iter().take_while(|b| **b == b' ').count()..];
            &rest[..rest.iter().take_while(|b| b.is_ascii_digit()).count()]
        }
        None => {
            let end = memchr(b'<', token).unwrap_or(token.len());
            &token[..end]
        }
    };
    let pid = number(digits).filter(|pid| *pid <= PID_MAX)?;
    u32::try_from(pid).ok()
}

/// Splits what follows the opening bracket into arguments and result.
fn ended(text: &[u8]) -> (&[u8], Result<'_>) {
    if let Some(args) = text.strip_suffix(b"<unfinished ...>") {
        return (args, Result::Unfinished);
    }
    // From the end, as strings among the arguments may have the same signs in them.
    for at in memrchr_iter(b'=', text) {
        let before = text[..at].trim_ascii_end();
        let (Some(args), Some(rest)) = (before.strip_suffix(b")"), text.get(at + 1..)) else {
            continue;
        };
        if let Some(result) = rest.strip_prefix(b" ").and_then(result) {
            return (args, result);
        }
    }
    (text, Result::Cut)
}

/// `3</dev/null>`, `-1 ENOTTY (…)`, `?`, with or without the time that it took.
fn result(rest: &[u8]) -> Option<Result<'_>> {
    if rest.first() == Some(&b'?') {
        return Some(Result::Nothing);
    }
    let (negative, digits) = match rest.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (value, rest) = leading(digits)?;
    if negative {
        return Some(Result::Failed(error(rest)));
    }
    let path = rest.strip_prefix(b"<").and_then(|_| path_of(rest)).map(|(path, _)| path);
    // An address is no fd, and its sign does not matter.
    Some(Result::Done { value: value as i64, path })
}

/// ` ENOTTY (Inappropriate …)`, or ` (errno 25)`.
fn error(rest: &[u8]) -> &[u8] {
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix(b"(errno ").unwrap_or(rest);
    let end = rest.iter().position(|b| !b.is_ascii_alphanumeric()).unwrap_or(rest.len());
    match end {
        0 => b"?",
        _ => &rest[..end],
    }
}

/// The path in `</dev/nvmap>` or `</dev/nvmap<char 10:58>>`, and what follows.
pub(crate) fn path_of(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_prefix(b"<")?;
    let ends =
        |at: &usize| matches!(inner.get(at + 1), None | Some(b',' | b')' | b' ' | b'(' | b']'));
    let end = memchr_iter(b'>', inner).find(ends)?;
    let path = &inner[..end];
    let path = &path[..memchr(b'<', path).unwrap_or(path.len())];
    Some((path, &inner[end + 1..]))
}

/// Number, path, and what follows.
type Fd<'a> = (i64, Option<&'a [u8]>, &'a [u8]);

/// A file descriptor at the start of arguments: its number, its path with `-y`, what follows.
pub(crate) fn fd(args: &[u8]) -> Option<Fd<'_>> {
    let (value, rest) = signed(args)?;
    match path_of(rest) {
        Some((path, rest)) => Some((value, Some(path), rest)),
        None => Some((value, None, rest)),
    }
}

/// A decimal or hexadecimal number, which may be below zero.
pub(crate) fn signed(text: &[u8]) -> Option<(i64, &[u8])> {
    match text.strip_prefix(b"-") {
        Some(rest) => leading(rest).map(|(value, rest)| ((value as i64).wrapping_neg(), rest)),
        // A raw argument is as wide as a register: 0xffffff9c is -100.
        None => leading(text).map(|(value, rest)| match text.starts_with(b"0x") {
            true if value <= u64::from(u32::MAX) => (i64::from(value as u32 as i32), rest),
            _ => (value as i64, rest),
        }),
    }
}

/// The number that a text starts with: decimal, `0x4e`.
pub(crate) fn leading(text: &[u8]) -> Option<(u64, &[u8])> {
    let (digits, radix) = match text.strip_prefix(b"0x") {
        Some(rest) => (rest, 16),
        None => (text, 10),
    };
    let mut value = 0u64;
    let mut len = 0;
    for digit in digits.iter().map_while(|b| char::from(*b).to_digit(radix)) {
        value = value.checked_mul(radix.into())?.checked_add(digit.into())?;
        len += 1;
    }
    (len > 0).then(|| (value, &digits[len..]))
}

/// A text that is a number and nothing else.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    leading(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// The arguments behind the next comma.
pub(crate) fn next(args: &[u8]) -> Option<&[u8]> {
    let at = memmem::find(args, b", ")?;
    Some(&args[at + 2..])
}

/// What stands in the first quotes, as it stands there, and what follows.
pub(crate) fn quoted(args: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = &args[memchr(b'"', args)? + 1..];
    let mut from = 0;
    loop {
        let end = from + memchr(b'"', &inner[from..])?;
        let slashes = inner[..end].iter().rev().take_while(|b| **b == b'\\').count();
        if slashes % 2 == 0 {
            return Some((&inner[..end], &inner[end + 1..]));
        }
        from = end + 1;
    }
}

/// Whether flags have a name in them, or with `-X raw` its bit.
pub(crate) fn has_flag(args: &[u8], name: &[u8], bit: u64) -> bool {
    if memmem::find(args, name).is_some() {
        return true;
    }
    let flags = memmem::find(args, b"flags=").map_or_else(
        || memrchr(b' ', args).map_or(args, |at| &args[at + 1..]),
        |at| &args[at + b"flags=".len()..],
    );
    flags.starts_with(b"0x") && leading(flags).is_some_and(|(value, _)| value & bit != 0)
}

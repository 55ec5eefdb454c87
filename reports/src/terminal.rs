//! Text for a terminal: columns, and letters that command nothing.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// A line with its control characters spelled out: a name that a program, a plugin or a file chose
/// must neither end the line nor command the terminal.
pub fn line(text: &str) -> Cow<'_, str> {
    spelled(text, b"")
}

/// The same for several lines, which may have tabs.
pub fn lines(text: &str) -> Cow<'_, str> {
    spelled(text, b"\n\t")
}

fn spelled<'t>(text: &'t str, kept: &[u8]) -> Cow<'t, str> {
    if !may_command(text, kept) {
        return text.into();
    }
    let mut spelled = String::with_capacity(text.len());
    for letter in text.chars() {
        match commands(letter) {
            true if !kept.iter().any(|kept| letter == char::from(*kept)) => {
                spelled.extend(letter.escape_default());
            }
            _ => spelled.push(letter),
        }
    }
    spelled.into()
}

/// Of most texts the bytes tell: what commands beyond ASCII begins with one of these.
fn may_command(text: &str, kept: &[u8]) -> bool {
    let suspect = |byte: u8| {
        byte.is_ascii_control() && !kept.contains(&byte)
            || matches!(byte, 0xc2 | 0xd8 | 0xdb | 0xdc | 0xe0..=0xe2 | 0xef | 0xf0 | 0xf3)
    };
    text.bytes().any(suspect)
}

/// Controls, and what is no letter that is seen.
fn commands(letter: char) -> bool {
    // Nearly all letters.
    if letter.is_ascii_graphic() || letter == ' ' {
        return false;
    }
    letter.is_control() || FORMATS.iter().any(|(first, last)| (*first..=*last).contains(&letter))
}

/// Unicode's categories Cf, Zl and Zp (16.0): letters that nobody sees, that make others stand in another order than
/// they are, or that end a line. nvabi-devmem refuses the same in names.
const FORMATS: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// A value as JSON over several lines. What commands the terminal in a text of it is escaped, as JSON can.
///
/// # Errors
///
/// When it cannot be written.
pub fn json(out: impl Write, value: &impl Serialize) -> io::Result<()> {
    let formatter = Spelled(PrettyFormatter::new());
    Ok(value.serialize(&mut Serializer::with_formatter(out, formatter))?)
}

/// The same in one line.
///
/// # Errors
///
/// When it cannot be written.
pub fn json_line(out: impl Write, value: &impl Serialize) -> io::Result<()> {
    let formatter = Spelled(CompactFormatter);
    Ok(value.serialize(&mut Serializer::with_formatter(out, formatter))?)
}

/// Another's form, with letters of texts escaped that command.
struct Spelled<F>(F);

impl<F: Formatter> Formatter for Spelled<F> {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        if !may_command(text, b"") {
            return out.write_all(text.as_bytes());
        }
        for part in text.split_inclusive(commands) {
            let Some(letter) = part.chars().next_back().filter(|letter| commands(*letter)) else {
                out.write_all(part.as_bytes())?;
                continue;
            };
            out.write_all(&part.as_bytes()[..part.len() - letter.len_utf8()])?;
            for unit in letter.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

/// How wide a column is: as its widest cell, but for cells wider than `limit`, which stick out.
///
/// A program, a plugin or a log can make a cell as long as it likes: that one does not push all others
/// off the screen, nor is the width more than a format takes (65,535).
pub fn width<'c>(cells: impl IntoIterator<Item = &'c str>, limit: usize) -> usize {
    let widths = cells.into_iter().map(|cell| cell.chars().count());
    widths.filter(|width| *width <= limit).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{json, json_line, line, lines, width};

    #[test]
    fn control_characters_are_spelled_out() {
        assert_eq!(line("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(lines("a\u{1b}[2J\n\tb\u{9b}"), "a\\u{1b}[2J\n\tb\\u{9b}");
        assert_eq!(line("größe – ↕ ©"), "größe – ↕ ©");
    }

    /// What is shown in another order than it is read can look like anything.
    #[test]
    fn letters_stand_in_their_order() {
        let letters = "\u{202a}\u{202e}\u{2066}\u{2069}\u{200f}\u{61c}\u{2028}";
        let unseen = "\u{ad}\u{6dd}\u{70f}\u{891}\u{180e}\u{200b}\u{feff}\u{110bd}\u{e0041}";
        for letter in letters.chars().chain(unseen.chars()) {
            assert_eq!(line(&format!("a{letter}b")), format!("a\\u{{{:x}}}b", u32::from(letter)));
        }
    }

    #[test]
    fn json_is_spelled_out_and_read_back() {
        let value =
            serde_json::json!({ "a\u{202e}b": ["größe", "\u{9b}2J\n", 1, {}], "c": "\u{2028}" });
        let (mut whole, mut one) = (Vec::new(), Vec::new());
        json(&mut whole, &value).unwrap();
        json_line(&mut one, &value).unwrap();
        let plain = |text: String| {
            let spelled = [("\u{202e}", "\\u202e"), ("\u{9b}", "\\u009b"), ("\u{2028}", "\\u2028")];
            spelled.iter().fold(text, |text, (raw, spelled)| text.replace(raw, spelled))
        };
        // As it is without, but for the letters.
        assert_eq!(String::from_utf8(one.clone()).unwrap(), plain(value.to_string()));
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(String::from_utf8(whole).unwrap(), plain(pretty));
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&one).unwrap(), value);
    }

    #[test]
    fn a_long_cell_sticks_out() {
        let long = "x".repeat(70_000);
        assert_eq!(width(["ab", long.as_str(), "größe"], 64), 5);
        assert_eq!(width([], 64), 0);
    }
}

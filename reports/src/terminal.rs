//! Text for a terminal: columns, and letters that command nothing.

use std::borrow::Cow;

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
    // Of most texts the bytes tell: what commands beyond ASCII begins with one of these.
    let suspect = |byte: u8| {
        byte.is_ascii_control() && !kept.contains(&byte) || matches!(byte, 0xc2 | 0xd8 | 0xe2)
    };
    if !text.bytes().any(suspect) {
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

/// Controls; what ends a line elsewhere; and what makes letters stand in another order than they are.
fn commands(letter: char) -> bool {
    // Nearly all letters.
    if letter.is_ascii_graphic() || letter == ' ' {
        return false;
    }
    const LINES: [char; 2] = ['\u{2028}', '\u{2029}'];
    let marks = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}');
    let orders = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    letter.is_control() || LINES.contains(&letter) || marks || orders
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
    use super::{line, lines, width};

    #[test]
    fn control_characters_are_spelled_out() {
        assert_eq!(line("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(lines("a\u{1b}[2J\n\tb\u{9b}"), "a\\u{1b}[2J\n\tb\\u{9b}");
        assert_eq!(line("größe – ↕ ©"), "größe – ↕ ©");
    }

    /// What is shown in another order than it is read can look like anything.
    #[test]
    fn letters_stand_in_their_order() {
        for letter in "\u{202a}\u{202e}\u{2066}\u{2069}\u{200f}\u{61c}\u{2028}".chars() {
            assert_eq!(line(&format!("a{letter}b")), format!("a\\u{{{:x}}}b", u32::from(letter)));
        }
    }

    #[test]
    fn a_long_cell_sticks_out() {
        let long = "x".repeat(70_000);
        assert_eq!(width(["ab", long.as_str(), "größe"], 64), 5);
        assert_eq!(width([], 64), 0);
    }
}

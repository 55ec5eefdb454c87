//! A diff as Markdown, for a pull request.

use std::fmt::Write as _;

use super::text::{Block, blocks, summary, title};
use super::{Class, Diff};

/// The whole diff: what is harmless is folded away.
pub fn markdown(diff: &Diff) -> String {
    let mut text = format!("**{}**\n", summary(diff));
    let advice = super::advice(diff);
    for class in [Class::Break, Class::Meaning, Class::Harmless] {
        let blocks = blocks(diff, class);
        if blocks.is_empty() {
            continue;
        }
        let (head, what) = title(class);
        match class {
            Class::Harmless => {
                let _ = write!(text, "\n<details><summary>{head}: {what}</summary>\n");
            }
            _ => {
                let _ = write!(text, "\n### {head}\n\n{}\n", capital(what));
            }
        }
        let blocks: Vec<String> = blocks.iter().map(Block::text).collect();
        let _ = write!(text, "\n```text\n{}```\n", blocks.join("\n"));
        if class == Class::Harmless {
            text.push_str("\n</details>\n");
        }
    }
    if !advice.is_empty() {
        text.push_str("\n### A shim must\n\n");
        for advice in advice {
            let _ = writeln!(text, "- `{}`: {}", advice.subject, advice.what);
        }
    }
    text
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(rest).chain(['.']).collect()
}

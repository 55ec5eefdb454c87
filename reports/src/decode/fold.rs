//! Sequences with what repeats folded: `A B B A B B A B B` is 3 × (A, 2 × B).
//!
//! Symbols come one at a time and nothing is kept twice, so a loop of any length takes the room of
//! its body.

use rustc_hash::FxHashMap;

/// What is folded: an index of the caller's, or of a group made here.
pub(crate) type Symbol = u32;

/// The longest body of a loop that is found.
const LONGEST: usize = 48;
/// Steps that are kept; more come from logs in which nothing repeats.
const KEPT: usize = 2048;
/// Symbols from here on are groups.
const GROUPS: Symbol = 1 << 31;

/// A symbol, how often it stands in a row, and the line it began on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    symbol: Symbol,
    count: u64,
    first: u64,
}

impl Step {
    fn same(&self, other: &Self) -> bool {
        (self.symbol, self.count) == (other.symbol, other.count)
    }
}

/// A folded sequence.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folded {
    steps: Vec<Step>,
    groups: Vec<Vec<(Symbol, u64)>>,
    known: FxHashMap<Vec<(Symbol, u64)>, Symbol>,
    len: u64,
    full: bool,
}

/// A folded step, for reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// One symbol.
    One(Symbol),
    /// A body that repeats.
    Loop(Parts),
}

/// Steps with how often each is in a row.
pub(crate) type Parts = Vec<(Part, u64)>;

impl Folded {
    /// Adds a symbol, of a line after those before.
    pub(crate) fn push(&mut self, symbol: Symbol, first: u64) {
        self.len += 1;
        if self.full {
            return;
        }
        match self.steps.last_mut() {
            Some(last) if last.symbol == symbol => last.count += 1,
            _ => self.steps.push(Step { symbol, count: 1, first }),
        }
        while self.fold() {}
        self.full = self.steps.len() >= KEPT;
    }

    /// How many symbols there were.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether some were left out, as nothing repeats.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Folds the end once where it repeats.
    fn fold(&mut self) -> bool {
        let Some(last) = self.steps.last().copied() else { return false };
        for body in 1..=LONGEST.min(self.steps.len() - 1) {
            let at = self.steps.len() - body;
            let before = self.steps[at - 1];
            if self.is_group_of(before.symbol, &self.steps[at..]) {
                self.steps.truncate(at);
                self.steps[at - 1].count += 1;
                return true;
            }
            if body > 1 && before.same(&last) && at >= body && self.repeats(at, body) {
                let symbol = self.group(at);
                let first = self.steps[at - body].first;
                self.steps.truncate(at - body);
                self.append(Step { symbol, count: 2, first });
                return true;
            }
        }
        false
    }

    fn append(&mut self, step: Step) {
        match self.steps.last_mut() {
            Some(last) if last.symbol == step.symbol => last.count += step.count,
            _ => self.steps.push(step),
        }
    }

    fn repeats(&self, at: usize, body: usize) -> bool {
        let (one, two) = (&self.steps[at - body..at], &self.steps[at..]);
        one.iter().zip(two).all(|(a, b)| a.same(b))
    }

    fn is_group_of(&self, symbol: Symbol, body: &[Step]) -> bool {
        let group = symbol.checked_sub(GROUPS).and_then(|at| self.groups.get(at as usize));
        group.is_some_and(|group| {
            group.len() == body.len()
                && group.iter().zip(body).all(|(a, b)| *a == (b.symbol, b.count))
        })
    }

    /// The group of the steps from `at` on.
    fn group(&mut self, at: usize) -> Symbol {
        let body: Vec<_> = self.steps[at..].iter().map(|step| (step.symbol, step.count)).collect();
        if let Some(known) = self.known.get(&body) {
            return *known;
        }
        let symbol = GROUPS + self.groups.len() as Symbol;
        self.groups.push(body.clone());
        self.known.insert(body, symbol);
        symbol
    }

    /// Steps with their counts: those that begin up to a line, and the others.
    pub(crate) fn parts(&self, border: u64) -> (Parts, Parts) {
        let (before, after): (Vec<Step>, Vec<Step>) =
            self.steps.iter().partition(|step| step.first <= border);
        let read = |steps: Vec<Step>| {
            steps.into_iter().map(|step| (self.part(step.symbol), step.count)).collect()
        };
        (read(before), read(after))
    }

    /// The line that the first step behind a line begins on.
    pub(crate) fn line_after(&self, line: u64) -> Option<u64> {
        self.steps.iter().map(|step| step.first).find(|first| *first > line)
    }

    fn part(&self, symbol: Symbol) -> Part {
        match symbol.checked_sub(GROUPS).and_then(|at| self.groups.get(at as usize)) {
            Some(body) => Part::Loop(body.iter().map(|(s, n)| (self.part(*s), *n)).collect()),
            None => Part::One(symbol),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> Folded {
        let mut folded = Folded::default();
        text.bytes().zip(0..).for_each(|(byte, line)| folded.push(byte.into(), line));
        folded
    }

    fn shown(parts: &[(Part, u64)]) -> String {
        let texts: Vec<String> = parts
            .iter()
            .map(|(part, count)| {
                let body = match part {
                    Part::One(symbol) => char::from(*symbol as u8).to_string(),
                    Part::Loop(body) => format!("({})", shown(body)),
                };
                if *count == 1 { body } else { format!("{count}{body}") }
            })
            .collect();
        texts.join(" ")
    }

    fn show(text: &str) -> String {
        shown(&folded(text).parts(u64::MAX).0)
    }

    #[test]
    fn folds() {
        assert_eq!(show("abc"), "a b c");
        assert_eq!(show("aaab"), "3a b");
        assert_eq!(show("xabcabcabcy"), "x 3(a b c) y");
        assert_eq!(show("abbabbabb"), "3(a 2b)");
        // A loop in a loop.
        assert_eq!(show("xababyxababyxababy"), "3(x 2(a b) y)");
        assert_eq!(show(&"abcdef".repeat(171)), "171(a b c d e f)");
    }

    #[test]
    fn a_border_never_cuts_a_loop() {
        let folded = folded("ababcc");
        let (before, after) = folded.parts(3);
        assert_eq!((shown(&before), shown(&after)), ("2(a b)".into(), "2c".into()));
    }

    #[test]
    fn what_never_repeats_takes_bounded_room() {
        let mut folded = Folded::default();
        (0..100_000).for_each(|symbol| folded.push(symbol, symbol.into()));
        assert!(folded.is_full() && folded.len() == 100_000 && folded.steps.len() <= KEPT);
    }
}

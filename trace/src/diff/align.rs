//! Where two sequences go on alike after they parted. Knows nothing of traces: a token stands for a
//! step, and equal tokens for equal steps.

use rustc_hash::FxHashMap;

/// A piece of a sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window<'a> {
    pub(super) tokens: &'a [u64],
    /// Whether the sequence ends with the window.
    pub(super) ends: bool,
}

/// Edits beyond which two windows are taken for unrelated.
const EDITS: usize = 128;
/// Tokens in a row that make an anchor.
const ANCHOR: usize = 8;
/// A token sequence that is more frequent is part of a loop, and where it matches says little.
const FREQUENT: u32 = 8;

/// The first steps that belong together in the shortest edit script between two windows (Myers), with
/// the number of edits; `None` when the windows have too little in common.
///
/// A window that does not end its sequence is cut anywhere: only one of the two has to be used up.
pub(super) fn shortest(a: Window<'_>, b: Window<'_>) -> Option<(usize, usize, usize)> {
    let (n, m) = (a.tokens.len(), b.tokens.len());
    if !share(a.tokens, b.tokens) {
        return None;
    }
    let reached = |x: usize, y: usize| match (x == n, y == m) {
        (true, true) => true,
        (true, false) => !a.ends,
        (false, true) => !b.ends,
        (false, false) => false,
    };
    // Row d holds how far d edits lead on the diagonals -d, -d + 2, … d.
    let mut rows: Vec<Vec<u32>> = Vec::new();
    for d in 0..=EDITS.min(n + m) {
        let mut row = Vec::with_capacity(d + 1);
        for step in 0..=d {
            let Some((mut x, mut y)) = start(rows.last(), d, step, n, m) else {
                row.push(UNREACHABLE);
                continue;
            };
            while x < n && y < m && a.tokens[x] == b.tokens[y] {
                x += 1;
                y += 1;
            }
            row.push(x as u32);
            if reached(x, y) {
                rows.push(row);
                return first_match(&rows, step, n, m);
            }
        }
        rows.push(row);
    }
    None
}

const UNREACHABLE: u32 = u32::MAX;

/// Where the snake of edit `d` on its `step`-th diagonal begins.
fn start(
    before: Option<&Vec<u32>>,
    d: usize,
    step: usize,
    n: usize,
    m: usize,
) -> Option<(usize, usize)> {
    let diagonal = 2 * step as isize - d as isize;
    let Some(before) = before else { return Some((0, 0)) };
    let reach = |at: Option<usize>| {
        at.and_then(|at| before.get(at)).copied().filter(|x| *x != UNREACHABLE).map(|x| x as usize)
    };
    // From the diagonal above by an insertion of B's, from the one below by leaving out one of A's.
    let inserted = reach(Some(step)).filter(|_| step < d);
    let removed = reach(step.checked_sub(1)).map(|x| x + 1);
    let x = inserted.max(removed)?;
    let y = usize::try_from(x as isize - diagonal).ok()?;
    (x <= n && y <= m).then_some((x, y))
}

/// Goes back from the end of a script, and says where its first snake begins, and how many edits the
/// script has; `None` when it matches too little to be believed.
fn first_match(
    rows: &[Vec<u32>],
    step: usize,
    n: usize,
    m: usize,
) -> Option<(usize, usize, usize)> {
    let edits = rows.len() - 1;
    let (mut step, mut found, mut matches) = (step, None, 0);
    for d in (0..rows.len()).rev() {
        let before = d.checked_sub(1).and_then(|d| rows.get(d));
        let (x, y) = start(before, d, step, n, m)?;
        let reached = *rows.get(d)?.get(step)? as usize;
        if reached > x {
            found = Some((x, y));
            matches += reached - x;
        }
        let Some(before) = before else { break };
        let reach = |at: usize| before.get(at).copied().filter(|x| *x != UNREACHABLE);
        let inserted = if step < d { reach(step).map(|x| x as usize) } else { None };
        if inserted != Some(x) {
            step -= 1;
        }
    }
    let (x, y) = found?;
    (matches * 3 >= n.min(m)).then_some((x, y, edits))
}

/// Whether enough tokens of the shorter window are anywhere in the other, as a filter that costs little.
fn share(a: &[u64], b: &[u64]) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let mut seen = [0_u64; 64];
    let place = |token: u64| {
        let hash = token.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        ((hash >> 6) as usize, 1_u64 << (hash & 63))
    };
    for token in long {
        let (word, bit) = place(*token);
        seen[word] |= bit;
    }
    let is_seen = |token: &&u64| {
        let (word, bit) = place(**token);
        seen[word] & bit != 0
    };
    short.iter().filter(is_seen).count() * 3 >= short.len()
}

/// The nearest place where both windows go on with the same rare sequence of tokens (as in a histogram
/// diff), or alike to their ends.
pub(super) fn anchor(a: Window<'_>, b: Window<'_>) -> Option<(usize, usize)> {
    let mut places: FxHashMap<u64, (u32, u32)> = FxHashMap::default();
    for (hash, x) in hashes(a.tokens) {
        places.entry(hash).or_insert((x, 0)).1 += 1;
    }
    let mut best: Option<(usize, usize)> = None;
    for (hash, y) in hashes(b.tokens) {
        let y = y as usize;
        if best.is_some_and(|(x, best)| x + best <= y) {
            break;
        }
        let Some((x, count)) = places.get(&hash) else { continue };
        let x = *x as usize;
        let nearer = best.is_none_or(|(best_x, best_y)| x + y < best_x + best_y);
        if nearer && *count <= FREQUENT && a.tokens[x..x + ANCHOR] == b.tokens[y..y + ANCHOR] {
            best = Some((x, y));
        }
    }
    best.or_else(|| common_end(a, b))
}

/// A hash of each `ANCHOR` tokens in a row, and where they begin.
fn hashes(tokens: &[u64]) -> impl Iterator<Item = (u64, u32)> {
    const BASE: u64 = 0x0000_0100_0000_01b3;
    let last = (0..ANCHOR).fold(1_u64, |power, _| power.wrapping_mul(BASE));
    let mut hash = 0_u64;
    tokens.iter().enumerate().filter_map(move |(at, token)| {
        let mixed = |token: u64| token.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (token >> 29);
        hash = hash.wrapping_mul(BASE).wrapping_add(mixed(*token));
        if let Some(gone) = at.checked_sub(ANCHOR).and_then(|at| tokens.get(at)) {
            hash = hash.wrapping_sub(mixed(*gone).wrapping_mul(last));
        }
        (at + 1 >= ANCHOR).then(|| (hash, (at + 1 - ANCHOR) as u32))
    })
}

fn common_end(a: Window<'_>, b: Window<'_>) -> Option<(usize, usize)> {
    if !a.ends || !b.ends {
        return None;
    }
    let (back_a, back_b) = (a.tokens.iter().rev(), b.tokens.iter().rev());
    let alike = back_a.zip(back_b).take_while(|(a, b)| a == b).count();
    (alike > 0).then(|| (a.tokens.len() - alike, b.tokens.len() - alike))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<u64> {
        text.bytes().map(u64::from).collect()
    }

    fn shortest_of(a: &str, b: &str, ends: bool) -> Option<(usize, usize, usize)> {
        let (a, b) = (tokens(a), tokens(b));
        shortest(Window { tokens: &a, ends }, Window { tokens: &b, ends })
    }

    fn anchor_of(a: &str, b: &str) -> Option<(usize, usize)> {
        let (a, b) = (tokens(a), tokens(b));
        anchor(Window { tokens: &a, ends: true }, Window { tokens: &b, ends: true })
    }

    #[test]
    fn what_one_has_more_is_stepped_over() {
        assert_eq!(shortest_of("EXYZW", "LLLEXYZW", true), Some((0, 3, 3)));
        assert_eq!(shortest_of("LLEXYZW", "EXYZW", true), Some((2, 0, 2)));
        assert_eq!(anchor_of("EXYZWUVTS", "LLLEXYZWUVTS"), Some((0, 3)));
    }

    #[test]
    fn other_ways_meet_again() {
        assert_eq!(shortest_of("TTHABCDE", "FHABCDE", true), Some((2, 1, 3)));
        assert_eq!(anchor_of("TTHABCDEFG", "FHABCDEFG"), Some((2, 1)));
    }

    #[test]
    fn a_cut_window_need_not_be_used_up() {
        // Cut, B is A after one more step; to their ends, three steps are missing.
        assert_eq!(shortest_of("ABCDEFGH", "XABCDEFGHIJK", false), Some((0, 1, 1)));
        assert_eq!(shortest_of("ABCDEFGH", "XABCDEFGHIJK", true), Some((0, 1, 4)));
    }

    #[test]
    fn windows_without_anything_in_common_do_not_meet() {
        assert_eq!(shortest_of("ABCDEFGH", "IJKLMNOP", true), None);
        assert_eq!(shortest_of("ABCDEFGHI", "JKLMNOPQI", true), None, "one of nine");
        assert_eq!(anchor_of("ABCDEFGHI", "JKLMNOPQR"), None);
    }

    #[test]
    fn the_end_is_an_anchor() {
        assert_eq!(anchor_of("AAAZ", "BBBBBZ"), Some((3, 5)));
    }

    #[test]
    fn scripts_are_shortest() {
        // All words of up to 5 letters of two, against a table of the textbook.
        let words: Vec<Vec<u64>> =
            (1_u32..6).flat_map(|len| (0..1 << len).map(move |bits| word(bits, len))).collect();
        for a in &words {
            for b in &words {
                let edits =
                    shortest(Window { tokens: a, ends: true }, Window { tokens: b, ends: true });
                if let Some((x, y, edits)) = edits {
                    assert_eq!(edits, distance(a, b), "{a:?} {b:?}");
                    assert_eq!(a[x], b[y], "{a:?} {b:?}");
                    assert_eq!(x + y + distance(&a[x..], &b[y..]), edits, "{a:?} {b:?}");
                }
            }
        }
    }

    fn word(bits: u32, len: u32) -> Vec<u64> {
        (0..len).map(|at| u64::from(bits >> at & 1)).collect()
    }

    fn distance(a: &[u64], b: &[u64]) -> usize {
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, x) in a.iter().enumerate() {
            let mut diagonal = row[0];
            row[0] = i + 1;
            for (j, y) in b.iter().enumerate() {
                let best = if x == y { diagonal } else { 1 + row[j].min(row[j + 1]) };
                diagonal = row[j + 1];
                row[j + 1] = best;
            }
        }
        row[b.len()]
    }
}

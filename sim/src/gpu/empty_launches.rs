//! Launches whose grids have no blocks.

use super::rig::{self, CLASSES, Channel, DATA, HOPPER, QMD, Shared, set};
use super::{Clock, Fault};

/// The first release of versions 3.0 and 4.0: whether it is there, where, with what, and that it is a word.
const OLDER: [(usize, usize); 4] = [(823, 823), (807, 768), (895, 832), (831, 830)];
const NEWER: [(usize, usize); 4] = [(320, 320), (696, 640), (767, 704), (322, 321)];

/// What comes of a launch of no code that releases a word with 7, and that word.
fn launch(class: u32, grid: [u64; 3], block: [u64; 3]) -> (Option<Fault>, u32) {
    let ([x, y, z], [i, j, k]) = (grid, block);
    let mut bytes = rig::description(class, [x, y, z, i, j, k, 0, 0, 3, 0]);
    let release = if class == HOPPER { NEWER } else { OLDER };
    for (field, value) in release.into_iter().zip([1, DATA, 7, 1]) {
        set(&mut bytes, field, value);
    }
    let space = Shared::new();
    space.put(QMD, &bytes);
    let fault = Channel::new(space.clone(), class, &[]).end(&Clock::new());
    let mut word = [0; 4];
    space.get(DATA, &mut word);
    (fault, u32::from_le_bytes(word))
}

/// Each with one dimension of zero, and with all.
const EMPTY: [[u64; 3]; 4] = [[0, 2, 3], [2, 0, 3], [2, 3, 0], [0, 0, 0]];

#[test]
fn a_grid_of_no_blocks_ends_at_once() {
    for (class, grid) in CLASSES.into_iter().flat_map(|class| EMPTY.map(|grid| (class, grid))) {
        let (fault, word) = launch(class, grid, [4, 2, 1]);
        assert!(fault.is_none(), "{class:#x}, {grid:?}: {fault:?}");
        assert_eq!(word, 7, "{class:#x}, {grid:?}");
    }
}

#[test]
fn a_block_of_no_threads_is_an_error() {
    for (class, block) in CLASSES.into_iter().flat_map(|class| EMPTY.map(|block| (class, block))) {
        for grid in [[1, 1, 1], [0, 1, 1], [0, 0, 0]] {
            let (fault, word) = launch(class, grid, block);
            let text = format!("{class:#x}, {grid:?}, {block:?}: {fault:?}");
            assert!(matches!(fault, Some(Fault::Unsupported(_))), "{text}");
            assert_eq!(word, 0, "{text}");
        }
    }
}

//! What the channels of each card take: methods of its classes, and pushbuffers where its host finds them.

use std::sync::atomic::Ordering;

use crate::channel::*;
use crate::{passes_in_child, rules, simulate};

rules! {
    what_is_undefined_ends_the_channel {
        let mut rig = Rig::new();
        let (copy, compute) = (class(&rig.classes, COPY), rig.compute_class());
        // Each class lacks the first; from HOPPER_COMPUTE_A on there is no 0x270, before it no 0x7ac.
        let absent = [0x578, if compute < 0xcbc0 { 0x7ac } else { 0x270 }];
        let mut wrong = vec![
            // A class that the card has not, though no method follows; methods of copies and of the host.
            (vec![incrementing(0, 1), 0x12b5], EXCEPTION),
            (vec![incrementing(0, 1), copy, incrementing(0x250, 1), 1], EXCEPTION),
            (vec![incrementing(0, 1), copy, incrementing(0x1110, 1), 1], EXCEPTION),
            (vec![incrementing(0xf0, 1), 1], PBDMA),
        ];
        for method in absent {
            wrong.push((vec![incrementing(0, 1), compute, incrementing(method, 1), 1], EXCEPTION));
        }
        for (words, error) in wrong {
            rig.submit(&words);
            assert_eq!(rig.error(), error, "{words:x?}");
            rig = Rig::new();
        }
        rig.submit(&[incrementing(0, 1), copy, incrementing(0x1114, 1), 1]);
        assert!(rig.works());
        // What the headers of nvidia-uvm alone have: SET_PAGEOUT_START_PALOWER, QUADRO_VERIFY.
        rig.submit(&[incrementing(0, 1), copy, incrementing(0x28c, 1), 1, incrementing(0xa0, 1), 0]);
        assert!(rig.works());
    }

    what_is_not_simulated_ends_the_channel {
        const GRAPHICS: u32 = 0x97;
        let mut rig = Rig::new();
        let graphics = class(&rig.classes, GRAPHICS);
        rig.submit(&[incrementing(0, 1), graphics]);
        assert!(rig.works(), "nothing is asked of it yet");
        // What would be drawn is waited for in vain.
        rig.submit(&[incrementing(0, 1), graphics, incrementing(0x100, 1), 0]);
        assert_eq!(rig.error(), EXCEPTION);
    }

    errors_of_copy_engines_have_numbers_of_their_own {
        // NV2080_ENGINE_TYPE_COPY0, ROBUST_CHANNEL_CE0_ERROR.
        const FIRST: (u64, u32) = (9, 39);
        let mut rig = Rig::on(FIRST.0);
        assert!(rig.works());
        rig.submit(&[incrementing(0, 1), class(&rig.classes, COPY), incrementing(0x250, 1), 1]);
        assert_eq!(rig.error(), FIRST.1);
    }

    pushbuffers_are_found_above_40_bits {
        // NVC86F_GP_ENTRY1_OPCODE_SET_PB_SEGMENT_EXTENDED_BASE.
        const HOPPER: u32 = 0xc86f;
        const LOW: u64 = 0x20_0000_0000;
        let base = |number: u64| 4 << 32 | number << 8;
        let place = BASE + TO;
        let release =
            |value| [incrementing(0x10, 4), (place >> 32) as u32, place as u32, value, 2 | 1 << 24];
        let mut rig = Rig::new();
        let wish = [0, SIZE as u64, FIXED, 1 << 40 | LOW];
        let at = map_dma(&rig.client, rig.device, [rig.window, rig.memory], wish);
        assert_eq!(at, Ok(1 << 40 | LOW));
        rig.enter(base(1));
        if class(&rig.classes, GPFIFO) < HOPPER {
            assert_eq!(rig.error(), PBDMA);
            return;
        }
        let entry = rig.write(&release(7), LOW);
        rig.enter(entry);
        assert!(rig.waits_for(|rig| rig.word(TO).load(Ordering::Acquire) == 7));
        rig.enter(base(0));
        rig.submit(&release(8));
        assert!(rig.waits_for(|rig| rig.word(TO).load(Ordering::Acquire) == 8));
        rig.enter(base(2));
        let entry = rig.write(&release(9), LOW);
        rig.enter(entry);
        assert_eq!(rig.error(), MMU_FAULT);
    }
}

#[test]
fn each_card_keeps_to_its_methods() {
    let name = "rm_sim::methods::each_card_keeps_to_its_methods";
    for card in ["a100", "rtx3090", "l4", "h100", "rtxpro6000"] {
        simulate(name, "595.45.04", &["--gpu", card], || {
            let failed = RULES.iter().filter(|(_, rule)| !passes_in_child(rule));
            let failed: Vec<&str> = failed.map(|(name, _)| *name).collect();
            assert!(failed.is_empty(), "{failed:?}");
        });
    }
}

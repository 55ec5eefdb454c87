//! The methods that Jetson's channels are sent, and the numbers that the spec gives the x86 driver's
//! classes and commands, against the x86 driver's headers.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

use nvabi::call::SubstituteAction;
use nvabi::tegra::abi::SUBSTITUTES;
use nvabi::tegra::class::{self, compute, copy, host};
use nvabi_pipeline::lock;
use nvabi_pipeline::model::Surface;

fn x86() -> Surface {
    let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi-specs");
    let (lock, _) = lock::read(&lock::folder(&specs, "")).unwrap();
    let newest = lock.tags.last().unwrap().tag.clone();
    lock.facts(&newest).unwrap().surfaces.remove("rm").unwrap()
}

#[test]
fn methods_are_those_of_the_class_headers() {
    let rm = x86();
    let value = |name: &str| -> u32 {
        let found = rm.constants.get(name).unwrap_or_else(|| panic!("there is no {name}"));
        u32::try_from(found.value).unwrap()
    };
    for (name, own) in [
        ("AMPERE_COMPUTE_B", class::AMPERE_COMPUTE_B),
        ("AMPERE_DMA_COPY_B", class::AMPERE_DMA_COPY_B),
        ("NVC46F_SET_OBJECT", host::SET_OBJECT),
        ("NVC46F_SEM_ADDR_LO", host::SEM_ADDR_LO),
        ("NVC46F_SEM_ADDR_HI", host::SEM_ADDR_HI),
        ("NVC46F_SEM_PAYLOAD_LO", host::SEM_PAYLOAD_LO),
        ("NVC46F_SEM_PAYLOAD_HI", host::SEM_PAYLOAD_HI),
        ("NVC46F_SEM_EXECUTE", host::SEM_EXECUTE),
        ("NVC46F_WFI", host::WFI),
        ("NVC46F_ILLEGAL", host::ILLEGAL),
        ("NVC46F_NOP", host::NOP),
        ("NVC46F_SEMAPHOREA", host::SEMAPHOREA),
        ("NVC46F_SEMAPHOREB", host::SEMAPHOREB),
        ("NVC46F_SEMAPHOREC", host::SEMAPHOREC),
        ("NVC46F_SEMAPHORED", host::SEMAPHORED),
        ("NVC46F_NON_STALL_INTERRUPT", host::NON_STALL_INTERRUPT),
        ("NVC46F_FB_FLUSH", host::FB_FLUSH),
        ("NVC46F_MEM_OP_A", host::MEM_OP_A),
        ("NVC46F_MEM_OP_D", host::MEM_OP_D),
        ("NVC46F_SET_REFERENCE", host::SET_REFERENCE),
        ("NVC46F_YIELD", host::YIELD),
        ("NVC46F_CLEAR_FAULTED", host::CLEAR_FAULTED),
        ("NVC7B5_SET_SEMAPHORE_A", copy::SET_SEMAPHORE_A),
        ("NVC7B5_SET_SEMAPHORE_B", copy::SET_SEMAPHORE_A + 4),
        ("NVC7B5_SET_SEMAPHORE_PAYLOAD", copy::SET_SEMAPHORE_PAYLOAD),
        ("NVC7B5_SET_SEMAPHORE_PAYLOAD_UPPER", copy::SET_SEMAPHORE_PAYLOAD + 4),
        ("NVC7B5_SET_RENDER_ENABLE_C", copy::SET_RENDER_ENABLE_C),
        ("NVC7B5_OFFSET_OUT_UPPER", copy::OFFSET_OUT_UPPER),
        ("NVC7B5_OFFSET_OUT_LOWER", copy::OFFSET_OUT_UPPER + 4),
        ("NVC7B5_PITCH_IN", copy::PITCH_IN),
        ("NVC7B5_PITCH_OUT", copy::PITCH_OUT),
        ("NVC7B5_LINE_COUNT", copy::LINE_COUNT),
        ("NVC7B5_SET_REMAP_CONST_B", copy::SET_REMAP_CONST_B),
        ("NVC7C0_SET_REPORT_SEMAPHORE_PAYLOAD_LOWER", compute::SET_REPORT_SEMAPHORE_PAYLOAD_LOWER),
        (
            "NVC7C0_SET_REPORT_SEMAPHORE_PAYLOAD_UPPER",
            compute::SET_REPORT_SEMAPHORE_PAYLOAD_LOWER + 4,
        ),
        ("NVC7C0_SET_REPORT_SEMAPHORE_ADDRESS_LOWER", compute::SET_REPORT_SEMAPHORE_ADDRESS_LOWER),
        (
            "NVC7C0_SET_REPORT_SEMAPHORE_ADDRESS_UPPER",
            compute::SET_REPORT_SEMAPHORE_ADDRESS_LOWER + 4,
        ),
        ("NVC7C0_REPORT_SEMAPHORE_EXECUTE", compute::REPORT_SEMAPHORE_EXECUTE),
        ("NVC7C0_LINE_COUNT", compute::LINE_COUNT),
        ("NVC7C0_OFFSET_OUT_UPPER", compute::OFFSET_OUT_UPPER),
        ("NVC7C0_PITCH_OUT", compute::PITCH_OUT),
        ("NVC7C0_SET_I2M_SEMAPHORE_A", compute::SET_I2M_SEMAPHORE_A),
        ("NVC7C0_SET_I2M_SEMAPHORE_B", compute::SET_I2M_SEMAPHORE_A + 4),
        ("NVC7C0_SET_I2M_SEMAPHORE_C", compute::SET_I2M_SEMAPHORE_A + 8),
        ("NVC7C0_SEND_PCAS_B", compute::SEND_PCAS_B),
        ("NVC7C0_SEND_SIGNALING_PCAS_B", compute::SEND_SIGNALING_PCAS_B),
        ("NVC7C0_SET_INLINE_QMD_ADDRESS_A", compute::SET_INLINE_QMD_ADDRESS_A),
        ("NVC7C0_SET_INLINE_QMD_ADDRESS_B", compute::SET_INLINE_QMD_ADDRESS_A + 4),
        ("NVC7C0_SET_SHADER_SHARED_MEMORY_WINDOW_B", compute::SET_SHADER_SHARED_MEMORY_WINDOW_B),
        ("NVC7C0_SET_SHADER_LOCAL_MEMORY_WINDOW_B", compute::SET_SHADER_LOCAL_MEMORY_WINDOW_B),
        ("NVC7C0_SET_REPORT_SEMAPHORE_A", compute::SET_REPORT_SEMAPHORE_A),
        ("NVC7C0_SET_REPORT_SEMAPHORE_B", compute::SET_REPORT_SEMAPHORE_A + 4),
        ("NVC7C0_SET_REPORT_SEMAPHORE_C", compute::SET_REPORT_SEMAPHORE_A + 8),
        ("NVC7C0_SET_REPORT_SEMAPHORE_D", compute::SET_REPORT_SEMAPHORE_D),
        ("NVC7B5_LAUNCH_DMA", copy::LAUNCH_DMA),
        ("NVC7B5_OFFSET_IN_UPPER", copy::OFFSET_IN_UPPER),
        ("NVC7B5_LINE_LENGTH_IN", copy::LINE_LENGTH_IN),
        ("NVC7B5_SET_REMAP_CONST_A", copy::SET_REMAP_CONST_A),
        ("NVC7B5_SET_REMAP_COMPONENTS", copy::SET_REMAP_COMPONENTS),
        ("NVC7C0_LINE_LENGTH_IN", compute::LINE_LENGTH_IN),
        ("NVC7C0_LAUNCH_DMA", compute::LAUNCH_DMA),
        ("NVC7C0_LOAD_INLINE_DATA", compute::LOAD_INLINE_DATA),
        ("NVC7C0_SEND_PCAS_A", compute::SEND_PCAS_A),
        ("NVC7C0_SEND_SIGNALING_PCAS2_B", compute::SEND_SIGNALING_PCAS2_B),
        ("NVC7C0_SET_SHADER_LOCAL_MEMORY_A", compute::SET_SHADER_LOCAL_MEMORY_A),
        ("NVC7C0_SET_SHADER_LOCAL_MEMORY_B", compute::SET_SHADER_LOCAL_MEMORY_A + 4),
        (
            "NVC7C0_SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A",
            compute::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A,
        ),
        (
            "NVC7C0_SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C",
            compute::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A + 8,
        ),
        ("NVC7C0_SET_SHADER_SHARED_MEMORY_WINDOW_A", compute::SET_SHADER_SHARED_MEMORY_WINDOW_A),
        ("NVC7C0_SET_SHADER_LOCAL_MEMORY_WINDOW_A", compute::SET_SHADER_LOCAL_MEMORY_WINDOW_A),
    ] {
        assert_eq!(value(name), own, "{name}");
    }
    // What follows a method of which only the first is named.
    for (first, names) in [
        (copy::OFFSET_IN_UPPER, &["OFFSET_IN_UPPER", "OFFSET_IN_LOWER", "OFFSET_OUT_UPPER"][..]),
        (copy::OFFSET_IN_UPPER + 12, &["OFFSET_OUT_LOWER", "PITCH_IN", "PITCH_OUT"]),
        (copy::LINE_LENGTH_IN, &["LINE_LENGTH_IN", "LINE_COUNT"]),
    ] {
        for (at, name) in names.iter().enumerate() {
            assert_eq!(value(&format!("NVC7B5_{name}")), first + at as u32 * 4, "{name}");
        }
    }
    for (at, name) in
        ["LINE_LENGTH_IN", "LINE_COUNT", "OFFSET_OUT_UPPER", "OFFSET_OUT"].iter().enumerate()
    {
        let own = compute::LINE_LENGTH_IN + at as u32 * 4;
        assert_eq!(value(&format!("NVC7C0_{name}")), own, "{name}");
    }
    // Fields: the value in its bits.
    let field = |range: &str, chosen: &str| {
        let found = &rm.bit_ranges[range];
        value(&format!("{range}_{chosen}")) << found.low
    };
    for (own, fields) in [
        (host::SEM_EXECUTE_RELEASE, &[("NVC46F_SEM_EXECUTE_OPERATION", "RELEASE")][..]),
        (host::SEM_EXECUTE_ACQ_CIRC_GEQ, &[("NVC46F_SEM_EXECUTE_OPERATION", "ACQ_CIRC_GEQ")]),
        (host::SEM_EXECUTE_ACQUIRE_SWITCH_TSG, &[("NVC46F_SEM_EXECUTE_ACQUIRE_SWITCH_TSG", "EN")]),
        (host::SEM_EXECUTE_RELEASE_WFI, &[("NVC46F_SEM_EXECUTE_RELEASE_WFI", "EN")]),
        (host::WFI_SCOPE_ALL, &[("NVC46F_WFI_SCOPE", "ALL")]),
        (copy::NON_PIPELINED, &[("NVC7B5_LAUNCH_DMA_DATA_TRANSFER_TYPE", "NON_PIPELINED")]),
        (copy::FLUSH, &[("NVC7B5_LAUNCH_DMA_FLUSH_ENABLE", "TRUE")]),
        (
            copy::BOTH_PITCH,
            &[
                ("NVC7B5_LAUNCH_DMA_SRC_MEMORY_LAYOUT", "PITCH"),
                ("NVC7B5_LAUNCH_DMA_DST_MEMORY_LAYOUT", "PITCH"),
            ],
        ),
        (copy::MULTI_LINE, &[("NVC7B5_LAUNCH_DMA_MULTI_LINE_ENABLE", "TRUE")]),
        (copy::REMAP, &[("NVC7B5_LAUNCH_DMA_REMAP_ENABLE", "TRUE")]),
        (
            copy::FILL_WORDS,
            &[
                ("NVC7B5_SET_REMAP_COMPONENTS_DST_X", "CONST_A"),
                ("NVC7B5_SET_REMAP_COMPONENTS_COMPONENT_SIZE", "FOUR"),
                ("NVC7B5_SET_REMAP_COMPONENTS_NUM_SRC_COMPONENTS", "ONE"),
                ("NVC7B5_SET_REMAP_COMPONENTS_NUM_DST_COMPONENTS", "ONE"),
            ],
        ),
        (
            compute::LAUNCH_PITCH_FLUSH,
            &[
                ("NVC7C0_LAUNCH_DMA_DST_MEMORY_LAYOUT", "PITCH"),
                ("NVC7C0_LAUNCH_DMA_COMPLETION_TYPE", "FLUSH_ONLY"),
            ],
        ),
        (
            compute::INVALIDATE_COPY_SCHEDULE,
            &[("NVC7C0_SEND_SIGNALING_PCAS2_B_PCAS_ACTION", "INVALIDATE_COPY_SCHEDULE")],
        ),
    ] {
        let all = fields.iter().fold(0, |all, (range, chosen)| all | field(range, chosen));
        assert_eq!(all, own, "{fields:?}");
    }
}

#[test]
fn the_ring_is_where_the_channel_class_has_it() {
    let rm = x86();
    let control = &rm.records["Nvc46fControl"];
    let offset = |name: &str| control.fields.iter().find(|f| f.name == name).unwrap().offset;
    assert_eq!((offset("GPGet"), offset("GPPut")), (0x88, 0x8c));
    assert_eq!((rm.bit_ranges["NVC46F_GP_ENTRY1_LENGTH"].low, 10), (10, 10));
    assert_eq!(rm.bit_ranges["NVC46F_GP_ENTRY1_GET_HI"].high, 7);
}

#[test]
fn substitutes_have_the_numbers_of_x86() {
    let rm = x86();
    let mut missing = BTreeSet::new();
    for one in SUBSTITUTES {
        match rm.constants.get(one.name) {
            Some(found) => assert_eq!(found.value, i128::from(one.number), "{}", one.name),
            None => _ = missing.insert(one.name),
        }
    }
    // Orin's channel class is not that of x86.
    assert_eq!(missing, BTreeSet::from(["AMPERE_CHANNEL_GPFIFO_B"]));
    let classes =
        SUBSTITUTES.iter().filter(|one| matches!(one.action, SubstituteAction::Alloc(_))).count();
    assert_eq!((classes, SUBSTITUTES.len() - classes), (11, 7));
}

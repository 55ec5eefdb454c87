//! What a GA10B says of itself: the GPU of a Jetson AGX Orin of 64 GB.

use super::PAGE;
use crate::tegra::abi::*;
use nvabi::tegra::class::{AMPERE_CHANNEL_GPFIFO_B, AMPERE_COMPUTE_B, AMPERE_DMA_COPY_B};

/// The runlist of the graphics engine.
pub(super) const GRAPHICS_RUNLIST: u32 = 0;
/// Bytes that a window of the shaders takes.
pub(super) const WINDOW: u64 = 16 << 20;

/// Modes that can be asked for.
pub(super) const GRAPHICS_MODES: u32 =
    NVGPU_GRAPHICS_PREEMPTION_MODE_WFI | NVGPU_GRAPHICS_PREEMPTION_MODE_GFXP;
pub(super) const COMPUTE_MODES: u32 = NVGPU_COMPUTE_PREEMPTION_MODE_WFI
    | NVGPU_COMPUTE_PREEMPTION_MODE_CTA
    | NVGPU_COMPUTE_PREEMPTION_MODE_CILP;

/// GPCs as the trace has them, TPCs in each, SMs in each TPC.
pub(super) const GPCS: u32 = 1;
const MAX_GPCS: u32 = 2;
pub(super) const TPCS: u32 = 4;
const SMS_PER_TPC: u32 = 2;
pub(super) const SMS: u32 = GPCS * TPCS * SMS_PER_TPC;

/// Hz.
pub(super) const MIN_FREQUENCY: u64 = 306_000_000;
pub(super) const MAX_FREQUENCY: u64 = 1_300_000_000;

/// Engines: kind, instance, runlist. Copy engines that share the runlist of graphics come second.
pub(super) const ENGINES: [(u32, u32, u32); 4] = [
    (NVGPU_GPU_ENGINE_ID_GR, 0, GRAPHICS_RUNLIST),
    (NVGPU_GPU_ENGINE_ID_GR_COPY, 0, GRAPHICS_RUNLIST),
    (NVGPU_GPU_ENGINE_ID_GR_COPY, 1, GRAPHICS_RUNLIST),
    (NVGPU_GPU_ENGINE_ID_ASYNC_COPY, 2, 1),
];

/// The runlist that a client may ask for.
pub(super) fn runlist(wanted: i32) -> Option<u32> {
    let wanted = u32::try_from(wanted).ok()?;
    ENGINES.iter().any(|(_, _, runlist)| *runlist == wanted).then_some(wanted)
}

/// Classes that objects can be made of (G/hal/class/class_ga10b.c and the older lists it goes on to).
pub(super) fn is_class(class: u32) -> bool {
    const AMPERE: [u32; 5] =
        [0xC637, AMPERE_COMPUTE_B, AMPERE_DMA_COPY_B, AMPERE_CHANNEL_GPFIFO_B, 0xC797];
    const TURING: [u32; 5] = [0xC46F, 0xC5C0, 0xC5B5, 0xC4B7, 0xC597];
    const VOLTA: [u32; 4] = [0xC3C0, 0xC3B5, 0xC36F, 0xC397];
    const PASCAL: [u32; 4] = [0xC0B5, 0xC06F, 0xC097, 0xC0C0];
    const OLDER: [u32; 7] = [0xB0B5, 0xB06F, 0xB1C0, 0xB197, 0xA0B5, 0xA140, 0x902D];
    [&AMPERE as &[u32], &TURING, &VOLTA, &PASCAL, &OLDER].concat().contains(&class)
}

/// Everything that the driver says of the GPU, but for its nodes. What differs between boards is that of the trace.
pub(super) fn characteristics(ctrl: u64, may_reschedule: bool) -> nvgpu_gpu_characteristics {
    let mut chipname = [0; 8];
    chipname[..5].copy_from_slice(b"ga10b");
    nvgpu_gpu_characteristics {
        arch: 0x170,
        r#impl: 0xb,
        rev: 0xa1,
        num_gpc: GPCS,
        numa_domain_id: -1,
        L2_cache_size: 4 << 20,
        num_tpc_per_gpc: TPCS,
        bus_type: NVGPU_GPU_BUS_TYPE_AXI,
        compression_page_size: 0x1_0000,
        pde_coverage_bit_count: 47,
        flags: flags(may_reschedule),
        twod_class: 0x902D,
        threed_class: 0xC797,
        compute_class: AMPERE_COMPUTE_B,
        gpfifo_class: AMPERE_CHANNEL_GPFIFO_B,
        inline_to_memory_class: 0xA140,
        dma_copy_class: AMPERE_DMA_COPY_B,
        gpc_mask: 1,
        sm_arch_sm_version: 0x807,
        sm_arch_spa_version: 0x806,
        sm_arch_warp_count: 96,
        gpu_va_bit_count: 40,
        max_fbps_count: 2,
        fbp_en_mask: 3,
        max_ltc_per_fbp: 1,
        max_lts_per_ltc: 4,
        max_gpc_count: MAX_GPCS,
        chipname,
        num_ltc: 2,
        lts_per_ltc: 4,
        cbc_cache_line_size: 128,
        map_buffer_batch_limit: 256,
        max_freq: MAX_FREQUENCY,
        graphics_preemption_mode_flags: GRAPHICS_MODES,
        compute_preemption_mode_flags: COMPUTE_MODES,
        default_graphics_preempt_mode: NVGPU_GRAPHICS_PREEMPTION_MODE_WFI,
        default_compute_preempt_mode: NVGPU_COMPUTE_PREEMPTION_MODE_WFI,
        reg_ops_limit: 1024,
        max_ctxsw_ring_buffer_size: 0x100 * PAGE as u32,
        per_device_identifier: 0x4d1b_2c6a_10b0_0001,
        num_ppc_per_gpc: 2,
        max_veid_count_per_tsg: super::tsg::VEIDS,
        max_gpfifo_entries: 1 << 28,
        max_dbg_tsg_timeslice: 4_000_000,
        device_instance_id: ctrl,
        ..super::args::Args::new(0).get()
    }
}

/// The driver's constants together, whatever width they have.
macro_rules! flags {
    ($($flag:ident),* $(,)?) => { $(($flag as u64))|* };
}

fn flags(may_reschedule: bool) -> u64 {
    let flags = flags![
        NVGPU_GPU_FLAGS_HAS_SYNCPOINTS,
        NVGPU_GPU_FLAGS_SUPPORT_SPARSE_ALLOCS,
        NVGPU_GPU_FLAGS_SUPPORT_CYCLE_STATS,
        NVGPU_GPU_FLAGS_SUPPORT_CYCLE_STATS_SNAPSHOT,
        NVGPU_GPU_FLAGS_SUPPORT_SYNC_FENCE_FDS,
        NVGPU_GPU_FLAGS_SUPPORT_TSG,
        NVGPU_GPU_FLAGS_SUPPORT_CLOCK_CONTROLS,
        NVGPU_GPU_FLAGS_SUPPORT_FECS_CTXSW_TRACE,
        NVGPU_GPU_FLAGS_SUPPORT_DETERMINISTIC_SUBMIT_NO_JOBTRACKING,
        NVGPU_GPU_FLAGS_SUPPORT_DETERMINISTIC_SUBMIT_FULL,
        NVGPU_GPU_FLAGS_SUPPORT_IO_COHERENCE,
        NVGPU_GPU_FLAGS_SUPPORT_TSG_SUBCONTEXTS,
        NVGPU_GPU_FLAGS_SUPPORT_DETERMINISTIC_OPTS,
        NVGPU_GPU_FLAGS_SUPPORT_SCG,
        NVGPU_GPU_FLAGS_SUPPORT_SYNCPOINT_ADDRESS,
        NVGPU_GPU_FLAGS_SUPPORT_USER_SYNCPOINT,
        NVGPU_GPU_FLAGS_CAN_RAILGATE,
        NVGPU_GPU_FLAGS_SUPPORT_USERMODE_SUBMIT,
        NVGPU_GPU_FLAGS_SUPPORT_SET_CTX_MMU_DEBUG_MODE,
        NVGPU_GPU_FLAGS_SUPPORT_VPR,
        NVGPU_GPU_FLAGS_SUPPORT_FAULT_RECOVERY,
        NVGPU_GPU_FLAGS_SUPPORT_COMPRESSION,
        NVGPU_GPU_FLAGS_SUPPORT_SM_TTU,
        NVGPU_GPU_FLAGS_SUPPORT_POST_L2_COMPRESSION,
        NVGPU_GPU_FLAGS_SUPPORT_MAP_ACCESS_TYPE,
        NVGPU_GPU_FLAGS_SUPPORT_2D,
        NVGPU_GPU_FLAGS_SUPPORT_3D,
        NVGPU_GPU_FLAGS_SUPPORT_COMPUTE,
        NVGPU_GPU_FLAGS_SUPPORT_I2M,
        NVGPU_GPU_FLAGS_SUPPORT_ZBC,
        NVGPU_GPU_FLAGS_SUPPORT_PROFILER_V2_DEVICE,
        NVGPU_GPU_FLAGS_SUPPORT_SMPC_GLOBAL_MODE,
        NVGPU_GPU_FLAGS_SUPPORT_GET_GR_CONTEXT,
        NVGPU_GPU_FLAGS_SUPPORT_BUFFER_METADATA,
        NVGPU_GPU_FLAGS_L2_MAX_WAYS_EVICT_LAST_ENABLED,
        NVGPU_GPU_FLAGS_SUPPORT_VAB,
        NVGPU_GPU_FLAGS_SUPPORT_MAPPING_MODIFY,
        NVGPU_GPU_FLAGS_SUPPORT_REMAP,
        NVGPU_GPU_FLAGS_SUPPORT_NVS,
        NVGPU_GPU_FLAGS_SCHED_EXIT_WAIT_FOR_ERRBAR_SUPPORTED,
        NVGPU_GPU_FLAGS_MULTI_PROCESS_TSG_SHARING,
    ];
    if may_reschedule { flags | flags![NVGPU_GPU_FLAGS_SUPPORT_RESCHEDULE_RUNLIST] } else { flags }
}

/// Where each SM is.
pub(super) fn sms() -> Vec<nvgpu_gpu_vsms_mapping_entry> {
    (0..SMS)
        .map(|sm| {
            let tpc = (sm % TPCS) as u8;
            nvgpu_gpu_vsms_mapping_entry {
                gpc_logical_index: 0,
                gpc_virtual_index: 0,
                tpc_local_logical_index: tpc,
                tpc_global_logical_index: tpc,
                sm_local_id: (sm / TPCS) as u8,
                tpc_migratable_index: tpc,
            }
        })
        .collect()
}

/// How depth is culled, by the geometry above.
pub(super) fn zcull() -> nvgpu_gpu_zcull_get_info_args {
    nvgpu_gpu_zcull_get_info_args {
        width_align_pixels: TPCS * 16,
        height_align_pixels: 32,
        pixel_squares_by_aliquots: GPCS * TPCS * 16 * 16,
        aliquot_total: 4096,
        region_byte_multiplier: GPCS * 32,
        region_header_size: 32,
        subregion_header_size: 192 * GPCS,
        subregion_width_align_pixels: TPCS * 16,
        subregion_height_align_pixels: 64,
        subregion_count: 16,
    }
}

/// Bytes of the context that culling needs, as the trace has it.
pub(super) const ZCULL_CONTEXT: u32 = 164_352;

/// One word for each GPC that there could be: its TPCs.
pub(super) fn tpc_masks() -> Vec<u8> {
    let masks = [(1_u32 << TPCS) - 1, 0];
    masks[..MAX_GPCS as usize].iter().flat_map(|mask| mask.to_le_bytes()).collect()
}

/// One word for each frame buffer partition that there could be: its L2 caches, of which each has one.
pub(super) fn l2_masks() -> Vec<u8> {
    [1_u32, 1].iter().flat_map(|mask| mask.to_le_bytes()).collect()
}

//! `nvabi tegra probe`: what the GPU of this machine is.

use nvabi::tegra::{Characteristics, Device};
use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use serde::Serialize;

use crate::Outcome;
use crate::context::Context;

/// What `--json` prints.
#[derive(Serialize)]
struct Probed {
    release: &'static str,
    chip: String,
    architecture: u32,
    implementation: u32,
    sm_arch: u32,
    compute_class: u32,
    gpfifo_class: u32,
    dma_copy_class: u32,
    gpcs: u32,
    tpcs_per_gpc: u32,
    gpu_va_bits: u8,
    l2_cache_bytes: u64,
    video_memory_bytes: u64,
    big_page_bytes: u32,
    max_gpfifo_entries: u32,
    max_freq_hz: u64,
    pde_coverage_bits: u32,
    flags: Vec<&'static str>,
}

pub(crate) fn probe(context: &Context<'_>) -> Result<Outcome, Report> {
    let device = Device::open().map_err(|error| {
        Diagnostic::error("tegra-open", error.to_string())
            .help("this needs a Jetson, or a simulated one: nvabi tegra sim -- nvabi tegra probe")
    })?;
    let probed = Probed::new(&device);
    match context.json() {
        true => context.print_json(&probed)?,
        false => context.print(&probed.text())?,
    }
    context.status("Probed", probed.release);
    Ok(Outcome::Same)
}

impl Probed {
    fn new(device: &Device) -> Self {
        let gpu = device.characteristics();
        Self {
            release: device.release().tags(),
            chip: gpu.chip(),
            architecture: gpu.arch,
            implementation: gpu.impl_,
            sm_arch: gpu.sm_arch_sm_version,
            compute_class: gpu.compute_class,
            gpfifo_class: gpu.gpfifo_class,
            dma_copy_class: gpu.dma_copy_class,
            gpcs: gpu.num_gpc,
            tpcs_per_gpc: gpu.num_tpc_per_gpc,
            gpu_va_bits: gpu.gpu_va_bit_count,
            l2_cache_bytes: gpu.l2_cache_size,
            video_memory_bytes: gpu.on_board_video_memory_size,
            big_page_bytes: gpu.big_page_size,
            max_gpfifo_entries: gpu.max_gpfifo_entries,
            max_freq_hz: gpu.max_freq,
            pde_coverage_bits: gpu.pde_coverage_bit_count,
            flags: flags(gpu),
        }
    }

    fn text(&self) -> String {
        let rows = [
            ("Release", self.release.to_owned()),
            ("Architecture", format!("{:#06x}", self.architecture)),
            ("Implementation", format!("{:#06x} ({})", self.implementation, self.chip)),
            ("SM arch version", sm(self.sm_arch)),
            ("Compute class", format!("{:#x}", self.compute_class)),
            ("GPFIFO class", format!("{:#x}", self.gpfifo_class)),
            ("DMA copy class", format!("{:#x}", self.dma_copy_class)),
            ("GPC count", self.gpcs.to_string()),
            ("TPC per GPC", self.tpcs_per_gpc.to_string()),
            ("GPU VA bits", self.gpu_va_bits.to_string()),
            ("L2 cache", bytes(self.l2_cache_bytes)),
            ("VRAM", bytes(self.video_memory_bytes)),
            ("Big page size", bytes(u64::from(self.big_page_bytes))),
            ("Max GPFIFO entries", self.max_gpfifo_entries.to_string()),
            ("Max freq", format!("{} MHz", self.max_freq_hz / 1_000_000)),
            ("PDE coverage bits", self.pde_coverage_bits.to_string()),
            ("Key flags", self.flags.join(", ")),
        ];
        rows.iter().map(|(name, value)| format!("{name:<20}{value}\n")).collect()
    }
}

fn sm(version: u32) -> String {
    format!("{version:#06x} (SM {}.{})", version >> 8, version & 0xff)
}

fn bytes(count: u64) -> String {
    match count {
        0 => "none".to_owned(),
        _ if count % (1 << 20) == 0 => format!("{} MiB", count >> 20),
        _ => format!("{} KiB", count >> 10),
    }
}

/// The flags that decide what a program can do.
fn flags(gpu: &Characteristics) -> Vec<&'static str> {
    use nvabi::tegra::r36;
    let all = [
        ("USERMODE_SUBMIT", u64::from(r36::NVGPU_GPU_FLAGS_SUPPORT_USERMODE_SUBMIT)),
        ("COMPUTE", r36::NVGPU_GPU_FLAGS_SUPPORT_COMPUTE),
        ("DETERMINISTIC", u64::from(r36::NVGPU_GPU_FLAGS_SUPPORT_DETERMINISTIC_SUBMIT_FULL)),
        ("TSG_SUBCONTEXTS", u64::from(r36::NVGPU_GPU_FLAGS_SUPPORT_TSG_SUBCONTEXTS)),
        ("USER_SYNCPOINT", u64::from(r36::NVGPU_GPU_FLAGS_SUPPORT_USER_SYNCPOINT)),
        ("IO_COHERENCE", u64::from(r36::NVGPU_GPU_FLAGS_SUPPORT_IO_COHERENCE)),
        ("GPU_MMIO", r36::NVGPU_GPU_FLAGS_SUPPORT_GPU_MMIO),
    ];
    all.into_iter().filter(|(_, flag)| gpu.has(*flag)).map(|(name, _)| name).collect()
}

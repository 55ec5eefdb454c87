//! The command line of `nvabi alloc`.

use std::path::PathBuf;

use clap::Subcommand;
use nvabi_pipeline::diagnostic::{Diagnostic, Report};

#[derive(Debug, Subcommand)]
pub(crate) enum Alloc {
    /// List the devices of this machine: the memory each allocates and the operations it supports.
    #[command(after_help = "Examples:\n  nvabi alloc devices\n  nvabi alloc devices --json")]
    Devices,
    /// List the formats that a device takes for an operation, and how large images of each may be.
    #[command(
        after_help = "DEVICE is a name that `nvabi alloc devices` lists, or a purpose, such as display: then all that \
        serve it are listed.\n\nExamples:\n  nvabi alloc formats drm:card0:scanout\n  \
        nvabi alloc formats display:scanout --json"
    )]
    Formats(AllocFormats),
    /// Find memory and a layout that serve several devices, or explain why none does.
    #[command(
        after_help = "DEVICE is a name that `nvabi alloc devices` lists, or a purpose: cpu, gpu, display, camera,\n\
        encoder, decoder or converter. OPERATION: cpu-read, cpu-write, texture, render, scanout, capture,\n\
        encode, decode, copy, convert-read, convert-write. DETAILS may follow: +rotate-90, +rotate-180,\n\
        +rotate-270, +reflect-x, +reflect-y, or a vendor's +0x10de:3(1, 2).\n\n\
        Examples:\n  nvabi alloc plan --use gpu:texture --use display:scanout 1920x1080 NV12\n  \
        nvabi alloc plan --use cpu:cpu-write --use isp:capture --offers isp.json 640x480 YUYV --json"
    )]
    Plan(AllocPlan),
    /// Make the memory of a plan and run a program with it.
    ///
    /// The program inherits a file descriptor for each plane. The variable NVABI_BUFFER tells it their numbers
    /// (`fds`), usage, set, layout and allocator, as JSON. Its exit status is this command's; 1 when no memory serves.
    #[command(
        after_help = "Example:\n  nvabi alloc make --use cpu:cpu-write --use display:scanout 1280x720 XR24 -- ./show"
    )]
    Make(AllocMake),
    /// Print what devices of this machine offer, as JSON: for `--offers` of another machine.
    #[command(
        after_help = "Example:\n  nvabi alloc offers --use gpu:texture --use display:scanout 1920x1080 NV12 >offers.json"
    )]
    Offers(AllocAsked),
    /// Explain why the offers of devices conflict, and which change resolves it.
    #[command(after_help = "Example:\n  nvabi alloc explain gpu.json display.json")]
    Explain(AllocExplain),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AllocFormats {
    /// A device of this machine, or a purpose, and what it does.
    #[arg(value_name = "DEVICE:OPERATION")]
    pub(crate) wanted: nvabi_devmem::Use,
}

/// Uses of an image.
#[derive(Debug, clap::Args)]
pub(crate) struct AllocAsked {
    /// A device, or a purpose, and what it does with the memory.
    #[arg(long = "use", value_name = "DEVICE:OPERATION", required = true)]
    pub(crate) uses: Vec<nvabi_devmem::Use>,
    /// What else every device must support of the image: VENDOR:NAME(WORD, …), such as `0x10de:3(1)`.
    #[arg(long = "detail", value_name = "DETAIL")]
    details: Vec<nvabi_devmem::Detail>,
    /// Width and height in pixels.
    #[arg(value_name = "WIDTHxHEIGHT", value_parser = size)]
    size: (u32, u32),
    /// DRM format: NV12, XR24.
    #[arg(value_name = "FOURCC")]
    format: nvabi_devmem::Fourcc,
}

impl AllocAsked {
    /// What is asked of the image, whoever uses it.
    pub(crate) fn of_image(&self) -> Result<nvabi_devmem::Usage, Report> {
        let image = nvabi_devmem::Image::new(self.size.0, self.size.1, self.format);
        let usage = nvabi_devmem::Usage::new(image, Vec::new()).asking(self.details.clone());
        usage.map_err(|what| Diagnostic::error("alloc-detail", format!("--detail: {what}")).into())
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct AllocPlan {
    #[command(flatten)]
    pub(crate) asked: AllocAsked,
    /// Offers of devices that this machine does not have: a JSON file with one offer or a list.
    #[arg(long, value_name = "FILE")]
    pub(crate) offers: Vec<PathBuf>,
    /// A device to ask for the memory first; several in their order. Others follow by their costs.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) prefer: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AllocMake {
    #[command(flatten)]
    pub(crate) plan: AllocPlan,
    /// The program to run, and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<std::ffi::OsString>,
}

fn size(text: &str) -> Result<(u32, u32), String> {
    let size = text
        .split_once('x')
        .and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    size.ok_or_else(|| "expected WIDTHxHEIGHT, such as 1920x1080".to_owned())
}

#[derive(Debug, clap::Args)]
pub(crate) struct AllocExplain {
    /// Offers of devices: JSON files, each with one offer or a list.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

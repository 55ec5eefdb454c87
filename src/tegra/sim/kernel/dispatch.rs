//! From a request to its handler, with the checks that come before and after it.
//!
//! A request is looked up by the file it was made on: its magic alone does not say whose it is.

use super::args::{Args, uncopied};
use super::client::Client;
use super::{Errno, File, FileId, Kernel, Result};
use crate::call::Request;
use crate::tegra::sim::abi;

/// How a node of nvgpu takes its requests.
struct Limits {
    magic: u8,
    last: u8,
    max_size: u16,
    /// A copy back that fails says how many bytes were left (or else `EFAULT`).
    counts: bool,
}

const CTRL: Limits = Limits { magic: b'G', last: 44, max_size: 264, counts: true };
const SPACE: Limits = Limits { magic: b'A', last: 14, max_size: 40, counts: false };
const TSG: Limits = Limits { magic: b'T', last: 21, max_size: 32, counts: true };
const CHANNEL: Limits = Limits { magic: b'H', last: 128, max_size: 104, counts: true };

impl Kernel {
    /// An ioctl on one of our files.
    pub(crate) fn ioctl(
        &mut self,
        client: &dyn Client,
        id: FileId,
        request: u32,
        argument: u64,
    ) -> Result<i64> {
        let file = self.file(id).map(|open| open.file).ok_or(Errno::EBADF)?;
        let request = Request(request);
        match file {
            File::Nvmap { process } => self.nvmap_ioctl(client, process, request, argument),
            File::Ctrl(_) => self.nvgpu_ioctl(client, file, &CTRL, request, argument),
            File::Space(_) => self.nvgpu_ioctl(client, file, &SPACE, request, argument),
            File::Tsg { .. } => self.nvgpu_ioctl(client, file, &TSG, request, argument),
            File::Channel(_) => self.nvgpu_ioctl(client, file, &CHANNEL, request, argument),
            File::Fences => self.fence_ioctl(client, request, argument),
            // DMA_BUF_IOCTL_SYNC: memory here is always coherent.
            File::Buffer(_) if request.magic() == b'b' && request.nr() == 0 => Ok(0),
            File::Buffer(_) | File::Event | File::Fence { .. } | File::PollFd => Err(Errno::ENOTTY),
        }
    }

    /// The four nodes of nvgpu have one way to take a request (G/os/linux/ioctl_ctrl.c:2445,
    /// ioctl_as.c:478, ioctl_tsg.c:1103, ioctl_channel.c:1196).
    fn nvgpu_ioctl(
        &mut self,
        client: &dyn Client,
        file: File,
        limits: &Limits,
        request: Request,
        argument: u64,
    ) -> Result<i64> {
        if request.magic() != limits.magic
            || request.nr() == 0
            || request.nr() > limits.last
            || request.size() > limits.max_size
        {
            return Err(Errno::EINVAL);
        }
        let mut args = Args::new(request.size().into());
        if request.is_read_by_driver()
            && client.read(argument, args.bytes_mut()) < args.bytes().len()
        {
            return Err(Errno::EFAULT);
        }
        let outcome = match file {
            File::Ctrl(ctrl) => self.ctrl_ioctl(client, ctrl, request.0, &mut args),
            File::Space(space) => self.space_ioctl(client, space, request.0, &mut args),
            File::Tsg { tsg, .. } => self.tsg_ioctl(client, tsg, request.0, &mut args),
            File::Channel(channel) => self.channel_ioctl(client, channel, request.0, &mut args),
            _ => Err(Errno::ENOTTY),
        }?;
        if outcome != 0 || !request.is_written_by_driver() {
            return Ok(outcome);
        }
        match uncopied(client, argument, args.bytes()) {
            left if left != 0 && !limits.counts => Err(Errno::EFAULT),
            left => Ok(left),
        }
    }

    /// A call that the driver has and this one does not play.
    pub(super) fn not_simulated(&mut self, client: &dyn Client, request: u32) -> Result<i64> {
        let name = self.log.name(request);
        self.log.diagnose(client.process(), "not-simulated", format!("{name} is not simulated"));
        Err(Errno::ENOSYS)
    }
}

/// The calls of the nodes that are simulated: number and driver's name.
pub(crate) fn calls() -> impl Iterator<Item = (u32, &'static str)> {
    const NODES: [&str; 6] = ["nvmap", "ctrl", "as", "tsg", "channel", "host1x-fence"];
    let all = abi::ALL.iter().copied().flatten();
    all.filter(|call| NODES.contains(&call.node)).map(|call| (call.number, call.name))
}

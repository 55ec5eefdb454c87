//! From a request to its handler, with the checks that come before and after it.
//!
//! A request is looked up by the file it was made on: its magic alone does not say whose it is.

use super::args::Args;
use super::layouts::{self, Unknown};
use super::{Errno, File, FileId, Kernel, Result};
use crate::client::Client;
use crate::tegra::abi::NVGPU_AS_IOCTL_REMAP;
use nvabi::call::{Ioctl, Request};

/// The nodes of nvgpu, and their letters.
const CTRL: (&str, u8) = ("ctrl", b'G');
const SPACE: (&str, u8) = ("as", b'A');
const TSG: (&str, u8) = ("tsg", b'T');
const CHANNEL: (&str, u8) = ("channel", b'H');

impl Kernel {
    /// An ioctl on one of our files.
    pub(super) fn dispatch(
        &mut self,
        client: &dyn Client,
        id: FileId,
        request: u32,
        argument: u64,
    ) -> Result<i64> {
        let file = self.files.get(id).map(|open| open.file).ok_or(Errno::EBADF)?;
        let result = self.dispatch_to(client, file, Request(request), argument);
        if matches!(result, Err(Errno::ENOTTY | Errno::EINVAL)) {
            self.explain_unknown(client, file, request);
        }
        result
    }

    /// Says why a request is none, when it is none of the release's: another release has it, or another size of it.
    fn explain_unknown(&mut self, client: &dyn Client, file: File, request: u32) {
        let Some(node) = file.node() else { return };
        let release = self.layouts.release;
        let text = match layouts::unknown(release, node, request) {
            None => return,
            Some(Unknown::Nowhere) => {
                format!("{request:#010x} is no request of {node} in any release")
            }
            Some(Unknown::Number { name, of }) => {
                format!(
                    "{name} ({request:#010x}) is a request of {node} in {of}; {release} has none"
                )
            }
            Some(Unknown::Size { name, of, right }) => format!(
                "{name} of {of} has {} bytes ({request:#010x}), {release} has {} ({right:#010x})",
                Request(request).size(),
                Request(right).size(),
            ),
        };
        self.log.diagnose(client.process(), "unknown-call", text);
    }

    fn dispatch_to(
        &mut self,
        client: &dyn Client,
        file: File,
        request: Request,
        argument: u64,
    ) -> Result<i64> {
        match file {
            File::Nvmap { process } => self.nvmap_ioctl(client, process, request, argument),
            File::Ctrl(_) => self.nvgpu_ioctl(client, file, CTRL, request, argument),
            File::Space(_) => self.nvgpu_ioctl(client, file, SPACE, request, argument),
            File::Tsg { .. } => self.nvgpu_ioctl(client, file, TSG, request, argument),
            File::Channel(_) => self.nvgpu_ioctl(client, file, CHANNEL, request, argument),
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
        (node, magic): (&str, u8),
        request: Request,
        argument: u64,
    ) -> Result<i64> {
        let limits = self.layouts.limits(node);
        if request.magic() != magic
            || request.nr() == 0
            || request.nr() > limits.last
            || request.size() > limits.max_size
        {
            return Err(Errno::EINVAL);
        }
        let mut args = Args::new(request.size().into());
        if request.is_read_by_driver() && !args.read(client, argument) {
            return Err(Errno::EFAULT);
        }
        let call = self.layouts.call(request.0).ok_or(Errno::ENOTTY)?;
        let Some(known) = call.request else { return self.not_simulated(client, request.0) };
        args.enter(call.moves);
        let outcome = match file {
            File::Ctrl(ctrl) => self.ctrl_ioctl(client, ctrl, known, &mut args),
            File::Space(space) => self.space_ioctl(client, space, known, &mut args),
            File::Tsg { tsg, .. } => self.tsg_ioctl(client, tsg, known, &mut args),
            File::Channel(channel) => self.channel_ioctl(client, channel, known, &mut args),
            _ => Err(Errno::ENOTTY),
        };
        if outcome.is_err() && known == NVGPU_AS_IOCTL_REMAP::REQUEST {
            // How far it got is told in any case.
            args.write(client, argument)?;
        }
        let outcome = outcome?;
        if outcome != 0 || !request.is_written_by_driver() {
            return Ok(outcome);
        }
        match args.uncopied(client, argument) {
            // That of address spaces alone does not tell how many bytes were left.
            left if left != 0 && node == SPACE.0 => Err(Errno::EFAULT),
            left => Ok(left),
        }
    }

    /// A call that the driver has and this one does not play.
    pub(super) fn not_simulated(&mut self, client: &dyn Client, request: u32) -> Result<i64> {
        let name = self.name(request);
        Err(self.not_possible(client, &name))
    }

    /// What the driver does and this one does not, and says so.
    pub(super) fn not_possible(&mut self, client: &dyn Client, what: &str) -> Errno {
        self.log.diagnose(client.process(), "not-simulated", format!("{what} is not simulated"));
        Errno::ENOSYS
    }
}

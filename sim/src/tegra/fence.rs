//! `/dev/host1x-fence`: files that become readable when a syncpoint has come far enough.

use super::args::{Args, as_bytes, write};
use super::{Errno, File, Kernel, Result};
use crate::client::Client;
use crate::memory::Node;
use crate::tegra::abi::*;
use nvabi::call::Request;

impl Kernel {
    /// The node looks at the whole request and nothing else
    /// (`drivers/gpu/host1x-fence/dev.c` of linux-nv-oot).
    pub(super) fn fence_ioctl(
        &mut self,
        client: &dyn Client,
        request: Request,
        argument: u64,
    ) -> Result<i64> {
        let handler = match request.0 {
            HOST1X_IOCTL_CREATE_FENCE::REQUEST => create_fence,
            HOST1X_IOCTL_FENCE_EXTRACT::REQUEST => extract,
            HOST1X_IOCTL_CREATE_POLLFD::REQUEST => create_pollfd,
            HOST1X_IOCTL_TRIGGER_POLLFD::REQUEST => trigger,
            _ => return Err(Errno::ENOTTY),
        };
        let mut args = Args::new(request.size().into());
        if !args.read(client, argument) {
            return Err(Errno::EFAULT);
        }
        handler(self, client, &mut args)?;
        if request.0 != HOST1X_IOCTL_TRIGGER_POLLFD::REQUEST {
            args.write(client, argument)?;
        }
        Ok(0)
    }

    /// A file that becomes readable when a syncpoint has come so far.
    pub(super) fn fence_file(
        &mut self,
        client: &dyn Client,
        point: u32,
        threshold: u32,
    ) -> Result<i32> {
        let file = self.add_signal(File::Fence { point, threshold })?;
        let fd = self.install(client, file)?;
        self.wait_for(file, point, threshold);
        Ok(fd)
    }

    fn wait_for(&mut self, file: super::FileId, point: u32, threshold: u32) {
        if let Some(open) = self.files.get(file) {
            self.points.wait(file, open.node.clone(), point, threshold);
        }
    }
}

fn create_fence(k: &mut Kernel, client: &dyn Client, args: &mut Args) -> Result<()> {
    let mut fence: host1x_create_fence = args.get();
    if fence.reserved[0] != 0 || k.points.value(fence.id).is_none() {
        return Err(Errno::EINVAL);
    }
    fence.fence_fd = k.fence_file(client, fence.id, fence.threshold)?;
    args.put(&fence);
    Ok(())
}

fn extract(k: &mut Kernel, client: &dyn Client, args: &mut Args) -> Result<()> {
    let mut wanted: host1x_fence_extract = args.get();
    if wanted.reserved != [0; 2] {
        return Err(Errno::EINVAL);
    }
    let Some(File::Fence { point, threshold }) = k.descriptor(client, wanted.fence_fd) else {
        return Err(Errno::EINVAL);
    };
    if wanted.num_fences > 0 {
        let fence = host1x_fence_extract_fence { id: point, threshold };
        write(client, wanted.fences_ptr, as_bytes(&fence))?;
    }
    wanted.num_fences = 1;
    args.put(&wanted);
    Ok(())
}

fn create_pollfd(k: &mut Kernel, client: &dyn Client, args: &mut Args) -> Result<()> {
    let file = k.add_signal(File::PollFd)?;
    let fd = k.install(client, file)?;
    args.update(|pollfd: &mut host1x_create_pollfd| pollfd.fd = fd);
    Ok(())
}

/// Puts a fence to a pollfd.
///
/// The driver's file reports each reached fence to one `poll` alone. This one stays readable until
/// the next fence is put to it, for nobody tells us of a `poll`.
fn trigger(k: &mut Kernel, client: &dyn Client, args: &mut Args) -> Result<()> {
    let wanted: host1x_trigger_pollfd = args.get();
    let id = k.file_id(client, wanted.fd).ok_or(Errno::EINVAL)?;
    let open = k.files.get(id).filter(|open| open.file == File::PollFd).ok_or(Errno::EINVAL)?;
    let node = open.node.clone();
    if k.points.value(wanted.id).is_none() {
        return Err(Errno::EINVAL);
    }
    if let (Node::Signal(signal), false) = (&*node, k.points.is_awaited(id)) {
        signal.lower();
    }
    k.wait_for(id, wanted.id, wanted.threshold);
    Ok(())
}

//! What a client needs: the drivers' structs, and system calls.

use std::ffi::CString;
use std::io;

use nvabi::call::Ioctl;
use nvabi::driver::{PlainRecord, Record};
pub(crate) use nvabi::tegra::r36::ioctl::*;
pub(crate) use nvabi::tegra::r36::*;

pub(crate) type Fd = i32;

/// The result of a system call: a number, or an error number.
pub(crate) type Result<T = i64> = std::result::Result<T, i32>;

pub(crate) const EBADF: Result = Err(libc::EBADF);
pub(crate) const EFAULT: Result = Err(libc::EFAULT);
pub(crate) const EINVAL: Result = Err(libc::EINVAL);
pub(crate) const ENOTTY: Result = Err(libc::ENOTTY);
pub(crate) const ENOMEM: Result = Err(libc::ENOMEM);

fn result_of(result: i64) -> Result {
    if result < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap()) } else { Ok(result) }
}

pub(crate) fn open(path: &str) -> Result<Fd> {
    open_with(path, libc::O_RDWR | libc::O_CLOEXEC)
}

pub(crate) fn open_with(path: &str, flags: i32) -> Result<Fd> {
    let path = CString::new(path).unwrap();
    result_of(unsafe { libc::open(path.as_ptr(), flags) }.into()).map(|fd| fd as Fd)
}

pub(crate) fn close(fd: Fd) {
    assert_eq!(result_of(unsafe { libc::close(fd) }.into()), Ok(0), "no close is an error");
}

/// Whether a descriptor is open.
pub(crate) fn is_open(fd: Fd) -> bool {
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

pub(crate) fn ctrl() -> Fd {
    open("/dev/nvgpu/igpu0/ctrl").unwrap()
}

pub(crate) fn nvmap() -> Fd {
    open("/dev/nvmap").unwrap()
}

/// An ioctl with any argument.
pub(crate) fn raw(fd: Fd, request: u32, argument: u64) -> Result {
    result_of(unsafe { libc::ioctl(fd, request as _, argument) }.into())
}

/// An ioctl by its type.
pub(crate) fn call<C: Ioctl>(fd: Fd, args: &mut C::Params) -> Result {
    raw(fd, C::REQUEST, std::ptr::from_mut(args) as u64)
}

/// An ioctl that fails and so changes nothing of its argument.
pub(crate) fn refused<C: Ioctl<Params: PlainRecord>>(fd: Fd, args: C::Params) -> Result {
    let mut after = args;
    let result = call::<C>(fd, &mut after);
    assert!(result.is_err(), "{result:?}");
    assert_eq!(bytes(&after), bytes(&args), "a failed call writes nothing");
    result
}

pub(crate) fn zeroed<T: Record>() -> T {
    T::zeroed()
}

pub(crate) fn bytes<T: PlainRecord>(value: &T) -> Vec<u8> {
    value.bytes().to_vec()
}

/// A request of these parts.
pub(crate) fn request(direction: u32, magic: u8, nr: u32, size: u32) -> u32 {
    direction << 30 | size << 16 | u32::from(magic) << 8 | nr
}

pub(crate) const IOVMM: u32 = 1 << 30;

pub(crate) fn create(nvmap: Fd, size: u32) -> Result<u32> {
    let mut args = [size, 0];
    raw(nvmap, NVMAP_IOC_CREATE::REQUEST, args.as_mut_ptr() as u64)?;
    Ok(args[1])
}

pub(crate) fn alloc_args(handle: u32) -> nvmap_alloc_handle {
    nvmap_alloc_handle {
        handle,
        heap_mask: IOVMM,
        flags: 0x900 << 16 | 1,
        align: 4096,
        numa_nid: -1,
    }
}

pub(crate) fn alloc(nvmap: Fd, handle: u32) -> Result {
    call::<NVMAP_IOC_ALLOC>(nvmap, &mut alloc_args(handle))
}

pub(crate) fn get_fd(nvmap: Fd, handle: u32) -> Result<Fd> {
    let mut args = [0, handle];
    raw(nvmap, NVMAP_IOC_GET_FD::REQUEST, args.as_mut_ptr() as u64)?;
    Ok(args[0] as Fd)
}

pub(crate) fn free(nvmap: Fd, handle: u32) -> Result {
    raw(nvmap, NVMAP_IOC_FREE::REQUEST, handle.into())
}

/// Memory: its descriptor alone, as is usual.
pub(crate) fn buffer(nvmap: Fd, size: u32) -> Fd {
    let handle = create(nvmap, size).unwrap();
    alloc(nvmap, handle).unwrap();
    let fd = get_fd(nvmap, handle).unwrap();
    free(nvmap, handle).unwrap();
    fd
}

pub(crate) fn as_args() -> nvgpu_alloc_as_args {
    nvgpu_alloc_as_args {
        flags: 2,
        va_range_start: 0x20_0000,
        va_range_end: 0xFF_FFE0_0000,
        ..zeroed()
    }
}

/// The address space of the trace.
pub(crate) fn space(ctrl: Fd) -> Fd {
    space_in(ctrl, 0x20_0000, 0xFF_FFE0_0000)
}

pub(crate) fn space_in(ctrl: Fd, va_range_start: u64, va_range_end: u64) -> Fd {
    let mut args = nvgpu_alloc_as_args { va_range_start, va_range_end, ..as_args() };
    call::<NVGPU_GPU_IOCTL_ALLOC_AS>(ctrl, &mut args).unwrap();
    args.as_fd
}

pub(crate) fn map_args(buffer: Fd) -> nvgpu_as_map_buffer_ex_args {
    nvgpu_as_map_buffer_ex_args {
        dmabuf_fd: buffer as u32,
        compr_kind: -1,
        incompr_kind: 0,
        page_size: 4096,
        ..zeroed()
    }
}

pub(crate) fn map(space: Fd, buffer: Fd) -> Result<u64> {
    let mut args = map_args(buffer);
    call::<NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space, &mut args)?;
    Ok(args.offset)
}

pub(crate) fn map_at(space: Fd, buffer: Fd, offset: u64) -> Result<u64> {
    let mut args = nvgpu_as_map_buffer_ex_args { flags: 1, offset, ..map_args(buffer) };
    call::<NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space, &mut args)?;
    Ok(args.offset)
}

pub(crate) fn unmap(space: Fd, offset: u64) -> Result {
    call::<NVGPU_AS_IOCTL_UNMAP_BUFFER>(space, &mut nvgpu_as_unmap_buffer_args { offset })
}

/// A reservation: pages, and where when it matters.
pub(crate) fn reserve(space: Fd, pages: u64, at: Option<u64>) -> Result<u64> {
    let mut args = nvgpu_as_alloc_space_args { pages, page_size: 4096, ..zeroed() };
    args.flags = at.is_some().into();
    args.o_a.offset = at.unwrap_or(0);
    call::<NVGPU_AS_IOCTL_ALLOC_SPACE>(space, &mut args)?;
    Ok(unsafe { args.o_a.offset })
}

pub(crate) fn unreserve(space: Fd, offset: u64) -> Result {
    let mut args = nvgpu_as_free_space_args { offset, ..zeroed() };
    call::<NVGPU_AS_IOCTL_FREE_SPACE>(space, &mut args)
}

pub(crate) fn tsg(ctrl: Fd) -> Fd {
    let mut args: nvgpu_gpu_open_tsg_args = zeroed();
    call::<NVGPU_GPU_IOCTL_OPEN_TSG>(ctrl, &mut args).unwrap();
    args.tsg_fd as Fd
}

pub(crate) fn channel(ctrl: Fd) -> Fd {
    open_channel(ctrl, -1).unwrap()
}

pub(crate) fn open_channel(ctrl: Fd, runlist: i32) -> Result<Fd> {
    let mut args = runlist;
    raw(ctrl, NVGPU_GPU_IOCTL_OPEN_CHANNEL::REQUEST, (&raw mut args) as u64)?;
    Ok(args)
}

pub(crate) fn bind_space(space: Fd, channel: Fd) -> Result {
    let mut args = nvgpu_as_bind_channel_args { channel_fd: channel as u32 };
    call::<NVGPU_AS_IOCTL_BIND_CHANNEL>(space, &mut args)
}

pub(crate) fn subcontext(tsg: Fd, space: Fd, r#type: u32) -> Result<u32> {
    let mut args = nvgpu_tsg_create_subcontext_args { r#type, as_fd: space, veid: 0, reserved: 0 };
    call::<NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT>(tsg, &mut args)?;
    Ok(args.veid)
}

pub(crate) fn bind_tsg(tsg: Fd, channel: Fd, subcontext_id: u32) -> Result {
    let mut args =
        nvgpu_tsg_bind_channel_ex_args { channel_fd: channel, subcontext_id, ..zeroed() };
    call::<NVGPU_TSG_IOCTL_BIND_CHANNEL_EX>(tsg, &mut args)
}

pub(crate) fn watchdog(channel: Fd, wdt_status: u32) -> Result {
    let mut args = nvgpu_channel_wdt_args { wdt_status, timeout_ms: 0 };
    call::<NVGPU_IOCTL_CHANNEL_WDT>(channel, &mut args)
}

pub(crate) fn setup_args(ring: Fd, userd: Fd) -> nvgpu_channel_setup_bind_args {
    nvgpu_channel_setup_bind_args {
        num_gpfifo_entries: 1024,
        flags: 0xA,
        gpfifo_dmabuf_fd: ring,
        userd_dmabuf_fd: userd,
        ..zeroed()
    }
}

pub(crate) fn setup(channel: Fd, ring: Fd, userd: Fd) -> Result<u32> {
    let mut args = setup_args(ring, userd);
    call::<NVGPU_IOCTL_CHANNEL_SETUP_BIND>(channel, &mut args)?;
    Ok(args.work_submit_token)
}

pub(crate) fn syncpoint(channel: Fd) -> Result<nvgpu_get_user_syncpoint_args> {
    let mut args = zeroed();
    call::<NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT>(channel, &mut args)?;
    Ok(args)
}

pub(crate) fn object(channel: Fd, class_num: u32) -> Result {
    let mut args = nvgpu_alloc_obj_ctx_args { class_num, flags: 0, obj_id: 7 };
    let result = call::<NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX>(channel, &mut args);
    assert_eq!(args.obj_id, 7, "obj_id is left alone");
    result
}

pub(crate) fn notifier(channel: Fd, mem: Fd, offset: u64) -> Result {
    let mut args = nvgpu_set_error_notifier { offset, size: 0, mem: mem as u32, padding: 0 };
    call::<NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER>(channel, &mut args)
}

/// A channel with everything but its ring.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) nvmap: Fd,
    pub(crate) ctrl: Fd,
    pub(crate) space: Fd,
    pub(crate) tsg: Fd,
    pub(crate) channel: Fd,
}

pub(crate) fn bound() -> Bound {
    let (nvmap, ctrl) = (nvmap(), ctrl());
    let space = space_in(ctrl, 0x20_0000, 0xFE_FFE0_0000);
    let tsg = tsg(ctrl);
    let channel = channel(ctrl);
    bind_space(space, channel).unwrap();
    bind_tsg(tsg, channel, 0).unwrap();
    Bound { nvmap, ctrl, space, tsg, channel }
}

/// One with its watchdog off, and buffers for its ring.
pub(crate) fn ready() -> (Bound, Fd, Fd) {
    let bound = bound();
    let (ring, userd) = bound.buffers();
    (bound, ring, userd)
}

impl Bound {
    /// Another channel of the same group.
    pub(crate) fn beside(&self, channel: Fd) -> Self {
        bind_space(self.space, channel).unwrap();
        bind_tsg(self.tsg, channel, 0).unwrap();
        Self { channel, ..*self }
    }

    /// For its ring, with the watchdog off.
    pub(crate) fn buffers(&self) -> (Fd, Fd) {
        watchdog(self.channel, 1).unwrap();
        (buffer(self.nvmap, 8192), buffer(self.nvmap, 4096))
    }
}

/// Memory of a file, unmapped when it goes.
pub(crate) struct Map {
    pub(crate) start: *mut u8,
    size: usize,
}

pub(crate) fn mmap(fd: Fd, size: usize, offset: i64) -> Result<Map> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, fd, offset) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error().raw_os_error().unwrap());
    }
    Ok(Map { start: start.cast(), size })
}

impl Map {
    pub(crate) fn read(&self, offset: usize) -> u32 {
        unsafe { self.start.add(offset).cast::<u32>().read_volatile() }
    }

    pub(crate) fn write(&self, offset: usize, value: u32) {
        unsafe { self.start.add(offset).cast::<u32>().write_volatile(value) }
    }

    /// Where it is.
    pub(crate) fn at(&self, page: usize) -> u64 {
        self.start as u64 + page as u64 * 4096
    }

    /// Changes the permissions of some pages.
    pub(crate) fn protect(&self, first: usize, count: usize, protection: i32) {
        let at = self.at(first) as *mut libc::c_void;
        assert_eq!(unsafe { libc::mprotect(at, count * 4096, protection) }, 0);
    }

    // The other side writes at any time; nobody here keeps two of them.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn bytes(&self) -> &mut [u8] {
        unsafe { std::slice::from_raw_parts_mut(self.start, self.size) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.start.cast(), self.size) };
    }
}

/// Pages of its own, beside which nothing can be touched.
pub(crate) fn own_pages(count: usize) -> Map {
    let size = (count + 2) * 4096;
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0)
    };
    let pages = Map { start: unsafe { start.cast::<u8>().add(4096) }, size: count * 4096 };
    pages.protect(0, count, libc::PROT_READ | libc::PROT_WRITE);
    pages
}

/// A handle of a program's own pages; the second size counts where the first is 0.
pub(crate) fn from_va(nvmap: Fd, va: u64, sizes: (u32, u64), flags: u32) -> Result<u32> {
    let mut args = [va, u64::from(sizes.0) | u64::from(flags) << 32, sizes.1];
    raw(nvmap, NVMAP_IOC_FROM_VA::REQUEST, args.as_mut_ptr() as u64)?;
    Ok(args[2] as u32)
}

/// An address that is followed by nothing: `have` bytes can be used.
pub(crate) fn edge(have: usize) -> u64 {
    let size = 4096;
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), size * 2, protection, flags, -1, 0)
    };
    unsafe { libc::munmap(start.byte_add(size), size) };
    start as u64 + (size - have) as u64
}

/// What a child does; the parent goes on when it has ended.
pub(crate) fn in_child(body: impl FnOnce()) {
    match unsafe { libc::fork() } {
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            unsafe { libc::_exit(done.is_err().into()) };
        }
        child => {
            let mut status = 0;
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child failed");
        }
    }
}

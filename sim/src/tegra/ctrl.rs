//! The control node: what the GPU is, and the beginning of everything else.

use std::collections::BTreeMap;

use super::args::{self, Args, as_bytes, uncopied, write};
use super::nvmap::Metadata;
use super::{CHANNELS, Errno, File, FileId, Kernel, Result, gpu};
use crate::client::Client;
use crate::gpu::{self as engine, Clock, USERMODE_SIZE};
use crate::memory::{Memory, Node};
use crate::tegra::abi::*;

/// Nobody has more address than this.
const USER_END: u64 = 1 << 47;

impl Kernel {
    pub(super) fn open_ctrl(&mut self) -> Result<FileId> {
        let memory = Memory::new(USERMODE_SIZE)?;
        engine::clear(&memory);
        self.last_ctrl += 1;
        self.add_file(File::Ctrl(self.last_ctrl), memory)
    }

    /// Sets the timer of a mapped region.
    pub(super) fn tick_region(&self, region: &Memory) {
        engine::set_time(region, &self.clock);
    }

    pub(super) fn ctrl_ioctl(
        &mut self,
        client: &dyn Client,
        ctrl: u64,
        request: u32,
        args: &mut Args,
    ) -> Result<i64> {
        match request {
            NVGPU_GPU_IOCTL_ZCULL_GET_CTX_SIZE::REQUEST => {
                args.put_word(0, gpu::ZCULL_CONTEXT);
                Ok(0)
            }
            NVGPU_GPU_IOCTL_ZCULL_GET_INFO::REQUEST => {
                args.put(&gpu::zcull());
                Ok(0)
            }
            NVGPU_GPU_IOCTL_GET_CHARACTERISTICS::REQUEST => {
                self.characteristics(client, ctrl, args)
            }
            NVGPU_GPU_IOCTL_ALLOC_AS::REQUEST => self.alloc_as(client, args),
            NVGPU_GPU_IOCTL_OPEN_TSG::REQUEST => self.open_tsg_call(client, ctrl, args),
            NVGPU_GPU_IOCTL_GET_TPC_MASKS::REQUEST => {
                let wanted: nvgpu_gpu_get_tpc_masks_args = args.get();
                let (size, address) = (wanted.mask_buf_size, wanted.mask_buf_addr);
                let masks = gpu::tpc_masks();
                negotiate(client, args, size, address, &masks, |args, size| {
                    args.update(|args: &mut nvgpu_gpu_get_tpc_masks_args| args.mask_buf_size = size)
                })
            }
            NVGPU_GPU_IOCTL_GET_FBP_L2_MASKS::REQUEST => {
                let wanted: nvgpu_gpu_get_fbp_l2_masks_args = args.get();
                let (size, address) = (wanted.mask_buf_size, wanted.mask_buf_addr);
                let masks = gpu::l2_masks();
                negotiate(client, args, size, address, &masks, |args, size| {
                    args.update(|args: &mut nvgpu_gpu_get_fbp_l2_masks_args| {
                        args.mask_buf_size = size;
                    })
                })
            }
            NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_PHYSICAL_MAP::REQUEST => {
                let wanted: nvgpu_gpu_get_gpc_physical_map_args = args.get();
                gpc_map(client, wanted.map_buf_size, wanted.physical_gpc_buf_addr)
            }
            NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_LOGICAL_MAP::REQUEST => {
                let wanted: nvgpu_gpu_get_gpc_logical_map_args = args.get();
                gpc_map(client, wanted.map_buf_size, wanted.logical_gpc_buf_addr)
            }
            NVGPU_GPU_IOCTL_OPEN_CHANNEL::REQUEST => self.open_channel_call(client, args),
            NVGPU_GPU_IOCTL_FLUSH_L2::REQUEST => flush(args),
            NVGPU_GPU_IOCTL_NUM_VSMS::REQUEST => {
                args.put_word(0, gpu::SMS);
                Ok(0)
            }
            NVGPU_GPU_IOCTL_VSMS_MAPPING::REQUEST => {
                let address = args.get::<nvgpu_gpu_vsms_mapping>().vsms_map_buf_addr;
                let bytes: Vec<u8> = match self.layouts.branch {
                    36.. => gpu::sms().iter().flat_map(|sm| as_bytes(sm).to_vec()).collect(),
                    // The GPC and the TPC, under other names.
                    _ => {
                        let place = |sm: &nvgpu_gpu_vsms_mapping_entry| {
                            [sm.gpc_logical_index, sm.tpc_local_logical_index]
                        };
                        gpu::sms().iter().flat_map(place).collect()
                    }
                };
                Ok(uncopied(client, address, &bytes))
            }
            NVGPU_GPU_IOCTL_GET_CPU_TIME_CORRELATION_INFO::REQUEST => self.correlate(args),
            NVGPU_GPU_IOCTL_GET_GPU_TIME::REQUEST => {
                let time = self.clock.gpu();
                args.update(|args: &mut nvgpu_gpu_get_gpu_time_args| args.gpu_timestamp = time);
                Ok(0)
            }
            NVGPU_GPU_IOCTL_GET_ENGINE_INFO::REQUEST => engines(client, args),
            NVGPU_GPU_IOCTL_CLK_GET_RANGE::REQUEST => clock_range(client, args),
            NVGPU_GPU_IOCTL_CLK_GET_VF_POINTS::REQUEST => clock_points(client, args),
            NVGPU_GPU_IOCTL_CLK_GET_INFO::REQUEST => self.clock_info(client, ctrl, args),
            NVGPU_GPU_IOCTL_CLK_SET_INFO::REQUEST => self.set_clock(client, ctrl, args),
            NVGPU_GPU_IOCTL_SET_DETERMINISTIC_OPTS::REQUEST => self.deterministic(client, args),
            NVGPU_GPU_IOCTL_REGISTER_BUFFER::REQUEST => self.register_buffer(client, args),
            NVGPU_GPU_IOCTL_GET_BUFFER_INFO::REQUEST => self.buffer_info(client, args),
            // Only drivers of cards have memory of their own.
            NVGPU_GPU_IOCTL_ALLOC_VIDMEM::REQUEST | NVGPU_GPU_IOCTL_GET_MEMORY_STATE::REQUEST => {
                Err(Errno::ENOTTY)
            }
            NVGPU_GPU_IOCTL_PREPARE_COMPRESSIBLE_READ::REQUEST
            | NVGPU_GPU_IOCTL_MARK_COMPRESSIBLE_WRITE::REQUEST => Err(Errno::ENOSYS),
            // What Orin cannot measure (NVGPU_GPU_FLAGS_SUPPORT_GET_VOLTAGE and the like are off).
            NVGPU_GPU_IOCTL_GET_EVENT_FD::REQUEST
            | NVGPU_GPU_IOCTL_GET_VOLTAGE::REQUEST
            | NVGPU_GPU_IOCTL_GET_CURRENT::REQUEST
            | NVGPU_GPU_IOCTL_GET_POWER::REQUEST
            | NVGPU_GPU_IOCTL_GET_TEMPERATURE::REQUEST
            | NVGPU_GPU_IOCTL_SET_THERM_ALERT_LIMIT::REQUEST => Err(Errno::EINVAL),
            NVGPU_GPU_IOCTL_ZBC_SET_TABLE::REQUEST
            | NVGPU_GPU_IOCTL_ZBC_QUERY_TABLE::REQUEST
            | NVGPU_GPU_IOCTL_SET_MMUDEBUG_MODE::REQUEST
            | NVGPU_GPU_IOCTL_SET_SM_DEBUG_MODE::REQUEST
            | NVGPU_GPU_IOCTL_TRIGGER_SUSPEND::REQUEST
            | NVGPU_GPU_IOCTL_WAIT_FOR_PAUSE::REQUEST
            | NVGPU_GPU_IOCTL_RESUME_FROM_PAUSE::REQUEST
            | NVGPU_GPU_IOCTL_CLEAR_SM_ERRORS::REQUEST
            | NVGPU_GPU_IOCTL_GET_TPC_EXCEPTION_EN_STATUS::REQUEST => {
                self.not_simulated(client, request)
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    /// G/os/linux/ioctl_ctrl.c:365-586: however much fits is copied, and how much there is is told.
    fn characteristics(&self, client: &dyn Client, ctrl: u64, args: &mut Args) -> Result<i64> {
        let mut wanted: nvgpu_gpu_get_characteristics = args.get();
        let last = |node| self.layouts.limits(node).last.into();
        let gpu = nvgpu_gpu_characteristics {
            gpu_ioctl_nr_last: last("ctrl"),
            tsg_ioctl_nr_last: last("tsg"),
            dbg_gpu_ioctl_nr_last: last("dbg"),
            ioctl_channel_nr_last: last("channel"),
            as_ioctl_nr_last: last("as"),
            event_ioctl_nr_last: last("event"),
            ctxsw_ioctl_nr_last: last("ctxsw"),
            prof_ioctl_nr_last: last("prof"),
            nvs_ioctl_nr_last: last("nvsched"),
            ..gpu::characteristics(ctrl, client.may_reschedule())
        };
        let bytes = self.layouts.export(&gpu);
        let room = usize::try_from(wanted.gpu_characteristics_buf_size).unwrap_or(usize::MAX);
        let size = bytes.len().min(room);
        let left = uncopied(client, wanted.gpu_characteristics_buf_addr, &bytes[..size]);
        if left == 0 {
            wanted.gpu_characteristics_buf_size = bytes.len() as u64;
            args.put(&wanted);
        }
        Ok(left)
    }

    /// G/os/linux/ioctl_ctrl.c:1225-1270.
    fn correlate(&mut self, args: &mut Args) -> Result<i64> {
        let mut wanted: nvgpu_gpu_get_cpu_time_correlation_info_args = args.get();
        if wanted.count > NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_MAX_COUNT {
            return Err(Errno::EINVAL);
        }
        let is_counter = match wanted.source_id {
            NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_SRC_ID_TSC => true,
            NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_SRC_ID_OSTIME => false,
            _ => return Err(Errno::EINVAL),
        };
        for sample in wanted.samples.iter_mut().take(wanted.count as usize) {
            sample.cpu_timestamp = if is_counter { self.clock.counter() } else { Clock::unix() };
            sample.gpu_timestamp = self.clock.gpu();
        }
        args.put(&wanted);
        Ok(0)
    }

    /// G/os/linux/ioctl_ctrl.c:2050-2125. How far it got is lost with the error.
    fn deterministic(&mut self, client: &dyn Client, args: &Args) -> Result<i64> {
        let wanted: nvgpu_gpu_set_deterministic_opts_args = args.get();
        if wanted.num_channels > CHANNELS {
            return Err(Errno::EINVAL);
        }
        let size = u64::from(wanted.num_channels) * 4;
        if wanted.channels.checked_add(size).is_none_or(|end| end > USER_END) {
            return Err(Errno::EFAULT);
        }
        for index in 0..u64::from(wanted.num_channels) {
            let mut fd = [0; 4];
            if client.read(wanted.channels + index * 4, &mut fd) < fd.len() {
                return Err(Errno::EFAULT);
            }
            let chid = self.channel_of(client, i32::from_le_bytes(fd))?;
            if !self.is_deterministic(chid) {
                return Err(Errno::EINVAL);
            }
        }
        Ok(0)
    }

    /// G/os/linux/ioctl_ctrl.c:2300-2425.
    fn register_buffer(&mut self, client: &dyn Client, args: &mut Args) -> Result<i64> {
        let wanted: nvgpu_gpu_register_buffer_args = args.get();
        if wanted.metadata_size > NVGPU_GPU_REGISTER_BUFFER_METADATA_MAX_SIZE
            || u32::from(wanted.comptags_alloc_control) > NVGPU_GPU_COMPTAGS_ALLOC_REQUIRED
        {
            return Err(Errno::EINVAL);
        }
        let (id, _) = self.dmabuf_of(client, wanted.dmabuf_fd)?;
        let buffer = self.nvmap.buffer_mut(id)?;
        let is_change = wanted.flags & NVGPU_GPU_REGISTER_BUFFER_FLAGS_MODIFY != 0;
        if buffer.metadata.as_ref().is_some_and(|old| !is_change || !old.mutable) {
            return Err(Errno::EINVAL);
        }
        let mut blob = vec![0; wanted.metadata_size as usize];
        if client.read(wanted.metadata_addr, &mut blob) < blob.len() {
            return Err(Errno::EFAULT);
        }
        let comptags = u32::from(wanted.comptags_alloc_control) != NVGPU_GPU_COMPTAGS_ALLOC_NONE;
        let mutable = wanted.flags & NVGPU_GPU_REGISTER_BUFFER_FLAGS_MUTABLE != 0;
        buffer.metadata = Some(Metadata { blob, mutable, comptags });
        args.update(|args: &mut nvgpu_gpu_register_buffer_args| {
            args.flags =
                if comptags { NVGPU_GPU_REGISTER_BUFFER_FLAGS_COMPTAGS_ALLOCATED } else { 0 };
        });
        Ok(0)
    }

    /// G/os/linux/ioctl_ctrl.c:2130-2210. What goes in is a
    /// descriptor, a size and an address; what comes out, in the same place, flags and two sizes.
    fn buffer_info(&mut self, client: &dyn Client, args: &mut Args) -> Result<i64> {
        let (fd, room, address) = (args.word(0) as i32, args.word(1) as usize, args.double(2));
        let (id, _) = self.dmabuf_of(client, fd)?;
        let buffer = self.nvmap.buffer(id)?;
        let (mut flags, mut size) = (0, 0);
        if let Some(metadata) = &buffer.metadata {
            write(client, address, &metadata.blob[..metadata.blob.len().min(room)])?;
            size = metadata.blob.len() as u32;
            flags |= NVGPU_GPU_BUFFER_INFO_FLAGS_METADATA_REGISTERED;
            if metadata.comptags {
                flags |= NVGPU_GPU_BUFFER_INFO_FLAGS_COMPTAGS_ALLOCATED;
            }
            if metadata.mutable {
                flags |= NVGPU_GPU_BUFFER_INFO_FLAGS_MUTABLE_METADATA;
            }
        }
        args.put_double(0, flags.into());
        args.put_double(2, size.into());
        args.put_double(4, buffer.size);
        Ok(0)
    }
}

/// However much fits is copied, and how much there is is told (G/os/linux/ioctl_ctrl.c:849-901).
fn negotiate(
    client: &dyn Client,
    args: &mut Args,
    size: u32,
    address: u64,
    bytes: &[u8],
    tell: impl FnOnce(&mut Args, u32),
) -> Result<i64> {
    let size = bytes.len().min(size as usize);
    let left = uncopied(client, address, &bytes[..size]);
    if left == 0 {
        tell(args, bytes.len() as u32);
    }
    Ok(left)
}

/// G/os/linux/ioctl_ctrl.c:775-847: the size must be exact.
fn gpc_map(client: &dyn Client, size: u32, address: u64) -> Result<i64> {
    if size != gpu::GPCS * 4 {
        return Err(Errno::EINVAL);
    }
    let map: Vec<u8> = (0..gpu::GPCS).flat_map(u32::to_le_bytes).collect();
    write(client, address, &map)?;
    Ok(0)
}

/// G/os/linux/ioctl_ctrl.c:903-940: bits 0 to 2 are flush and invalidate of L2, and flush of memory.
fn flush(args: &Args) -> Result<i64> {
    let bit = |bit: u32| args.word(0) >> bit & 1 != 0;
    let (l2_flush, l2_invalidate, fb_flush) = (bit(0), bit(1), bit(2));
    if !l2_flush && (!fb_flush || l2_invalidate) {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

/// G/os/linux/ioctl_ctrl.c:1325-1370.
fn engines(client: &dyn Client, args: &mut Args) -> Result<i64> {
    let mut wanted: nvgpu_gpu_get_engine_info_args = args.get();
    let size = size_of::<nvgpu_gpu_get_engine_info_item>();
    let room = wanted.engine_info_buf_size as usize / size;
    for (index, (engine, instance, runlist)) in gpu::ENGINES.iter().enumerate().take(room) {
        let item = nvgpu_gpu_get_engine_info_item {
            engine_id: *engine,
            engine_instance: *instance,
            runlist_id: *runlist as i32,
            reserved: 0,
        };
        let at = wanted.engine_info_buf_addr.wrapping_add((index * size) as u64);
        let left = uncopied(client, at, as_bytes(&item));
        if left != 0 {
            return Ok(left);
        }
    }
    wanted.engine_info_buf_size = (gpu::ENGINES.len() * size) as u32;
    args.put(&wanted);
    Ok(0)
}

/// The only clock that can be controlled.
const DOMAINS: u16 = 1;

/// G/os/linux/ioctl_ctrl.c:1588-1667.
fn clock_range(client: &dyn Client, args: &mut Args) -> Result<i64> {
    let mut wanted: nvgpu_gpu_clk_range_args = args.get();
    let Some(count) = domains(wanted.flags, wanted.num_entries, DOMAINS)? else {
        wanted.num_entries = DOMAINS;
        args.put(&wanted);
        return Ok(0);
    };
    for index in 0..u64::from(count) {
        let size = size_of::<nvgpu_gpu_clk_range>() as u64;
        let at = wanted.clk_range_entries.wrapping_add(index * size);
        let mut range: nvgpu_gpu_clk_range = Args::new(0).get();
        range.clk_domain = NVGPU_GPU_CLK_DOMAIN_GPCCLK;
        if wanted.flags != 0 {
            range = args::read(client, at)?;
        }
        if range.clk_domain != NVGPU_GPU_CLK_DOMAIN_GPCCLK {
            return Err(Errno::EINVAL);
        }
        range.flags = 0;
        range.min_hz = gpu::MIN_FREQUENCY;
        range.max_hz = gpu::MAX_FREQUENCY;
        write(client, at, as_bytes(&range))?;
    }
    wanted.num_entries = count;
    args.put(&wanted);
    Ok(0)
}

/// How many entries a call is about; `None` when it asks how many there are.
fn domains(flags: u32, wanted: u16, most: u16) -> Result<Option<u16>> {
    match flags {
        0 if wanted == 0 => Ok(None),
        0 if wanted >= DOMAINS => Ok(Some(DOMAINS)),
        NVGPU_GPU_CLK_FLAG_SPECIFIC_DOMAINS if wanted <= most => Ok(Some(wanted)),
        _ => Err(Errno::EINVAL),
    }
}

/// G/os/linux/ioctl_ctrl.c:1497-1586.
fn clock_points(client: &dyn Client, args: &mut Args) -> Result<i64> {
    let mut wanted: nvgpu_gpu_clk_vf_points_args = args.get();
    if wanted.flags != 0 || wanted.clk_domain != NVGPU_GPU_CLK_DOMAIN_GPCCLK {
        return Err(Errno::EINVAL);
    }
    let points = points();
    wanted.num_entries = 0;
    if wanted.max_entries == 0 {
        wanted.max_entries = points.len() as u16;
        args.put(&wanted);
        return Ok(0);
    }
    if usize::from(wanted.max_entries) < points.len() {
        return Err(Errno::EINVAL);
    }
    let bytes: Vec<u8> = points.iter().flat_map(|hz| hz.to_le_bytes()).collect();
    let left = uncopied(client, wanted.clk_vf_point_entries, &bytes);
    if left == 0 {
        wanted.num_entries = points.len() as u16;
        args.put(&wanted);
    }
    Ok(left)
}

/// What each ctrl file wants the clock to be, in Hz.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    targets: BTreeMap<u64, u64>,
}

impl Clocks {
    fn target(&self, ctrl: u64) -> u64 {
        self.targets.get(&ctrl).copied().unwrap_or(gpu::MIN_FREQUENCY)
    }

    /// The lowest point that is enough for all of them.
    fn actual(&self) -> u64 {
        let wanted = self.targets.values().copied().max().unwrap_or(gpu::MIN_FREQUENCY);
        let enough = points().into_iter().find(|point| *point >= wanted);
        enough.unwrap_or(gpu::MAX_FREQUENCY)
    }

    /// The file is gone.
    pub(super) fn forget(&mut self, ctrl: u64) {
        self.targets.remove(&ctrl);
    }
}

impl Kernel {
    /// G/os/linux/ioctl_ctrl.c:1741-1835.
    fn clock_info(&self, client: &dyn Client, ctrl: u64, args: &mut Args) -> Result<i64> {
        let mut wanted: nvgpu_gpu_clk_get_info_args = args.get();
        let Some(count) = domains(wanted.flags, wanted.num_entries, DOMAINS * 3)? else {
            wanted.num_entries = DOMAINS;
            args.put(&wanted);
            return Ok(0);
        };
        for index in 0..u64::from(count) {
            let size = size_of::<nvgpu_gpu_clk_info>() as u64;
            let at = wanted.clk_info_entries.wrapping_add(index * size);
            let mut info: nvgpu_gpu_clk_info = Args::new(0).get();
            info.clk_domain = NVGPU_GPU_CLK_DOMAIN_GPCCLK;
            info.clk_type = wanted.clk_type;
            if wanted.flags != 0 {
                info = args::read(client, at)?;
            }
            let types = NVGPU_GPU_CLK_TYPE_TARGET..=NVGPU_GPU_CLK_TYPE_EFFECTIVE;
            if info.clk_domain != NVGPU_GPU_CLK_DOMAIN_GPCCLK
                || !types.contains(&info.clk_type.into())
            {
                return Err(Errno::EINVAL);
            }
            info.flags = 0;
            info.freq_hz = match info.clk_type.into() {
                NVGPU_GPU_CLK_TYPE_TARGET => self.clocks.target(ctrl),
                _ => self.clocks.actual(),
            };
            write(client, at, as_bytes(&info))?;
        }
        wanted.num_entries = count;
        args.put(&wanted);
        Ok(0)
    }

    /// G/os/linux/ioctl_ctrl.c:1668-1738. The change is made at once, so the file that signals it is
    /// readable from the beginning.
    fn set_clock(&mut self, client: &dyn Client, ctrl: u64, args: &mut Args) -> Result<i64> {
        let mut wanted: nvgpu_gpu_clk_set_info_args = args.get();
        if wanted.flags != 0 || wanted.num_entries == 0 || wanted.num_entries > DOMAINS {
            return Err(Errno::EINVAL);
        }
        let info: nvgpu_gpu_clk_info = args::read(client, wanted.clk_info_entries)?;
        if info.clk_domain != NVGPU_GPU_CLK_DOMAIN_GPCCLK {
            return Err(Errno::EINVAL);
        }
        let file = self.add_signal(File::Event)?;
        wanted.completion_fd = self.install(client, file)?;
        if let Some(Node::Signal(signal)) = self.files.get(file).map(|open| &*open.node) {
            signal.raise();
        }
        // The driver counts in MHz.
        self.clocks.targets.insert(ctrl, info.freq_hz / 1_000_000 * 1_000_000);
        args.put(&wanted);
        Ok(0)
    }
}

/// What the clock can be, in whole MHz.
fn points() -> [u64; super::devfreq::FREQUENCIES.len()] {
    super::devfreq::FREQUENCIES.map(|hz| hz / 1_000_000 * 1_000_000)
}

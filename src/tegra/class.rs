//! Methods of the engines' classes, as far as command streams are written here, and executed by the
//! simulated kernel.
//!
//! They are those of NVIDIA's class headers (clc46f.h, clc7b5.h, clc7c0.h in
//! src/common/sdk/nvidia/inc/class of open-gpu-kernel-modules); `tests/tegra_class.rs` compares each
//! with the lock. Orin's channel class 0xc76f has no header of its own there; its methods are those
//! of the classes before it.

/// Channels of Orin's GPU.
pub const AMPERE_CHANNEL_GPFIFO_B: u32 = 0xc76f;
/// Compute on Orin's GPU.
pub const AMPERE_COMPUTE_B: u32 = 0xc7c0;
/// Copies on Orin's GPU.
pub const AMPERE_DMA_COPY_B: u32 = 0xc7b5;

/// Methods of the host, which every subchannel has.
pub mod host {
    /// Binds a class to the subchannel.
    pub const SET_OBJECT: u32 = 0x0;
    /// Stops the channel.
    pub const ILLEGAL: u32 = 0x4;
    /// Does nothing.
    pub const NOP: u32 = 0x8;
    /// Address of a semaphore, bits 39:32, in the older way.
    pub const SEMAPHOREA: u32 = 0x10;
    /// Address of a semaphore, bits 31:2, in the older way.
    pub const SEMAPHOREB: u32 = 0x14;
    /// Its value, in the older way.
    pub const SEMAPHOREC: u32 = 0x18;
    /// What to do with it, in the older way.
    pub const SEMAPHORED: u32 = 0x1c;
    /// Interrupts the CPU and goes on.
    pub const NON_STALL_INTERRUPT: u32 = 0x20;
    /// Flushes what was written.
    pub const FB_FLUSH: u32 = 0x24;
    /// Operations on memory, such as invalidations of address translations.
    pub const MEM_OP_A: u32 = 0x28;
    /// The last word of them, which starts one.
    pub const MEM_OP_D: u32 = 0x34;
    /// A value that the channel's state shows.
    pub const SET_REFERENCE: u32 = 0x50;
    /// Address of a semaphore, bits 31:2.
    pub const SEM_ADDR_LO: u32 = 0x5c;
    /// Address of a semaphore, bits 39:32.
    pub const SEM_ADDR_HI: u32 = 0x60;
    /// Its value.
    pub const SEM_PAYLOAD_LO: u32 = 0x64;
    /// Upper half of its value.
    pub const SEM_PAYLOAD_HI: u32 = 0x68;
    /// What to do with it.
    pub const SEM_EXECUTE: u32 = 0x6c;
    /// `SEM_EXECUTE`: write the value.
    pub const SEM_EXECUTE_RELEASE: u32 = 1;
    /// `SEM_EXECUTE`: wait until it is not before the value, with wrap-around.
    pub const SEM_EXECUTE_ACQ_CIRC_GEQ: u32 = 3;
    /// `SEM_EXECUTE`: let other channels run while it waits.
    pub const SEM_EXECUTE_ACQUIRE_SWITCH_TSG: u32 = 1 << 12;
    /// `SEM_EXECUTE`: the value has 64 bits.
    pub const SEM_EXECUTE_PAYLOAD_64BIT: u32 = 1 << 24;
    /// `SEM_EXECUTE`: write the time behind the value, which then has 64 bits.
    pub const SEM_EXECUTE_RELEASE_TIMESTAMP: u32 = 1 << 25;
    /// `SEM_EXECUTE`: wait until the engine is idle first.
    pub const SEM_EXECUTE_RELEASE_WFI: u32 = 1 << 20;
    /// Waits until the engine is idle.
    pub const WFI: u32 = 0x78;
    /// `WFI`: everything of the channel, not only what touches other memory.
    pub const WFI_SCOPE_ALL: u32 = 1;
    /// Lets other channels run.
    pub const YIELD: u32 = 0x80;
    /// Goes on after a fault that was seen to.
    pub const CLEAR_FAULTED: u32 = 0x84;
}

/// Methods of class 0xc7b5.
pub mod copy {
    /// Address of the semaphore of a copy, upper half; the lower half follows.
    pub const SET_SEMAPHORE_A: u32 = 0x240;
    /// What is written to it; the upper half follows.
    pub const SET_SEMAPHORE_PAYLOAD: u32 = 0x248;
    /// Whether copies are made at all.
    pub const SET_RENDER_ENABLE_C: u32 = 0x25c;
    /// Starts a copy.
    pub const LAUNCH_DMA: u32 = 0x300;
    /// Where from, upper half; the lower half, where to and the pitches follow.
    pub const OFFSET_IN_UPPER: u32 = 0x400;
    /// Where to, upper half; the lower half follows.
    pub const OFFSET_OUT_UPPER: u32 = 0x408;
    /// Bytes from one line to the next, where from.
    pub const PITCH_IN: u32 = 0x410;
    /// Bytes from one line to the next, where to.
    pub const PITCH_OUT: u32 = 0x414;
    /// Bytes of a line; the number of lines follows.
    pub const LINE_LENGTH_IN: u32 = 0x418;
    /// The number of lines.
    pub const LINE_COUNT: u32 = 0x41c;
    /// A value to fill with; the components follow at 0x708.
    pub const SET_REMAP_CONST_A: u32 = 0x700;
    /// Another one.
    pub const SET_REMAP_CONST_B: u32 = 0x704;
    /// What each component of an element is.
    pub const SET_REMAP_COMPONENTS: u32 = 0x708;
    /// `LAUNCH_DMA`: after what came before it, not beside it.
    pub const NON_PIPELINED: u32 = 2;
    /// `LAUNCH_DMA`: make the result visible.
    pub const FLUSH: u32 = 1 << 2;
    /// `LAUNCH_DMA`: both sides are lines, not tiles.
    pub const BOTH_PITCH: u32 = 1 << 7 | 1 << 8;
    /// `LAUNCH_DMA`: more than one line.
    pub const MULTI_LINE: u32 = 1 << 9;
    /// `LAUNCH_DMA`: components go where `SET_REMAP_COMPONENTS` says.
    pub const REMAP: u32 = 1 << 10;
    /// `SET_REMAP_COMPONENTS`: one component of four bytes, the constant A.
    pub const FILL_WORDS: u32 = 4 | 3 << 16;
}

/// Methods of class 0xc7c0.
pub mod compute {
    /// What a semaphore is given; the upper half follows.
    pub const SET_REPORT_SEMAPHORE_PAYLOAD_LOWER: u32 = 0x158;
    /// Address of the semaphore, lower half; the upper half follows.
    pub const SET_REPORT_SEMAPHORE_ADDRESS_LOWER: u32 = 0x160;
    /// What to do with it.
    pub const REPORT_SEMAPHORE_EXECUTE: u32 = 0x168;
    /// Bytes of a line that is sent inside the command stream; lines and the place follow.
    pub const LINE_LENGTH_IN: u32 = 0x180;
    /// The number of lines.
    pub const LINE_COUNT: u32 = 0x184;
    /// Where to, upper half; the lower half follows.
    pub const OFFSET_OUT_UPPER: u32 = 0x188;
    /// Bytes from one line to the next, where to.
    pub const PITCH_OUT: u32 = 0x190;
    /// Starts to take inline data.
    pub const LAUNCH_DMA: u32 = 0x1b0;
    /// The data.
    pub const LOAD_INLINE_DATA: u32 = 0x1b4;
    /// Address of the semaphore of inline data, upper half; the lower half and the value follow.
    pub const SET_I2M_SEMAPHORE_A: u32 = 0x1dc;
    /// `LAUNCH_DMA`: lines, not tiles, and the result visible.
    pub const LAUNCH_PITCH_FLUSH: u32 = 1 | 1 << 4;
    /// Where a kernel's description lies, in units of 256 bytes.
    pub const SEND_PCAS_A: u32 = 0x2b4;
    /// What of it is sent.
    pub const SEND_PCAS_B: u32 = 0x2b8;
    /// Starts it, in the older way.
    pub const SEND_SIGNALING_PCAS_B: u32 = 0x2bc;
    /// Starts it.
    pub const SEND_SIGNALING_PCAS2_B: u32 = 0x2c0;
    /// `SEND_SIGNALING_PCAS2_B`: read the description anew, then schedule it.
    pub const INVALIDATE_COPY_SCHEDULE: u32 = 3;
    /// Where a description that comes in the command stream is put, upper half, in units of 256 bytes;
    /// the lower half follows.
    pub const SET_INLINE_QMD_ADDRESS_A: u32 = 0x318;
    /// Where shaders see shared memory, upper half; the lower half follows.
    pub const SET_SHADER_SHARED_MEMORY_WINDOW_A: u32 = 0x2a0;
    /// The lower half.
    pub const SET_SHADER_SHARED_MEMORY_WINDOW_B: u32 = 0x2a4;
    /// Bytes of local memory of a TPC, upper half; the lower half and the most SMs that have any follow.
    pub const SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A: u32 = 0x2e4;
    /// The local memory of all threads, upper half; the lower half follows.
    pub const SET_SHADER_LOCAL_MEMORY_A: u32 = 0x790;
    /// Where shaders see local memory, upper half; the lower half follows.
    pub const SET_SHADER_LOCAL_MEMORY_WINDOW_A: u32 = 0x7b0;
    /// The lower half.
    pub const SET_SHADER_LOCAL_MEMORY_WINDOW_B: u32 = 0x7b4;
    /// Address of a semaphore, upper half; the lower half and the value follow.
    pub const SET_REPORT_SEMAPHORE_A: u32 = 0x1b00;
    /// What to do with it.
    pub const SET_REPORT_SEMAPHORE_D: u32 = 0x1b0c;
}

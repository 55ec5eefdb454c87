//! The GPUs of the machine: GA102, which every locked driver knows.

/// What all of them are.
pub(super) const NAME: &str = "NVIDIA GeForce RTX 3090";
pub(super) const SHORT_NAME: &str = "GA102-A";
pub(super) const VENDOR: u16 = 0x10de;
pub(super) const DEVICE: u16 = 0x2204;
/// NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GA100 and _IMPLEMENTATION_GA102.
pub(super) const ARCHITECTURE: u32 = 0x170;
pub(super) const IMPLEMENTATION: u32 = 2;
/// Of the board.
pub(super) const SUBSYSTEM: u32 = 0x147d_10de;
pub(super) const REVISION: u32 = 0xa1;
pub(super) const BIOS: &str = "94.02.42.00.a9";
pub(super) const INTERRUPT: u16 = 130;

/// Registers and the window to its memory.
pub(super) const REGISTERS: (u64, u64) = (0xf600_0000, 16 << 20);
pub(super) const WINDOW: (u64, u64) = (0xe0_0000_0000, 256 << 20);
/// Bytes of its memory.
pub(super) const MEMORY: u64 = 24 << 30;

/// A GPU.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) minor: u32,
    /// How many keep it awake: the driver has no GPU of which it holds no file.
    pub(super) users: usize,
}

impl Gpu {
    pub(super) fn new(minor: u32) -> Self {
        Self { minor, users: 0 }
    }

    /// Whether the resource manager has it.
    pub(super) fn is_attached(&self) -> bool {
        self.users > 0
    }

    /// Its bus: each has one of its own.
    pub(super) fn bus(&self) -> u32 {
        self.minor + 1
    }

    /// Its number among all (R: made of domain, bus and slot).
    pub(super) fn id(&self) -> u32 {
        self.bus() << 8
    }

    /// Its identity, of sixteen bytes.
    pub(super) fn uuid(&self) -> [u8; 16] {
        let mut uuid = *b"nvabi-simulated\0";
        uuid[15] = self.minor as u8;
        uuid
    }

    /// The same, as people write it.
    pub(super) fn uuid_text(&self) -> String {
        let hex: String = self.uuid().iter().map(|byte| format!("{byte:02x}")).collect();
        let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        format!("GPU-{a}-{b}-{c}-{d}-{e}")
    }

    /// Where it is on the bus, as people write it.
    pub(super) fn location(&self) -> String {
        format!("0000:{:02x}:00.0", self.bus())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_told_from_others() {
        let (first, second) = (Gpu::new(0), Gpu::new(1));
        assert_eq!((first.id(), second.id()), (0x100, 0x200));
        assert_eq!(first.uuid_text(), "GPU-6e766162-692d-7369-6d75-6c6174656400");
        assert_ne!(first.uuid(), second.uuid());
        assert_eq!(second.location(), "0000:02:00.0");
    }
}

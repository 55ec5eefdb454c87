//! A device with a module of `cuda/kernels` on it, and how tests use it.

use nvabi_emu::{Args, Device, Finding, Launch, Module, Report, Schedule};

/// A device, a module, and how launches run.
pub(crate) struct Gpu {
    pub(crate) device: Device,
    pub(crate) module: Module,
    pub(crate) launch: Launch,
    /// Names the variant in messages.
    pub(crate) name: String,
    reference: Option<Reference>,
    /// Address and size of what tests allocated.
    allocations: Vec<(u64, usize)>,
}

/// What else must leave the same in memory, for code that was made of it.
pub(crate) struct Reference {
    pub(crate) module: Module,
    /// Compares what one buffer holds: of the code, of this module, for which kernel, and what to say.
    pub(crate) compare: fn(&[u8], &[u8], &str, &str),
}

/// Numbers that a kernel's memory holds.
pub(crate) trait Plain: Copy + Default {
    fn bytes(&self) -> Vec<u8>;
    fn from(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($T:ty)*) => {$(
        impl Plain for $T {
            fn bytes(&self) -> Vec<u8> { self.to_le_bytes().to_vec() }
            fn from(bytes: &[u8]) -> Self { Self::from_le_bytes(bytes.try_into().unwrap()) }
        }
    )*};
}
plain!(u8 i8 i16 u16 i32 u32 i64 u64 f32 f64);

impl Gpu {
    pub(crate) fn new(device: Device, module: Module, launch: Launch, name: String) -> Self {
        Self { device, module, launch, name, reference: None, allocations: Vec::new() }
    }

    /// The same, compared with another module.
    pub(crate) fn compared(self, reference: Reference) -> Self {
        Self { reference: Some(reference), ..self }
    }

    pub(crate) fn up<T: Plain>(&mut self, values: &[T]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(Plain::bytes).collect();
        let address = self.device.alloc(bytes.len() as u64).unwrap();
        self.device.write(address, &bytes).unwrap();
        self.allocations.push((address, bytes.len()));
        address
    }

    pub(crate) fn down<T: Plain>(&self, address: u64, count: usize) -> Vec<T> {
        let mut bytes = vec![0; count * size_of::<T>()];
        self.device.read(address, &mut bytes).unwrap();
        bytes.chunks(size_of::<T>()).map(T::from).collect()
    }

    /// A launch of some size.
    pub(crate) fn sized<const G: usize, const B: usize>(
        &self,
        grid: [u32; G],
        block: [u32; B],
    ) -> Launch {
        let mut launch = self.launch.clone();
        launch.grid[..G].copy_from_slice(&grid);
        launch.block[..B].copy_from_slice(&block);
        launch
    }

    /// Launches, whatever the kernel finds.
    pub(crate) fn launch<const G: usize, const B: usize>(
        &mut self,
        kernel: &str,
        grid: [u32; G],
        block: [u32; B],
        args: Args,
    ) -> Report {
        let launch = self.sized(grid, block);
        let reference = self.reference.take();
        let wanted = reference.as_ref().map(|reference| {
            let before = self.memory();
            self.device.launch(&reference.module, kernel, &launch, &args).unwrap();
            let after = self.memory();
            for ((address, _), bytes) in self.allocations.iter().zip(before) {
                self.device.write(*address, &bytes).unwrap();
            }
            after
        });
        let compare = reference.as_ref().map(|reference| reference.compare);
        self.reference = reference;
        let report = self.device.launch(&self.module, kernel, &launch, &args).unwrap();
        // What depends on which warp comes first does not compare under other schedules.
        let is_comparable = launch.schedule == Schedule::InOrder && report.fatal().is_none();
        if let (Some(wanted), Some(compare), true) = (wanted, compare, is_comparable) {
            for (at, (got, wanted)) in self.memory().iter().zip(&wanted).enumerate() {
                let what = format!("{} {kernel}: buffer {at}", self.name);
                compare(got, wanted, kernel, &format!("{what} ({:?})", report.fatal()));
            }
        }
        report
    }

    pub(crate) fn is_machine_code(&self) -> bool {
        self.reference.is_some()
    }

    /// All that tests allocated.
    fn memory(&self) -> Vec<Vec<u8>> {
        let read = |(address, size): &(u64, usize)| {
            let mut bytes = vec![0; *size];
            self.device.read(*address, &mut bytes).unwrap();
            bytes
        };
        self.allocations.iter().map(read).collect()
    }

    /// Launches, and expects that nothing is wrong with the kernel.
    pub(crate) fn run<const G: usize, const B: usize>(
        &mut self,
        kernel: &str,
        grid: [u32; G],
        block: [u32; B],
        args: Args,
    ) -> Report {
        let report = self.launch(kernel, grid, block, args);
        let findings: Vec<String> = report.findings.iter().map(Finding::to_string).collect();
        assert!(findings.is_empty(), "{}: {findings:#?}", self.name);
        assert!(report.lane_instructions > 0);
        report
    }
}

/// Numbers that look random and are the same each time.
pub(crate) fn noise(count: usize, seed: u32) -> Vec<u32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let mut next = || {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(277_803_737);
        (word >> 22) ^ word
    };
    (0..count).map(|_| next()).collect()
}

pub(crate) fn ints(count: usize, seed: u32, range: std::ops::Range<i32>) -> Vec<i32> {
    let span = (range.end - range.start) as u32;
    noise(count, seed).into_iter().map(|n| range.start + (n % span) as i32).collect()
}

/// Floats between -1 and 1.
pub(crate) fn floats(count: usize, seed: u32) -> Vec<f32> {
    noise(count, seed).into_iter().map(|n| n as i32 as f32 / 2f32.powi(31)).collect()
}

pub(crate) fn close(got: &[f32], wanted: &[f32], tolerance: f32, what: &str) {
    assert_eq!(got.len(), wanted.len());
    for (at, (a, b)) in got.iter().zip(wanted).enumerate() {
        assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{what}: [{at}] is {a}, not {b}");
    }
}

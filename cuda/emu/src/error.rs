//! What can go wrong before a kernel runs.

/// A PTX text or a cubin that cannot be loaded: a syntax error, or an instruction that the emulator lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{what}", prefix(unit), place(*line))]
pub struct LoadError {
    /// The module, where several are linked; else empty.
    pub unit: String,
    /// Line of the PTX text, from 1; 0 for a cubin.
    pub line: u32,
    /// What is wrong there; it quotes the instruction.
    pub what: String,
}

pub(crate) fn load_error(line: u32, what: impl Into<String>) -> LoadError {
    LoadError { unit: String::new(), line, what: what.into() }
}

impl LoadError {
    pub(crate) fn in_unit(mut self, unit: &str) -> Self {
        unit.clone_into(&mut self.unit);
        self
    }
}

fn prefix(unit: &str) -> String {
    if unit.is_empty() { String::new() } else { format!("{unit}, ") }
}

fn place(line: u32) -> String {
    if line == 0 { String::new() } else { format!("PTX line {line}: ") }
}

/// A call to the device that cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The module has no kernel of this name.
    #[error("the module has no kernel `{0}`")]
    NoKernel(String),
    /// Grid, block or shared memory are empty or larger than the device has.
    #[error("cannot launch `{kernel}`: {what}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// What is too large, or empty.
        what: String,
    },
    /// Memory of this size could not be had.
    #[error("{0} bytes of device memory cannot be had")]
    OutOfMemory(u64),
    /// Memory that is shared takes a file, and the process may have no more open.
    #[error("the process has as many files open as it may (RLIMIT_NOFILE, `ulimit -n`)")]
    NoFileLeft,
    /// The range is not inside one allocation.
    #[error("{size} bytes at {address:#x} are not inside an allocation")]
    BadRange {
        /// First byte.
        address: u64,
        /// Number of bytes.
        size: u64,
    },
    /// The address is not the start of an allocation.
    #[error("{0:#x} is not the start of an allocation")]
    BadFree(u64),
    /// At the address is no memory of the device's own that kernels alone reach.
    #[error("{0:#x} is in no memory that other processes may map")]
    NotShared(u64),
    /// A file is none that memory of another process lies in, or is too short.
    #[error("the file has no memory of another process there")]
    NoFile,
}

//! What a launch tells: findings, what was printed, and the events of its warps.

use std::fmt;
use std::sync::Arc;

/// Where code is in the source of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SourceLocation {
    /// Path of the source as the compiler wrote it; none without line tables.
    pub file: Option<Arc<str>>,
    /// Line, from 1; 0 without line tables.
    pub line: u32,
    /// Column, from 1; 0 without line tables.
    pub column: u32,
    /// Line of the PTX text, from 1; 0 for machine code.
    pub ptx_line: u32,
    /// Of machine code: the address in its function.
    pub address: Option<u64>,
    /// Of machine code that a driver placed in memory: the address there.
    pub pc: Option<u64>,
    /// The module of that text, where several are linked.
    pub unit: Option<Arc<str>>,
}

impl SourceLocation {
    /// The location in the source alone, the same for all copies that the compiler made of the code.
    pub(crate) fn in_source(&self) -> Self {
        match self.file {
            Some(_) => Self { ptx_line: 0, address: None, unit: None, ..self.clone() },
            None => self.clone(),
        }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit.as_ref().map_or(String::new(), |unit| format!("{unit}, "));
        let code = match self.address {
            Some(address) => format!("{unit}SASS {address:#06x}"),
            None => format!("{unit}PTX line {}", self.ptx_line),
        };
        match (&self.file, self.column) {
            (Some(file), 0) => write!(f, "{file}:{} ({code})", self.line),
            (Some(file), column) => write!(f, "{file}:{}:{column} ({code})", self.line),
            (None, _) => f.write_str(&code),
        }
    }
}

/// What was found wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// An access outside of any allocation, variable or parameter.
    OutOfBounds,
    /// An access to an allocation that was freed.
    UseAfterFree,
    /// An address that is no multiple of the size accessed.
    Misaligned,
    /// Shared memory read before anything was written there.
    UninitialisedShared,
    /// Global memory read before anything was written there, in a device that watches it.
    UninitialisedGlobal,
    /// A barrier, or a warp-wide instruction, that not all threads it names take part in.
    BarrierDivergence,
    /// All warps of a block wait, and none can go on.
    Deadlock,
    /// Accesses of two warps to the same shared memory, one of them a write, with no order between them; in a device
    /// that watches global memory, of two blocks, launches or copies to that.
    Race,
    /// `assert` failed.
    Assert,
    /// `__trap()`, or a call to what is no function.
    Trap,
    /// A block ran more instructions than the launch allows.
    Endless,
    /// A handle that leads to no texture or surface, or to one that is not run here.
    Texture,
    /// An instruction that is not run here.
    Unsupported,
    /// Memory that the program never freed; no kernel's.
    Leak,
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfBounds => "out of bounds",
            Self::UseAfterFree => "use after free",
            Self::Misaligned => "misaligned",
            Self::UninitialisedShared => "uninitialised shared memory",
            Self::UninitialisedGlobal => "uninitialised global memory",
            Self::BarrierDivergence => "barrier divergence",
            Self::Deadlock => "deadlock",
            Self::Race => "race",
            Self::Assert => "assertion",
            Self::Trap => "trap",
            Self::Endless => "endless",
            Self::Texture => "texture",
            Self::Unsupported => "unsupported",
            Self::Leak => "leak",
        })
    }
}

/// How sure it is that a program goes wrong by a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It may be none: bytes that are read may not be used.
    Note,
    /// Formally undefined, and without effect here: all store the same value.
    Undefined,
    /// What is computed depends on it.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Undefined => "undefined",
            Self::Error => "error",
        })
    }
}

/// What a thread wanted of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryAccess {
    /// To read it.
    Read,
    /// To write it.
    Write,
    /// Both, in one step.
    Atomic,
}

/// One mistake of a kernel; the same mistake at the same place in other threads is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// How sure it is: the worst of all that are counted.
    pub severity: Severity,
    /// Whether it ended the launch with an error, as it would on a GPU.
    pub fatal: bool,
    /// The kernel's name.
    pub kernel: String,
    /// Index of the block.
    pub block: [u32; 3],
    /// Index of the thread in its block.
    pub thread: [u32; 3],
    /// Where the thread was.
    pub location: SourceLocation,
    /// The particulars: addresses, lanes, the other thread of a race and where that was.
    pub message: String,
    /// Where global memory could not be accessed, the address and what was wanted of it.
    pub refused: Option<(u64, MemoryAccess)>,
    /// How often it was seen.
    pub count: u64,
}

impl Finding {
    /// A mistake of the program, in no kernel.
    #[must_use]
    pub fn of_host(kind: FindingKind, severity: Severity, message: String) -> Self {
        Self {
            kind,
            severity,
            fatal: false,
            kernel: String::new(),
            block: [0; 3],
            thread: [0; 3],
            location: SourceLocation::default(),
            message,
            refused: None,
            count: 1,
        }
    }

    /// Takes in the same mistake of another thread: the worse of both is told.
    pub(crate) fn absorb(&mut self, other: Self) {
        let count = self.count + other.count;
        if other.severity > self.severity {
            *self = other;
        }
        self.count = count;
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kernel.is_empty() {
            return write!(f, "{}: {}", self.kind, self.message);
        }
        let triple = |[x, y, z]: [u32; 3]| format!("({x},{y},{z})");
        write!(
            f,
            "{}: {}{}: kernel {}, block {}, thread {}: {}",
            self.location,
            self.kind,
            match self.severity {
                Severity::Error => String::new(),
                other => format!(" ({other})"),
            },
            self.kernel,
            triple(self.block),
            triple(self.thread),
            self.message
        )?;
        if self.count > 1 {
            write!(f, " ({} times)", self.count)?;
        }
        Ok(())
    }
}

/// What a warp did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A conditional branch; the lanes that took it.
    Branch {
        /// Lanes for which the condition held.
        taken: u32,
    },
    /// A jump through a table.
    Switch,
    /// A store to shared memory.
    SharedStore {
        /// The value that the lowest active lane stored.
        value: u64,
    },
    /// An atomic operation on shared or global memory.
    Atomic {
        /// What was in memory before the lowest active lane's turn.
        old: u64,
        /// Whether memory is the block's shared memory.
        shared: bool,
    },
    /// A kernel or device function was entered.
    Entry {
        /// Its name.
        function: Arc<str>,
    },
    /// Lanes left a function.
    Exit {
        /// Its name.
        function: Arc<str>,
    },
}

/// An event of a warp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The lanes that were active.
    pub mask: u32,
    /// Where.
    pub location: SourceLocation,
}

/// The events of one warp, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarpEvents {
    /// Index of the block.
    pub block: [u32; 3],
    /// Number of the warp in its block.
    pub warp: u32,
    /// What it did.
    pub events: Vec<Event>,
    /// How much more than that.
    pub dropped: u64,
}

/// What came of a launch.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What is wrong, by block; the last one is fatal if any is.
    pub findings: Vec<Finding>,
    /// What `printf` wrote, block after block.
    pub output: Vec<u8>,
    /// Events by block and warp, if the launch asked for them.
    pub events: Vec<WarpEvents>,
    /// Instructions run, counted once per warp.
    pub warp_instructions: u64,
    /// Instructions run, counted once per active lane.
    pub lane_instructions: u64,
}

impl Report {
    /// The finding that ended the launch.
    #[must_use]
    pub fn fatal(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.fatal)
    }
}

//! A module ready to run: typed operations on numbered registers.

mod decode;
mod flow;
mod link;

use std::collections::HashMap;
use std::sync::Arc;

use crate::lanes::LaneFn;
use crate::lanes::matrix::{Combine, Fragment};
use crate::ptx::Loc;
use crate::texture::{Access, LevelSource};
use crate::time::Counter;

pub(crate) use decode::decode;
pub(crate) use flow::{innermost_loop, own_line};
pub(crate) use link::{Linked, Target, Unit, link};

/// Number of a register in its function.
pub(crate) type Reg = u32;

/// Warps that a multiprocessor has room for, as programs are told.
pub(crate) const MAX_WARPS: u64 = 64;

/// Bit positions of the windows through which generic addresses reach what is not global memory.
pub(crate) const WINDOW_SHIFT: u32 = 56;
pub(crate) const SHARED_WINDOW: u64 = 1 << WINDOW_SHIFT;
pub(crate) const LOCAL_WINDOW: u64 = 2 << WINDOW_SHIFT;
/// Addresses of a thread's local memory, of which it has some from the first on, and some up to the last.
pub(crate) const LOCAL_BYTES: u64 = 1 << 24;
pub(crate) const PARAM_WINDOW: u64 = 3 << WINDOW_SHIFT;
pub(crate) const CODE_WINDOW: u64 = 4 << WINDOW_SHIFT;

/// A loaded module, or several that are linked.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) functions: Vec<Function>,
    pub(crate) kernels: HashMap<String, usize>,
    /// Paths of the `.file` directives; the number of the first is 1.
    pub(crate) files: Vec<Arc<str>>,
    /// Bytes that one cell of the shared memory's shadow stands for.
    pub(crate) shared_grain: u32,
    /// Bytes of shared memory before the program's own.
    pub(crate) shared_reserved: u64,
}

/// A kernel or device function.
#[derive(Debug, Default)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The module it is of, where several are linked.
    pub(crate) unit: Option<Arc<str>>,
    pub(crate) code: Vec<Instruction>,
    pub(crate) registers: u32,
    /// Registers that hold a constant.
    pub(crate) constants: Vec<(Reg, u64)>,
    /// Bytes of local memory of one call, per thread.
    pub(crate) local_size: u64,
    /// Bytes of `.param` memory of one call, per thread.
    pub(crate) param_size: u64,
    /// Offset and size of each parameter, and of each result.
    pub(crate) params: Vec<(u64, u64)>,
    pub(crate) results: Vec<(u64, u64)>,
    /// Of a kernel: bytes of static shared memory, where the dynamic one starts, and its most threads.
    pub(crate) shared_size: u64,
    /// Of a kernel: its static shared variables, by where they are.
    pub(crate) shared_variables: Vec<SharedVariable>,
    pub(crate) dynamic_start: u64,
    pub(crate) max_threads: Option<u64>,
}

impl Function {
    /// Bytes of a kernel's shared memory, with so much of dynamic memory, as a GPU lays it out: without what the
    /// emulator leaves between variables.
    pub(crate) fn shared_bytes(&self, dynamic: u64) -> u64 {
        const ALIGN: u64 = 16;
        match dynamic {
            0 => self.shared_size,
            _ => self.shared_size.next_multiple_of(ALIGN) + dynamic,
        }
    }
}

/// A variable in shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedVariable {
    pub(crate) name: Arc<str>,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// One operation.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) op: Op,
    /// Runs only in lanes where the register is true, or false if the flag says so.
    pub(crate) guard: Option<(Reg, bool)>,
    /// Line of the PTX text.
    pub(crate) line: u32,
    pub(crate) loc: Loc,
}

/// Special registers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Special {
    Tid(usize),
    BlockDim(usize),
    BlockIdx(usize),
    GridDim(usize),
    LaneId,
    WarpId,
    /// Lanes for which the comparison of their number with this lane's holds.
    LaneMask(fn(u32) -> u32),
    /// A counter, from this bit.
    Time(Counter, u32),
    DynamicShared,
    TotalShared,
    GridId,
    /// The address of the launch's workspace, from this bit.
    Workspace(u32),
}

/// State spaces of memory operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    Local,
    /// Parameters of the kernel.
    Kernel,
    /// Parameters of device functions.
    Call,
}

/// An address: a value plus an offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub(crate) space: Space,
    pub(crate) base: Reg,
    pub(crate) offset: i64,
}

/// How a memory operation orders others.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Order {
    /// Volatile or atomic: it does not race with others of its kind.
    pub(crate) strong: bool,
    pub(crate) acquire: bool,
    pub(crate) release: bool,
}

/// The bytes of a load that are used, from the lowest bit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsedBytes {
    pub(crate) bytes: u64,
    /// The compiler says so. Else they may be used: it can depend on what is computed.
    pub(crate) declared: bool,
}

/// The operations.
#[derive(Debug)]
pub(crate) enum Op {
    /// Computes a register lane by lane.
    Lanes {
        f: LaneFn,
        dst: Reg,
        src: [Reg; 4],
    },
    Special {
        special: Special,
        dst: Reg,
    },
    /// The address of an offset in the local memory of this call.
    Local {
        offset: u64,
        dst: Reg,
    },
    Load {
        at: Address,
        dst: Vec<Option<Reg>>,
        width: u64,
        signed: bool,
        order: Order,
        used: UsedBytes,
    },
    Store {
        at: Address,
        src: Vec<Reg>,
        width: u64,
        order: Order,
    },
    /// `commutes`: without a result, the order among others of its kind does not show.
    Atomic {
        at: Address,
        dst: Option<Reg>,
        rmw: Rmw,
        src: Reg,
        width: u64,
        order: Order,
        commutes: bool,
    },
    /// Copies any number of bytes that one lane names, between global and shared memory.
    CopyBulk {
        to: Address,
        from: Address,
        size: Reg,
    },
    /// Copies from global to shared memory; the rest of `size` is filled with zeros.
    CopyAsync {
        to: Address,
        from: Address,
        size: u64,
        source_size: Reg,
    },
    Fence,
    Branch {
        target: u32,
        reconverge: u32,
    },
    BranchIndexed {
        index: Reg,
        targets: Vec<u32>,
        reconverge: u32,
    },
    Call {
        callee: Callee,
        args: Vec<(u64, u64)>,
        results: Vec<(u64, u64)>,
    },
    Return,
    Exit,
    Trap,
    Barrier {
        kind: BarrierKind,
        id: Reg,
        count: Option<Reg>,
    },
    SyncWarp {
        mask: Reg,
    },
    Vote {
        kind: Vote,
        dst: Reg,
        pred: Reg,
        mask: Option<Reg>,
    },
    ActiveMask {
        dst: Reg,
    },
    Shuffle {
        kind: Shuffle,
        dst: Reg,
        pred: Option<Reg>,
        src: Reg,
        by: Reg,
        clamp: Reg,
        mask: Reg,
    },
    Match {
        all: bool,
        dst: Reg,
        pred: Option<Reg>,
        src: Reg,
        bits: u32,
        mask: Reg,
    },
    Reduce {
        step: fn(u64, u64) -> u64,
        dst: Reg,
        src: Reg,
        mask: Reg,
    },
    MatrixMultiply(Box<MatrixMultiply>),
    MatrixMove(Box<MatrixMove>),
    RowMove(Box<RowMove>),
    Transpose {
        dst: Reg,
        src: Reg,
    },
    Texture(Box<TextureOp>),
    Elect {
        dst: Option<Reg>,
        pred: Reg,
        mask: Reg,
    },
    RecordBranch(Box<RecordBranch>),
    /// Lets others run.
    Yield,
    Nop,
}

/// The record of a branch: registers with what the instructions of `decode/recorder.ptx` take.
#[derive(Debug)]
pub(crate) struct RecordBranch {
    pub(crate) taken: Reg,
    pub(crate) slot: Reg,
    pub(crate) below: Reg,
    pub(crate) end: Reg,
    pub(crate) site: Reg,
    pub(crate) condition: Reg,
    pub(crate) events: Reg,
    pub(crate) scale: Reg,
}

/// A matrix in the registers of a warp.
#[derive(Debug)]
pub(crate) struct MatrixRegisters {
    pub(crate) fragment: Fragment,
    pub(crate) registers: Vec<Reg>,
}

/// `d = a × b + c` of a warp.
#[derive(Debug)]
pub(crate) struct MatrixMultiply {
    pub(crate) a: MatrixRegisters,
    pub(crate) b: MatrixRegisters,
    pub(crate) c: MatrixRegisters,
    pub(crate) d: MatrixRegisters,
    pub(crate) combine: Combine,
    pub(crate) saturate: bool,
}

/// A matrix from memory or to it: rows or columns, `stride` elements apart.
#[derive(Debug)]
pub(crate) struct MatrixMove {
    pub(crate) matrix: MatrixRegisters,
    pub(crate) at: Address,
    pub(crate) stride: Reg,
    pub(crate) row_major: bool,
    pub(crate) store: bool,
}

/// Matrices of 8 by 8 numbers of 16 bits from memory or to it, a register of each lane for each.
#[derive(Debug)]
pub(crate) struct RowMove {
    pub(crate) registers: Vec<Reg>,
    pub(crate) at: Address,
    pub(crate) transposed: bool,
    pub(crate) store: bool,
}

/// An access of a texture or surface.
#[derive(Debug)]
pub(crate) struct TextureOp {
    pub(crate) access: Access,
    pub(crate) handle: Reg,
    /// The layer, where there are any, then the coordinates.
    pub(crate) at: Vec<Reg>,
    /// Texels beside them along each axis.
    pub(crate) offset: Vec<Reg>,
    pub(crate) level: LevelSource<Reg>,
    /// What texels are compared with.
    pub(crate) depth: Option<Reg>,
    /// What is read or written.
    pub(crate) registers: Vec<Option<Reg>>,
    /// How a word that is read is put into a register.
    pub(crate) form: TexelForm,
}

/// How the words that are read are put into registers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TexelForm {
    Words,
    /// Each as `f16`.
    Halves,
    /// Two as `f16` in one register.
    Pairs,
}

/// What an atomic operation does to memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rmw {
    Apply(Step),
    /// Where units of global memory and of shared memory do it differently.
    ByPlace {
        global: Step,
        shared: Step,
    },
    /// Stores the source where memory holds this.
    CompareSwap(Reg),
}

/// The new value from the old one and the operand.
pub(crate) type Step = fn(u64, u64) -> u64;

impl Rmw {
    /// The new value; `wanted` is what a swap compares with.
    pub(crate) fn change(self, old: u64, operand: u64, wanted: u64, in_global: bool) -> u64 {
        match self {
            Self::Apply(step) => step(old, operand),
            Self::ByPlace { global, shared } => {
                (if in_global { global } else { shared })(old, operand)
            }
            Self::CompareSwap(_) if old == wanted => operand,
            Self::CompareSwap(_) => old,
        }
    }
}

/// What a call calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Callee {
    Function(usize),
    Indirect(Reg),
    Printf,
    AssertFail,
    Malloc,
    Free,
}

/// What a barrier does besides waiting.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// The number of threads, or whether all or any, for which a predicate holds.
    Count {
        dst: Reg,
        pred: Reg,
    },
    All {
        dst: Reg,
        pred: Reg,
    },
    Any {
        dst: Reg,
        pred: Reg,
    },
}

/// Kinds of `vote`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Vote {
    Ballot,
    All,
    Any,
    Uniform,
}

/// Kinds of `shfl`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

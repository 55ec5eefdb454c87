//! Machine code ready to run: cubins are loaded, and instructions become plain operations.
//!
//! ```text
//! cubin ──► load (sections, addresses) ─┐
//! memory ─► placed (what is reached)  ──┴► decode (one function for each kind of instruction) ─► Op
//!                                                   │
//!                                        compute (what an instruction computes)
//! ```

mod compute;
mod decode;
mod load;
mod placed;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use compute::floats::add_with_signs;
pub(crate) use compute::{Function, In, Modes, Native, Out, Row};
pub(crate) use load::load;
pub(crate) use placed::load as load_placed;

use crate::lanes::{self, matrix::Element};
use crate::program::{Rmw, Shuffle, Space, Vote};
use crate::texture::{Access, LevelSource};
use crate::time::Counter;

/// A register that is always zero, and the uniform one.
pub(crate) const ZERO: u8 = 255;
pub(crate) const UNIFORM_ZERO: u8 = 63;
/// Predicates that are always true.
pub(crate) const TRUE: u8 = 7;

/// Where the code of a cubin begins: above all addresses that programs have.
const CODE: u64 = 1 << 47;

/// Banks of constants: parameters and launch, the compiler's literals, and `__constant__` variables.
pub(crate) const BANKS: usize = 8;

/// Bytes of the largest bank. Instructions have the lowest 16 bits of an offset, which nvdisasm writes with a sign.
pub(crate) const BANK_BYTES: i64 = 1 << 16;

/// Where bank 0 says where the system's part of shared memory is, up to Ada. Later it is at the start.
pub(crate) const RESERVED_SHARED: usize = 0x124;

/// A loaded cubin, or what was found in memory.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) code: Vec<Instruction>,
    /// In the order of their addresses.
    pub(crate) sections: Vec<Section>,
    pub(crate) kernels: BTreeMap<String, Kernel>,
    /// Address and size of each variable.
    pub(crate) symbols: BTreeMap<String, (u64, u64)>,
    pub(crate) variables: Vec<u64>,
    /// Address and size of what bank 3 holds.
    pub(crate) constants: (u64, u64),
    /// Whether bank 0 is as it is since Hopper.
    pub(crate) is_hopper: bool,
    /// Bytes that one cell of the shared memory's shadow stands for.
    pub(crate) shared_grain: u32,
    /// Whether code asks where the system's part of shared memory is.
    pub(crate) asks_for_reserved: bool,
    /// Of code in memory, whose it is.
    pub(crate) placed: Option<nvabi_sass::Arch>,
}

/// The code of one section.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) name: Arc<str>,
    pub(crate) address: u64,
    /// Number of its first instruction.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// File and line, by the address of their first instruction.
    pub(crate) lines: BTreeMap<u64, (Arc<str>, u32)>,
}

impl Program {
    /// The section of an instruction.
    pub(crate) fn section(&self, number: usize) -> Option<&Section> {
        let at = self.sections.partition_point(|section| section.first <= number);
        self.sections[..at].iter().rev().find(|section| section.count != 0)
    }

    /// The number of the instruction at an address.
    pub(crate) fn number(&self, address: u64) -> Option<usize> {
        let at = self.sections.partition_point(|section| section.address <= address);
        let section = self.sections[..at].iter().rev().find(|section| section.count != 0)?;
        let distance = address - section.address;
        let number = usize::try_from(distance / 16).ok()?;
        (distance % 16 == 0 && number < section.count).then_some(section.first + number)
    }
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Kernel {
    /// Number of its first instruction.
    pub(crate) first: usize,
    pub(crate) params: Vec<(u64, u64)>,
    pub(crate) param_bytes: u64,
    /// Where the parameters are in bank 0: more than 4 KiB of them begin elsewhere, up to Ada.
    pub(crate) first_parameter: usize,
    pub(crate) shared_size: u64,
    pub(crate) max_threads: Option<u64>,
    /// Bytes of local memory of a thread, from its first address on and up to its last.
    pub(crate) local_size: u64,
    pub(crate) local_top: u64,
    /// Registers of a thread.
    pub(crate) registers: usize,
    /// What banks hold beside the parameters.
    pub(crate) banks: Vec<(usize, Vec<u8>)>,
}

/// One operation.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) op: Op,
    pub(crate) guard: Predicate,
}

impl Instruction {
    /// What cannot be decoded stops a launch where it would run.
    fn refused(unknown: &nvabi_sass::Unknown) -> Self {
        let guard = Predicate::TRUE;
        Self { op: Op::Refused(format!("{unknown} is not supported").into()), guard }
    }
}

/// A predicate as a source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Predicate {
    pub(crate) number: u8,
    pub(crate) negated: bool,
    pub(crate) uniform: bool,
}

impl Predicate {
    pub(crate) const TRUE: Self = Self { number: TRUE, negated: false, uniform: false };
    pub(crate) const FALSE: Self = Self { number: TRUE, negated: true, uniform: false };
}

/// Which lanes of those that run together take a branch, where it is not for all of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Takers {
    /// Those for which it is.
    Each,
    /// All where it is for all, or none.
    All,
    /// All where it is for any, or none.
    Any,
}

impl Takers {
    /// Of the lanes that run together those that go, where it is for some of them.
    pub(crate) fn among(self, together: u32, lanes: u32) -> u32 {
        match self {
            Self::Each => lanes,
            Self::All if lanes == together => together,
            Self::Any if lanes != 0 => together,
            Self::All | Self::Any => 0,
        }
    }
}

/// Where 32 bits come from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Register(u8),
    Uniform(u8),
    Constant { bank: usize, offset: usize },
    Immediate(Box<Row>),
}

/// A source, and what happens to its bits first: `(x & and) ^ xor`.
#[derive(Debug, Clone)]
pub(crate) struct Operand {
    pub(crate) low: Source,
    /// The upper 32 bits of 64.
    pub(crate) high: Option<Source>,
    pub(crate) low_bits: Bits,
    pub(crate) high_bits: Bits,
    /// Which half each half of the register is, for two numbers of 16 bits.
    pub(crate) halves: Halves,
    /// Bits that are dropped at the lower end.
    pub(crate) shift: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bits {
    pub(crate) and: u32,
    pub(crate) xor: u32,
}

impl Bits {
    pub(crate) const SAME: Self = Self { and: u32::MAX, xor: 0 };
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Halves {
    Both,
    Low,
    High,
    /// Each is the other.
    Swapped,
}

/// Where a result goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    None,
    Register(u8),
    Uniform(u8),
}

/// Computes registers and predicates lane by lane; uniform ones by the first lane.
#[derive(Debug)]
pub(crate) struct Compute {
    pub(crate) f: Function,
    pub(crate) modes: Modes,
    pub(crate) sources: [Operand; 3],
    pub(crate) predicates: [Predicate; 3],
    pub(crate) target: Target,
    /// Whether the result has 64 bits.
    pub(crate) wide: bool,
    /// The predicates that are written; 7 is none.
    pub(crate) outcomes: [u8; 2],
    pub(crate) uniform: bool,
}

/// An address: a register or two, a uniform register or two, and an offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub(crate) space: Space,
    pub(crate) base: Option<u8>,
    /// Whether the base has 64 bits.
    pub(crate) wide: bool,
    pub(crate) scale: u32,
    pub(crate) uniform: Option<u8>,
    pub(crate) offset: i64,
}

/// Special registers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Special {
    Tid(usize),
    /// All three in one word.
    PackedTid,
    Block(usize),
    Lane,
    Mask(fn(u32) -> u32),
    /// A counter, from this bit.
    Time(Counter, u32),
    SharedWindow,
    LocalWindow,
    /// Where the warp is on its multiprocessor, and how many have room there.
    WarpPlace,
    WarpRoom,
    /// Bytes of shared memory of the block.
    SharedSize,
    Zero,
}

#[derive(Debug)]
pub(crate) enum Op {
    Compute(Box<Compute>),
    Special {
        special: Special,
        target: Target,
        wide: bool,
    },
    /// Where an instruction is, for those that go there by registers.
    CodeAddress {
        to: u8,
        address: u64,
    },
    /// Predicates into a register, and back: the bits of `mask`, in this byte of the register.
    PredicatesToRegister {
        target: Target,
        /// Whether they are the uniform ones.
        uniform: bool,
        from: Operand,
        mask: Operand,
        shift: u32,
    },
    RegisterToPredicates {
        from: Operand,
        mask: Operand,
        shift: u32,
    },
    Load {
        at: Address,
        to: u8,
        /// Bytes of one part, and parts.
        width: u64,
        parts: u8,
        signed: bool,
        strong: bool,
        /// Where it does not hold nothing is read, and the result is zero.
        really: Predicate,
    },
    Store {
        at: Address,
        from: u8,
        width: u64,
        parts: u8,
        strong: bool,
    },
    Constant {
        target: Target,
        bank: usize,
        index: Source,
        offset: i64,
        width: u64,
        signed: bool,
    },
    Atomic {
        at: Address,
        to: Option<u8>,
        done: u8,
        rmw: Rmw,
        from: u8,
        /// Bytes of one part, and parts, which are changed one after the other.
        width: u64,
        parts: u8,
        commutes: bool,
        /// The result is whether memory was changed.
        test: bool,
    },
    /// Arrives at a barrier in memory.
    Arrive {
        at: Address,
        to: Option<u8>,
    },
    CopyAsync {
        to: Address,
        from: Address,
        size: u64,
        really: Predicate,
        /// The address says in its lowest bits how many bytes are not copied, but zero.
        fills: bool,
    },
    LoadMatrix {
        at: Address,
        to: u8,
        count: u8,
        transposed: bool,
    },
    StoreMatrix {
        at: Address,
        from: u8,
        count: u8,
        transposed: bool,
    },
    MatrixMultiply(Box<MatrixMultiply>),
    /// One lane of those that a mask in a uniform register names, or of those where a predicate holds: whether a lane
    /// is it, and its number.
    Elect {
        outcome: u8,
        target: Target,
        among: Result<Operand, Predicate>,
    },
    Texture(Box<TextureOp>),
    Fence,
    Nop,
    Yield,
    Branch {
        target: u32,
        when: Predicate,
        takers: Takers,
    },
    /// Where lanes of the mask in a uniform register are not all there, or where they are.
    BranchDiverged {
        target: u32,
        mask: Option<(u8, bool)>,
        diverged: bool,
    },
    /// To an address of 64 bits, behind this one.
    Jump {
        base: u64,
        to: [Source; 2],
        when: Predicate,
        takers: Takers,
    },
    Exit {
        when: Predicate,
    },
    SetBarrier {
        barrier: u8,
    },
    SyncBarrier {
        barrier: u8,
        when: Predicate,
    },
    BreakBarrier {
        barrier: u8,
        when: Predicate,
    },
    /// The lanes of a barrier, or those of another one, which has none then.
    PutBarrier {
        barrier: u8,
        lanes: u32,
    },
    MoveBarrier {
        to: u8,
        from: u8,
    },
    /// Which lanes these are, as bits of a register or as those of a barrier, and back.
    GetLanes {
        to: LaneBits,
        from: LaneSet,
        clear: bool,
    },
    SetLanes {
        to: LaneSet,
        from: LaneBits,
        /// Each lane stands for all of its four.
        quads: bool,
    },
    /// All lanes where there is no register.
    SyncWarp {
        mask: Option<Operand>,
        collective: Option<u32>,
        /// Whether no others run with them.
        exclusive: bool,
    },
    EndCollective,
    Barrier {
        kind: Arrival,
        id: Operand,
        count: Option<Operand>,
        /// Both are in one register: the count from bit 16.
        packed: bool,
        predicate: Predicate,
    },
    BarrierResult {
        to: u8,
        outcome: u8,
    },
    Vote {
        kind: Vote,
        target: Target,
        outcome: u8,
        predicate: Predicate,
        uniform: bool,
    },
    Match {
        all: bool,
        to: u8,
        outcome: u8,
        from: u8,
        wide: bool,
    },
    Reduce {
        step: fn(u64, u64) -> u64,
        to: u8,
        from: u8,
    },
    Shuffle {
        kind: Shuffle,
        to: u8,
        outcome: u8,
        from: u8,
        by: Operand,
        clamp: Operand,
    },
    /// A matrix of eight rows and columns of 16 bits, of which each lane has two that are next to each other.
    Transpose {
        to: u8,
        from: u8,
    },
    /// In these lanes of each four.
    MoveInQuads {
        to: u8,
        from: Operand,
        lanes: u32,
    },
    /// A sum of floats, for which each lane of four has signs of its own.
    AddWithSigns {
        to: u8,
        from: [Operand; 2],
        signs: [Signs; 4],
        add: lanes::LaneFn,
    },
    /// The value of the first lane; the predicate tells which lanes have another.
    ToUniform {
        to: u8,
        from: u8,
        /// A predicate of the lanes that have another value; where it joins, of those for which it held before as well.
        others: u8,
        joins: bool,
    },
    /// What space a generic address is in.
    QuerySpace {
        outcome: u8,
        at: Address,
        /// Where the space begins.
        window: u64,
    },
    Builtin(Builtin),
    /// PTX's `trap` has 1, and libcuda's own code where an assertion has failed 3.
    Trap {
        number: u64,
    },
    /// An instruction that is not run here; why not.
    Refused(Box<str>),
    /// Between what was found in memory.
    NoCode,
}

/// What of two numbers is negated, or that only the second is there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Signs {
    None,
    Second,
    First,
    SecondAlone,
}

/// Where bits of lanes are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LaneBits {
    Register(u8),
    Barrier(u8),
}

/// Lanes of which a warp keeps the bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LaneSet {
    /// Those that meet at a convergence barrier.
    Barrier(u8),
    Active,
    Exited,
    /// What is known of those that are elsewhere, in bits that only the hardware reads.
    Elsewhere,
}

/// What a barrier does besides waiting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Arrival {
    Sync,
    Arrive,
    Count,
    All,
    Any,
}

/// Functions that a driver links to kernels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Builtin {
    Printf,
    AssertFail,
    Malloc,
    Free,
}

/// An access of a texture or surface.
#[derive(Debug)]
pub(crate) struct TextureOp {
    pub(crate) access: Access,
    pub(crate) handle: Source,
    /// The layer, where there are any, then the coordinates.
    pub(crate) at: Vec<u8>,
    /// Texels beside them, for all axes.
    pub(crate) offset: Option<Offset>,
    pub(crate) level: LevelSource<u8>,
    /// What texels are compared with.
    pub(crate) depth: Option<u8>,
    /// Where the four words of what is read go.
    pub(crate) to: [Option<u8>; 4],
    /// Whether they are numbers of 16 bits, of which a register holds two.
    pub(crate) halves: bool,
    /// The registers of what is written.
    pub(crate) from: Vec<[u8; 2]>,
    /// The predicate that tells of texels without memory.
    pub(crate) missing: u8,
}

/// Texels beside coordinates, in one register.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offset {
    pub(crate) register: u8,
    /// Where those of the first axis are.
    pub(crate) first: u32,
    /// Bits from an axis to the next.
    pub(crate) step: u32,
}

/// `d = a × b + c` of a warp.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatrixMultiply {
    pub(crate) kind: MatrixKind,
    pub(crate) d: u8,
    pub(crate) a: u8,
    pub(crate) b: u8,
    pub(crate) c: u8,
}

/// What is multiplied.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MatrixKind {
    /// 16×8 from 16×k and k×8 numbers of 16 bits; the sum has 32 bits, or 16.
    Halves { k: usize, value: fn(u16) -> f64, wide: bool },
    /// The same of floats of which 19 bits count.
    Tf32 { k: usize },
    /// 16×8, or 8×8, from rows of bytes.
    Bytes { rows: usize, k: usize, signed: [bool; 2], saturate: bool },
    /// `rows`×8 from `rows`×k and k×8 of what `lanes::matrix` multiplies, as PTX lays it over the lanes.
    Any {
        rows: usize,
        k: usize,
        elements: [Element; 2],
        sum: Element,
        combine: lanes::matrix::Combine,
        saturate: bool,
    },
}

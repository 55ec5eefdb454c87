//! GPU instances and their compute instances (MIG). Which kinds there are is data of the profile: its answer to
//! NV2080_CTRL_CMD_GPU_DESCRIBE_PARTITIONS. Where they can be follows from their sizes.
//!
//! A GPU is eight slices of memory. The numbers of instances are those of the driver's table in
//! `kernel_mig_manager.c`: `kmigmgrGetInvalidSwizzIdMask_IMPL`.

use std::collections::BTreeMap;

use crate::Status;

/// NVC637_CTRL_MAX_EXEC_PARTITIONS.
const MAX_COMPUTE: u32 = 8;
/// NV2080_CTRL_GPU_PARTITION_FLAG_PLACE_AT_SPAN, _ENABLE.
pub(super) const AT_SPAN: u32 = 1 << 31;
/// NVC637_CTRL_DMA_EXEC_PARTITIONS_CREATE_REQUEST_AT_SPAN, _TRUE.
pub(super) const COMPUTE_AT_SPAN: u32 = 2;

/// Slices, from the first, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) size: u32,
}

impl Span {
    fn overlaps(self, other: Self) -> bool {
        self.start < other.start + other.size && other.start < self.start + self.size
    }
}

/// A kind of instance, as the profile describes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) flag: u32,
    pub(super) gpcs: u32,
    pub(super) sms: u32,
    pub(super) contexts: u32,
    pub(super) copies: u32,
    pub(super) decoders: u32,
    pub(super) encoders: u32,
    pub(super) jpegs: u32,
    pub(super) optical: u32,
    pub(super) memory: u64,
}

impl Kind {
    /// Slices of memory: NV2080_CTRL_GPU_PARTITION_FLAG_MEMORY_SIZE, from all to an eighth.
    fn slices(&self) -> u32 {
        8 >> (self.flag & 3)
    }

    /// NV2080_CTRL_GPU_PARTITION_FLAG_COMPUTE_SIZE.
    pub(super) fn compute_size(&self) -> u32 {
        self.flag >> 2 & 7
    }

    /// Engines of which no two instances have the same one.
    fn engines(&self) -> [u32; 4] {
        [self.decoders, self.encoders, self.jpegs, self.optical]
    }
}

/// A GPU instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) kind: Kind,
    pub(super) span: Span,
    pub(super) compute: BTreeMap<u32, Compute>,
    /// Whether its SMs had an uncorrected error since the GPU's counters began.
    pub(super) has_sram_error: bool,
}

/// What a client has chosen: a GPU instance, and a compute instance of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) number: u32,
    pub(super) compute: Option<u32>,
}

/// A compute instance of a GPU instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compute {
    pub(super) size: ComputeSize,
    pub(super) span: Span,
    /// The engines that were asked for, by the fields of NVC637_CTRL_EXEC_PARTITIONS_INFO.
    pub(super) engines: Vec<(&'static str, u32)>,
}

/// A size that a compute instance can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ComputeSize {
    pub(super) number: u32,
    pub(super) gpcs: u32,
    pub(super) sms: u32,
    pub(super) contexts: u32,
}

/// The instances of a GPU by their numbers.
#[derive(Debug, Default)]
pub(super) struct Instances(pub(super) BTreeMap<u32, Instance>);

/// The number of the instance that has these slices: those of all, of halves, of quarters, of eighths.
fn number(span: Span) -> u32 {
    let first = (8 / span.size).saturating_sub(1);
    first + span.start / span.size
}

/// Where instances of a kind can be: what computes ends where the GPU's GPCs do.
pub(super) fn places(kinds: &[Kind], kind: &Kind) -> Vec<Span> {
    let gpcs = kinds.iter().map(|kind| kind.gpcs).max().unwrap_or(0);
    let size = kind.slices();
    let starts = (0..8).step_by(size as usize).filter(|start| start + kind.gpcs <= gpcs);
    starts.map(|start| Span { start, size }).collect()
}

/// How many of some spans can be had at once, of those that are left.
fn most_at_once(spans: &[Span]) -> u32 {
    let (mut end, mut count) = (0, 0);
    for span in spans.iter().filter(|span| span.size > 0) {
        if span.start >= end {
            (end, count) = (span.start + span.size, count + 1);
        }
    }
    count
}

impl Instances {
    /// The places that are left for a kind, and how many instances of it can be made.
    pub(super) fn room(&self, kinds: &[Kind], kind: &Kind) -> (Vec<Span>, u32) {
        let mut places = places(kinds, kind);
        places.retain(|place| !self.0.values().any(|own| own.span.overlaps(*place)));
        let count = most_at_once(&places).min(self.engines_left(kinds, kind));
        if count == 0 {
            places.clear();
        }
        (places, count)
    }

    /// How many instances of a kind the engines that are left are enough for.
    fn engines_left(&self, kinds: &[Kind], kind: &Kind) -> u32 {
        let mut most = u32::MAX;
        for (at, needed) in kind.engines().into_iter().enumerate().filter(|(_, count)| *count > 0) {
            let all = kinds.iter().map(|kind| kind.engines()[at]).max().unwrap_or(0);
            let used: u32 = self.0.values().map(|own| own.kind.engines()[at]).sum();
            most = most.min(all.saturating_sub(used) / needed);
        }
        most
    }

    /// Makes an instance where it leaves most places to others, of those the first; or where somebody wants it. The
    /// order is that of NVIDIA's user guide: seven of the smallest kind get the numbers 13, 11, 12, 7, 8, 9, 10.
    pub(super) fn make(
        &mut self,
        kinds: &[Kind],
        flag: u32,
        wanted: Option<Span>,
    ) -> Result<u32, Status> {
        let kind = *kinds.iter().find(|kind| kind.flag == flag).ok_or(Status::NOT_SUPPORTED)?;
        if wanted.is_some_and(|wanted| !places(kinds, &kind).contains(&wanted)) {
            return Err(Status::INVALID_ARGUMENT);
        }
        let (mut left, _) = self.room(kinds, &kind);
        left.retain(|place| wanted.is_none_or(|wanted| wanted == *place));
        let others: Vec<Span> = kinds.iter().flat_map(|other| self.room(kinds, other).0).collect();
        let taken = |place: &Span| others.iter().filter(|other| other.overlaps(*place)).count();
        let span = left.into_iter().min_by_key(taken).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        let compute = BTreeMap::new();
        self.0.insert(number(span), Instance { kind, span, compute, has_sram_error: false });
        Ok(number(span))
    }
}

/// The sizes of compute instances: those of GPU instances, without those that are as large as another.
pub(super) fn compute_sizes(kinds: &[Kind]) -> Vec<ComputeSize> {
    let mut sizes: Vec<ComputeSize> = Vec::new();
    let mut sorted: Vec<&Kind> = kinds.iter().collect();
    // An eighth before a mini-quarter that is as large.
    sorted.sort_by_key(|kind| std::cmp::Reverse(kind.compute_size()));
    for kind in sorted {
        if !sizes.iter().any(|size| (size.gpcs, size.sms) == (kind.gpcs, kind.sms)) {
            let Kind { gpcs, sms, contexts, .. } = *kind;
            sizes.push(ComputeSize { number: kind.compute_size(), gpcs, sms, contexts });
        }
    }
    sizes.reverse();
    sizes
}

impl Instance {
    /// Where compute instances of a size can be, and where they still can.
    pub(super) fn compute_places(&self, size: &ComputeSize) -> (Vec<Span>, Vec<Span>) {
        let starts = (0..self.kind.gpcs).filter(|start| start + size.gpcs <= self.kind.gpcs);
        let all: Vec<Span> = starts.map(|start| Span { start, size: size.gpcs }).collect();
        let is_left = |place: &&Span| !self.compute.values().any(|own| own.span.overlaps(**place));
        let left = all.iter().filter(is_left).copied().collect();
        (all, left)
    }

    /// How many can be made of places.
    pub(super) fn count(places: &[Span]) -> u32 {
        most_at_once(places)
    }

    /// Makes a compute instance: the first place that is left, or one that is wanted.
    pub(super) fn make_compute(
        &mut self,
        size: ComputeSize,
        wanted: Option<u32>,
        engines: Vec<(&'static str, u32)>,
    ) -> Result<u32, Status> {
        let (_, left) = self.compute_places(&size);
        let mut left =
            left.into_iter().filter(|place| wanted.is_none_or(|start| start == place.start));
        let span = left.next().ok_or(Status::INSUFFICIENT_RESOURCES)?;
        let mut numbers = (0..MAX_COMPUTE).filter(|number| !self.compute.contains_key(number));
        let own = numbers.next().ok_or(Status::INSUFFICIENT_RESOURCES)?;
        self.compute.insert(own, Compute { size, span, engines });
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds of an A100, as NVIDIA's user guide has them: flag, GPCs, decoders, engines for JPEG.
    fn kinds() -> Vec<Kind> {
        let kind = |(flag, gpcs, decoders, jpegs): (u32, u32, u32, u32)| {
            let (sms, contexts, optical) = (14 * gpcs, 8 * gpcs, jpegs);
            Kind { flag, gpcs, sms, contexts, decoders, jpegs, optical, ..Kind::default() }
        };
        [
            (0, 7, 5, 1),
            (5, 4, 2, 0),
            (9, 3, 2, 0),
            (0xe, 2, 1, 0),
            (0x17, 1, 0, 0),
            (0x4000_0017, 1, 1, 1),
            (0x12, 1, 1, 0),
        ]
        .map(kind)
        .to_vec()
    }

    #[test]
    fn places_are_those_of_the_user_guide() {
        let kinds = kinds();
        let starts = |at: usize| -> Vec<u32> {
            places(&kinds, &kinds[at]).iter().map(|span| span.start).collect()
        };
        assert_eq!([starts(0), starts(1), starts(2)], [vec![0], vec![0], vec![0, 4]]);
        assert_eq!([starts(3), starts(4)], [vec![0, 2, 4], (0..7).collect::<Vec<_>>()]);
        assert_eq!(starts(6), [0, 2, 4, 6]);
        let none = Instances::default();
        let counts: Vec<u32> = kinds.iter().map(|kind| none.room(&kinds, kind).1).collect();
        assert_eq!(counts, [1, 1, 2, 3, 7, 1, 4]);
    }

    #[test]
    fn instances_get_the_numbers_of_the_user_guide() {
        let kinds = kinds();
        let made = |flags: &[u32]| -> Vec<Result<u32, Status>> {
            let mut own = Instances::default();
            flags.iter().map(|flag| own.make(&kinds, *flag, None)).collect()
        };
        let full = Err(Status::INSUFFICIENT_RESOURCES);
        let small = [Ok(13), Ok(11), Ok(12), Ok(7), Ok(8), Ok(9), Ok(10), full];
        assert_eq!(made(&[0x17; 8]), small);
        assert_eq!(made(&[9, 9, 9]), [Ok(2), Ok(1), full]);
        assert_eq!(made(&[0x17, 0xe, 5]), [Ok(13), Ok(5), Ok(1)]);
        assert_eq!(made(&[0, 0x17]), [Ok(0), full]);
        assert_eq!(made(&[0x4000_0017, 0x4000_0017]), [Ok(13), full]);
        assert_eq!(made(&[1]), [Err(Status::NOT_SUPPORTED)]);
    }

    #[test]
    fn compute_instances_share_a_gpu_instance() {
        let kinds = kinds();
        let mut own = Instances::default();
        let Ok(number) = own.make(&kinds, 9, Some(Span { start: 0, size: 4 })) else { panic!() };
        assert_eq!(number, 1);
        let wrong = own.make(&kinds, 9, Some(Span { start: 2, size: 4 }));
        assert_eq!(wrong, Err(Status::INVALID_ARGUMENT));
        let sizes = compute_sizes(&kinds);
        let numbers: Vec<u32> = sizes.iter().map(|size| size.number).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 5], "a mini-quarter is as large as an eighth");
        let (one, two) = (sizes[4], sizes[3]);
        let Some(instance) = own.0.get_mut(&number) else { panic!() };
        assert_eq!(instance.make_compute(one, None, Vec::new()), Ok(0));
        assert_eq!(instance.make_compute(two, None, Vec::new()), Ok(1));
        let (all, left) = instance.compute_places(&one);
        assert_eq!((Instance::count(&all), Instance::count(&left)), (3, 0));
        let full = instance.make_compute(one, None, Vec::new());
        assert_eq!(full, Err(Status::INSUFFICIENT_RESOURCES));
    }
}

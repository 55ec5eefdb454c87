//! V4L2: cameras, and devices that read frames from one queue and write them to another: converters and codecs.
//! Their own memory is exported, that of others imported.

mod frames;
mod queue;

use std::path::Path;

use zerocopy::FromZeros;

use super::{each, name_of, nodes, open};
use crate::uapi::{self, V4l2Capability};
use crate::{
    Buffer, Capability, CapabilitySet, Description, Device, DeviceInfo, Driver, Error, Hint, Image,
    Import, Listed, Memory, Operation, Result, Transition, Usage, Use, Wait, format,
};
use queue::{Format, Kind, Negotiation, Prepared, Queue};

const FOLDER: &str = "/dev";

/// Every node that captures, converts, encodes or decodes whole frames: `v4l2:video0`, by either of V4L2's interfaces.
pub(super) struct V4l2;

impl Driver for V4l2 {
    fn name(&self) -> &str {
        "v4l2"
    }

    fn devices(&self) -> Result<Listed> {
        Ok(each(&nodes(FOLDER, "video")?, |node| Node::open(node)))
    }
}

struct Node {
    info: DeviceInfo,
    /// One at least.
    roles: Vec<Role>,
}

/// What a queue of a node does with memory.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Role {
    operation: Operation,
    kind: Kind,
    /// Of a decoder: what it decodes, whose size that of its frames follows.
    coded: Option<(Kind, u32)>,
}

impl Role {
    const fn new(operation: Operation, kind: Kind) -> Self {
        Self { operation, kind, coded: None }
    }
}

/// What a node does that reads from one queue and writes to another, by the formats of both.
fn between((from, read): (Kind, &[Format]), (to, written): (Kind, &[Format])) -> Vec<Role> {
    let frames = |formats: &[Format]| formats.iter().any(|format| !format.compressed);
    let coded = |formats: &[Format]| {
        formats.iter().find(|format| format.compressed).map(|format| format.pixelformat)
    };
    let mut roles = Vec::new();
    if frames(read) && frames(written) {
        roles.push(Role::new(Operation::ConvertRead, from));
        roles.push(Role::new(Operation::ConvertWrite, to));
    }
    if frames(read) && coded(written).is_some() {
        roles.push(Role::new(Operation::Encode, from));
    }
    if let Some(coded) = coded(read).filter(|_| frames(written)) {
        roles.push(Role { coded: Some((from, coded)), ..Role::new(Operation::Decode, to) });
    }
    roles
}

impl Node {
    /// `None` for a node that does nothing with frames.
    fn open(path: &Path) -> Result<Option<Self>> {
        let role = Role::new(Operation::Capture, Kind::Capture);
        let mut queue = Queue { file: open(path)?, name: format!("v4l2:{}", name_of(path)), role };
        let mut known = V4l2Capability::new_zeroed();
        queue.call("VIDIOC_QUERYCAP", &uapi::V4L2_QUERYCAP, &mut known)?;
        let of_node = known.capabilities & uapi::V4L2_CAP_DEVICE_CAPS != 0;
        let can = if of_node { known.device_caps } else { known.capabilities };
        let can = |bit: u32| can & bit != 0;
        let between =
            |from, to| Ok(between((from, &queue.formats(from)?), (to, &queue.formats(to)?)));
        let roles = if !can(uapi::V4L2_CAP_STREAMING) {
            Vec::new()
        } else if can(uapi::V4L2_CAP_VIDEO_M2M_PLANES) {
            between(Kind::OutputPlanes, Kind::CapturePlanes)?
        } else if can(uapi::V4L2_CAP_VIDEO_M2M) {
            between(Kind::Output, Kind::Capture)?
        } else if can(uapi::V4L2_CAP_VIDEO_CAPTURE_PLANES) {
            vec![Role::new(Operation::Capture, Kind::CapturePlanes)]
        } else if can(uapi::V4L2_CAP_VIDEO_CAPTURE) {
            vec![role]
        } else {
            Vec::new()
        };
        let info = DeviceInfo {
            name: std::mem::take(&mut queue.name),
            node: path.display().to_string(),
            operations: roles.iter().map(|role| role.operation).collect(),
            allocates: true,
            imports: true,
        };
        Ok(Some(Self { info, roles }).filter(|node| !node.roles.is_empty()))
    }

    /// A queue of its own: the node's other users keep theirs.
    fn queue(&self, role: Role) -> Result<Queue> {
        Ok(Queue { file: open(&self.info.node)?, name: self.info.name.clone(), role })
    }

    fn queue_for(&self, operation: Operation) -> Result<Option<Queue>> {
        let role = self.roles.iter().find(|role| role.operation == operation);
        role.map(|role| self.queue(*role)).transpose()
    }

    /// The queues that are to have this memory: the first where its description does not say.
    fn queues(&self, description: &Description) -> Result<Vec<Queue>> {
        let is_asked = |role: &&Role| {
            let mut uses = description.usage.uses.iter();
            uses.any(|each| each.device == self.info.name && each.operation == role.operation)
        };
        let mut asked: Vec<&Role> = self.roles.iter().filter(is_asked).collect();
        if asked.is_empty() {
            asked.extend(self.roles.first());
        }
        asked.into_iter().map(|role| self.queue(*role)).collect()
    }

    /// A queue with one buffer of the driver's own memory.
    fn own(&self, description: &Description) -> Result<Prepared> {
        Memory::UNKNOWN.serves_of(Some(&self.info), description)?;
        let queue = self.queues(description)?.into_iter().next();
        let none = || Error::unsupported(format!("{} makes no memory", self.info.name));
        queue.ok_or_else(none)?.prepare(description, uapi::V4L2_MMAP)
    }
}

impl Device for Node {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// What the driver makes of the image when it is asked for it, in one file and in one for each plane.
    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        let Some(queue) = self.queue_for(operation)? else { return Ok(Vec::new()) };
        let planes = format::planes(image.format).map_or(1, <[_]>::len);
        let mut ways = vec![1];
        if queue.role.kind.is_by_planes() && frames::by_planes(image.format).is_some() {
            ways.push(planes);
        }
        let mut sets = Vec::new();
        for files in ways {
            // What is refused here it does not take so.
            let Ok(tight) = queue.format(Negotiation::Try, image, &vec![0; files]) else {
                continue;
            };
            let constraints = queue.constraints(image, &tight)?;
            sets.push(CapabilitySet::new(constraints, vec![Capability::pitch_linear()]));
        }
        Ok(sets)
    }

    /// A camera mirrors and turns by controls of its own.
    fn sets_for(&self, usage: &Usage, wanted: &Use) -> Result<Vec<CapabilitySet>> {
        if let Some(unknown) = usage.details.iter().find(|detail| !detail.is_plain()) {
            return Err(self.unknown(unknown));
        }
        for detail in wanted.details.iter().filter(|detail| !detail.is_plain()) {
            let bits = detail.as_transform().ok_or_else(|| self.unknown(detail))?;
            let Some(queue) = self.queue_for(wanted.operation)? else { return Ok(Vec::new()) };
            if !queue.turns(bits)? {
                return Ok(Vec::new());
            }
        }
        self.sets(&usage.image, wanted.operation)
    }

    fn hints(&self, operation: Operation) -> Result<Vec<Hint>> {
        let Some(queue) = self.queue_for(operation)? else { return Ok(Vec::new()) };
        Ok(format::known().filter_map(|format| queue.largest(format)).collect())
    }

    fn cost(&self, _set: &CapabilitySet) -> u64 {
        40
    }

    fn memory(&self) -> Option<Memory> {
        Some(Memory::UNKNOWN)
    }

    fn request(&self, description: &Description) -> String {
        let (image, planes) = (&description.usage.image, &description.layout.planes);
        let pitch = planes.first().map_or(0, |plane| plane.pitch);
        format!(
            "VIDIOC_S_FMT {image} in rows of {pitch} bytes, VIDIOC_EXPBUF, on {}",
            self.info.node
        )
    }

    /// One call makes all of them.
    fn request_files(&self, description: &Description) -> String {
        self.request(description).replace("VIDIOC_EXPBUF", "VIDIOC_EXPBUF of each plane")
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        // The dma-buf holds the memory when the queue is gone.
        Buffer::new(self.own(description)?.export(0)?, description.clone())
    }

    fn allocate_files(&self, description: &Description) -> Result<Buffer> {
        Buffer::by_planes(self.own(description)?.export_all()?, description.clone())
    }

    /// While the import is held, nobody else can capture; other users of a converter or codec have queues of their own.
    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        let mut taken = Vec::new();
        for queue in self.queues(buffer.description())? {
            let prepared = queue.prepare(buffer.description(), uapi::V4L2_DMABUF)?;
            prepared.take(buffer)?;
            taken.push(prepared);
        }
        Ok(Box::new(Taken(taken)))
    }

    /// V4L2 puts no fences: a frame is finished when its buffer comes back.
    fn transition(&self, from: Operation, to: Operation) -> Transition {
        let between = Transition::between(from, to);
        let by_frame = self.info.operations.contains(&from) && between.wait == Wait::Fences;
        Transition { wait: if by_frame { Wait::Device } else { between.wait }, ..between }
    }
}

/// Memory in queues that do not stream.
struct Taken(#[expect(dead_code, reason = "held until it is dropped")] Vec<Prepared>);

impl Import for Taken {}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: Format = Format { pixelformat: 1, compressed: false };
    const CODED: Format = Format { pixelformat: 2, compressed: true };

    #[test]
    fn formats_of_both_queues_say_what_a_node_does() {
        let (from, to) = (Kind::Output, Kind::CapturePlanes);
        let roles = |read: &[Format], written: &[Format]| between((from, read), (to, written));
        let (read, write) =
            (Role::new(Operation::ConvertRead, from), Role::new(Operation::ConvertWrite, to));
        let encode = Role::new(Operation::Encode, from);
        let decode = Role { coded: Some((from, 2)), ..Role::new(Operation::Decode, to) };
        assert_eq!(roles(&[FRAMES], &[FRAMES]), [read, write]);
        assert_eq!(roles(&[FRAMES], &[CODED]), [encode]);
        assert_eq!(roles(&[CODED], &[FRAMES]), [decode]);
        assert_eq!(roles(&[CODED, FRAMES], &[FRAMES]), [read, write, decode]);
        assert_eq!(roles(&[CODED], &[CODED]), []);
        assert_eq!(roles(&[FRAMES], &[]), []);
    }
}

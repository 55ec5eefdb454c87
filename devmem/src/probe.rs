//! What devices need and do not say: found out by letting them take memory, and remembered.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

use nix::libc;

use super::buffer::{Buffer, Description};
use super::capability::CapabilitySet;
use super::constraint::{self, Constraint, ConstraintName};
use super::driver::{Device, DeviceInfo};
use super::drivers;
use super::error::{Error, ErrorKind, Result};
use super::layout::solve;
use super::usage::{Image, Operation, Usage, Use};

/// How many answers are remembered unless it is said.
const CAPACITY: usize = 64;

/// Errors that say nothing about the memory: the device is busy, or something else ran out.
const PASSING: [i32; 6] =
    [libc::EBUSY, libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::EACCES];

/// Makes memory that is in no case in one piece; `None` where nothing makes such.
type Scatter = fn(&Description) -> Result<Option<Buffer>>;

/// Chooses who makes memory, by trying it on all who are to use it.
#[derive(Debug)]
pub struct Prober {
    scatter: Scatter,
    answers: Mutex<Answers>,
}

impl Default for Prober {
    fn default() -> Self {
        Self::new(CAPACITY)
    }
}

impl Prober {
    /// Remembers so many answers; those that were not asked for the longest go first.
    pub fn new(capacity: usize) -> Self {
        let answers = Mutex::new(Answers { capacity, newest_first: Vec::new() });
        Self { scatter: drivers::scattered, answers }
    }

    /// What a device needs for this besides what it says: whether the memory must be in one piece.
    ///
    /// It is asked once: afterwards the answer is remembered, until its file in `/dev` is made anew.
    /// Where nothing makes memory that is certainly scattered, nothing is found out.
    ///
    /// # Errors
    ///
    /// When the device takes neither memory that is scattered nor memory in one piece, or there is
    /// none of the latter to try.
    pub fn needs(
        &self,
        device: &dyn Device,
        operation: Operation,
        description: &Description,
        devices: &[Box<dyn Device>],
    ) -> Result<Vec<Constraint>> {
        let question = Question::new(device.info(), operation);
        if let Some(known) = self.answers().recall(&question) {
            return Ok(known);
        }
        let Some(found) = self.try_pieces(device, description, devices)? else {
            return Ok(Vec::new());
        };
        self.answers().remember(question, found.clone());
        Ok(found)
    }

    /// The sets of a device, with what it needs besides: to derive from instead of [`Device::sets`].
    ///
    /// # Errors
    ///
    /// As [`Device::sets`] and [`Self::needs`].
    pub fn sets(
        &self,
        device: &dyn Device,
        image: &Image,
        operation: Operation,
        devices: &[Box<dyn Device>],
    ) -> Result<Vec<CapabilitySet>> {
        let mut sets = device.sets(image, operation)?;
        if !device.info().imports {
            return Ok(sets);
        }
        for set in &mut sets {
            // Where nothing is known of the layout, there is nothing to try.
            let Ok(layout) = solve(image, set) else { continue };
            let uses = vec![Use::new(device.info().name.clone(), operation)];
            let usage = Usage { image: *image, uses };
            let description = Description { usage, set: set.clone(), layout, metadata: Vec::new() };
            let needs = self.needs(device, operation, &description, devices)?;
            set.constraints = merged(device, &set.constraints, &needs)?;
        }
        Ok(sets)
    }

    fn try_pieces(
        &self,
        device: &dyn Device,
        description: &Description,
        devices: &[Box<dyn Device>],
    ) -> Result<Option<Vec<Constraint>>> {
        let Some(scattered) = (self.scatter)(description)? else { return Ok(None) };
        let refusal = match device.import(&scattered) {
            Ok(_) => return Ok(Some(Vec::new())),
            Err(error) if error.errno().is_some_and(|errno| PASSING.contains(&errno)) => {
                return Err(error);
            }
            Err(error) => error,
        };
        let mut contiguous = description.clone();
        let one_piece = Constraint::new(ConstraintName::CONTIGUOUS, 1);
        contiguous.set.constraints.retain(|known| known.name != one_piece.name);
        contiguous.set.constraints.push(one_piece);
        // Only memory of which it is known proves something.
        let mut known = allocators(&contiguous, devices).filter(|device| device.memory().is_some());
        let whole = known.find_map(|device| device.allocate(&contiguous).ok());
        let Some(whole) = whole.or_else(|| drivers::one_piece(&contiguous)) else {
            let what = format!(
                "{} refuses scattered memory, and nothing makes memory in one piece to try: {refusal}",
                device.info().name
            );
            return Err(Error::unsupported(what));
        };
        device.import(&whole).map(|_| Some(vec![one_piece]))
    }

    /// Makes memory that all of `devices` which are to use it take: by the cheapest of them that
    /// makes memory as described. Those that are to use it are in the description, by name; what
    /// turns out to be needed becomes part of it.
    ///
    /// # Errors
    ///
    /// When a device is not there, when what they need cannot be merged, and when no memory serves:
    /// with what came of each.
    pub fn allocate(
        &self,
        devices: &[Box<dyn Device>],
        description: &Description,
    ) -> Result<Buffer> {
        let mut description = description.clone();
        let users = users(devices, &description)?;
        for (device, operation) in &users {
            if device.info().imports {
                let needs = self.needs(*device, *operation, &description, devices)?;
                let merged = merged(*device, &description.set.constraints, &needs)?;
                description.set.constraints = merged;
            }
        }
        let mut refusals = Vec::new();
        for allocator in allocators(&description, devices) {
            match try_allocator(allocator, &users, &description) {
                Ok(buffer) => return Ok(buffer),
                Err(error) => refusals.push(format!("{}: {error}", allocator.info().name)),
            }
        }
        let what = if refusals.is_empty() {
            "no device makes memory".to_owned()
        } else {
            format!("no memory serves all: {}", refusals.join("; "))
        };
        Err(Error::unsupported(what))
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn merged(
    device: &dyn Device,
    constraints: &[Constraint],
    needs: &[Constraint],
) -> Result<Vec<Constraint>> {
    let refused = |conflict| Error::unsupported(format!("{}: {conflict}", device.info().name));
    constraint::merge(constraints, needs).map_err(refused)
}

/// The devices that make memory, the cheapest first.
fn allocators<'d>(
    description: &Description,
    devices: &'d [Box<dyn Device>],
) -> impl Iterator<Item = &'d dyn Device> + use<'d> {
    let mut found: Vec<&dyn Device> =
        devices.iter().map(AsRef::as_ref).filter(|device| device.info().allocates).collect();
    found.sort_by_key(|device| device.cost(&description.set));
    found.into_iter()
}

/// The devices that are to use the memory.
fn users<'d>(
    devices: &'d [Box<dyn Device>],
    description: &Description,
) -> Result<Vec<(&'d dyn Device, Operation)>> {
    let user = |wanted: &Use| {
        let found = devices.iter().find(|device| device.info().name == wanted.device);
        let missing = || Error::invalid(format!("there is no device {}", wanted.device));
        Ok((found.ok_or_else(missing)?.as_ref(), wanted.operation))
    };
    description.usage.uses.iter().map(user).collect()
}

fn try_allocator(
    allocator: &dyn Device,
    users: &[(&dyn Device, Operation)],
    description: &Description,
) -> Result<Buffer> {
    let buffer = allocator.allocate(description)?;
    for (user, _) in users {
        // Who only makes memory, such as a heap, takes what it made itself.
        if user.info().imports {
            user.import(&buffer)?;
        } else if user.info().name != allocator.info().name {
            let what = format!("{} cannot import memory", user.info().name);
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
    }
    Ok(buffer)
}

/// What was asked of a device: it is another one when its file has been made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Question {
    name: String,
    number: u64,
    inode: u64,
    operation: Operation,
}

impl Question {
    fn new(info: &DeviceInfo, operation: Operation) -> Self {
        let node = fs::metadata(&info.node);
        let (number, inode) = node.map_or((0, 0), |node| (node.rdev(), node.ino()));
        Self { name: info.name.clone(), number, inode, operation }
    }
}

#[derive(Debug)]
struct Answers {
    capacity: usize,
    newest_first: Vec<(Question, Vec<Constraint>)>,
}

impl Answers {
    fn recall(&mut self, question: &Question) -> Option<Vec<Constraint>> {
        let at = self.newest_first.iter().position(|(known, _)| known == question)?;
        self.newest_first[..=at].rotate_right(1);
        self.newest_first.first().map(|(_, answer)| answer.clone())
    }

    fn remember(&mut self, question: Question, answer: Vec<Constraint>) {
        self.newest_first.retain(|(known, _)| *known != question);
        self.newest_first.insert(0, (question, answer));
        self.newest_first.truncate(self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{Capability, Fourcc, Import, Memory};

    /// A device that takes memory as a test says, and counts how often it is asked to.
    struct Fake {
        info: DeviceInfo,
        takes: fn(&Buffer) -> Result<()>,
        memory: Memory,
        asked: Arc<AtomicUsize>,
    }

    struct Taken;

    impl Import for Taken {}

    impl Device for Fake {
        fn info(&self) -> &DeviceInfo {
            &self.info
        }

        fn sets(&self, _: &Image, _: Operation) -> Result<Vec<CapabilitySet>> {
            Ok(vec![CapabilitySet::new(vec![], vec![Capability::pitch_linear()])])
        }

        fn memory(&self) -> Option<Memory> {
            Some(self.memory)
        }

        fn allocate(&self, description: &Description) -> Result<Buffer> {
            self.memory.serves(description)?;
            plain(description, self.memory.contiguous == u64::MAX)
        }

        fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            (self.takes)(buffer).map(|()| Box::new(Taken) as _)
        }
    }

    /// Memory that says of itself whether it is in one piece.
    fn plain(description: &Description, whole: bool) -> Result<Buffer> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(description.layout.size).unwrap();
        let mut description = description.clone();
        description.metadata = vec![("whole".to_owned(), vec![u8::from(whole)])];
        Buffer::new(file.into(), description)
    }

    fn is_whole(buffer: &Buffer) -> bool {
        buffer.description().metadata.first().is_some_and(|(_, value)| *value == [1])
    }

    fn whole_alone(buffer: &Buffer) -> Result<()> {
        let refused = std::io::Error::from_raw_os_error(libc::EFAULT);
        let refused = || Error::io(ErrorKind::Call, "import", refused);
        is_whole(buffer).then_some(()).ok_or_else(refused)
    }

    fn busy(_: &Buffer) -> Result<()> {
        let busy = std::io::Error::from_raw_os_error(libc::EBUSY);
        Err(Error::io(ErrorKind::Call, "import", busy))
    }

    fn any(_: &Buffer) -> Result<()> {
        Ok(())
    }

    fn fake(name: &str, takes: fn(&Buffer) -> Result<()>, contiguous: u64) -> Box<Fake> {
        let info = DeviceInfo {
            name: name.to_owned(),
            node: String::new(),
            operations: vec![Operation::Capture],
            allocates: contiguous > 0,
            imports: true,
        };
        let memory = Memory { contiguous, ..Memory::PAGES };
        Box::new(Fake { info, takes, memory, asked: Arc::default() })
    }

    fn prober(capacity: usize) -> Prober {
        let mut prober = Prober::new(capacity);
        prober.scatter = |description| plain(description, false).map(Some);
        prober
    }

    fn description(uses: &[&str]) -> Description {
        let image = Image::new(64, 64, Fourcc::new(b"XR24"));
        let set = CapabilitySet::new(vec![], vec![Capability::pitch_linear()]);
        let layout = solve(&image, &set).unwrap();
        let uses = uses.iter().map(|name| Use::new(*name, Operation::Capture)).collect();
        Description { usage: Usage { image, uses }, set, layout, metadata: Vec::new() }
    }

    const ONE_PIECE: Constraint = Constraint::new(ConstraintName::CONTIGUOUS, 1);

    #[test]
    fn what_is_found_out_is_asked_once() {
        let (camera, heap) = (fake("camera", whole_alone, 0), fake("heap", any, u64::MAX));
        let asked = camera.asked.clone();
        let devices: Vec<Box<dyn Device>> = vec![heap];
        let prober = prober(4);
        for _ in 0..3 {
            let needs = prober.needs(&*camera, Operation::Capture, &description(&[]), &devices);
            assert_eq!(needs.unwrap(), [ONE_PIECE]);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2, "scattered, and in one piece");
        // Another operation is another question.
        prober.needs(&*camera, Operation::Encode, &description(&[]), &devices).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn no_more_is_remembered_than_was_said() {
        let cameras: Vec<Box<Fake>> =
            ["a", "b", "c"].map(|name| fake(name, any, 0)).into_iter().collect();
        let asked = |index: usize| cameras[index].asked.load(Ordering::Relaxed);
        let prober = prober(2);
        let ask = |index: usize| {
            let operation = Operation::Capture;
            prober.needs(&*cameras[index], operation, &description(&[]), &[]).unwrap()
        };
        // `a` is asked again and so stays; `b` has to go for `c`.
        for index in [0, 1, 0, 2, 0] {
            ask(index);
        }
        assert_eq!([asked(0), asked(1), asked(2)], [1, 1, 1]);
        ask(1);
        assert_eq!(asked(1), 2);
    }

    #[test]
    fn what_passes_is_not_remembered() {
        let camera = fake("camera", busy, 0);
        let prober = prober(4);
        for _ in 0..2 {
            let needs = prober.needs(&*camera, Operation::Capture, &description(&[]), &[]);
            assert_eq!(needs.unwrap_err().errno(), Some(libc::EBUSY));
        }
        assert_eq!(camera.asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn memory_is_what_all_users_take() {
        let devices: Vec<Box<dyn Device>> = vec![
            fake("camera", whole_alone, 0),
            fake("display", any, 0),
            fake("pages", any, 4096),
            fake("heap", any, u64::MAX),
        ];
        let buffer = prober(4).allocate(&devices, &description(&["display"])).unwrap();
        assert!(!is_whole(&buffer));
        let buffer = prober(4).allocate(&devices, &description(&["display", "camera"])).unwrap();
        assert!(is_whole(&buffer));
        assert_eq!(buffer.description().set.constraints, [ONE_PIECE]);
    }

    #[test]
    fn who_takes_neither_kind_of_memory_says_so() {
        let camera = fake("camera", |_| Err(Error::unsupported("no")), 0);
        let devices: Vec<Box<dyn Device>> = vec![fake("heap", any, u64::MAX)];
        let needs = prober(4).needs(&*camera, Operation::Capture, &description(&[]), &devices);
        assert_eq!(needs.unwrap_err().to_string(), "no");
    }
}

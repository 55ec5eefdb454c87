//! Failures on demand.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use super::status::Status;
use nvabi_supervise::Errno;

/// A call that is to fail, or to take long: `OPEN_CHANNEL:3:ENOMEM`, `MAP_BUFFER_EX:1:delay=10ms`,
/// `open:2:EMFILE`, `GPU_GET_ATTACHED_IDS:1:NV_ERR_NO_MEMORY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The driver's name of the call, or the end of it behind an underscore; or `mmap`, or `open`,
    /// which can fail and not be delayed.
    pub call: String,
    /// Which of them, from 1; 0 is all.
    pub occurrence: u64,
    /// What happens to it.
    pub effect: Effect,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It does nothing and fails.
    Fail(Errno),
    /// It does nothing and tells this status, where the driver has any.
    Refuse(Status),
    /// It takes longer.
    Delay(Duration),
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Errno(Errno),
    Status(Status),
}

impl Fault {
    /// Whether it means a call of this name.
    fn names(&self, call: &str) -> bool {
        self.call == call || call.strip_suffix(&self.call).is_some_and(|rest| rest.ends_with('_'))
    }

    /// Calls that share most words with its own, when it names none.
    fn near_names<'n>(&self, names: &[&'n str]) -> Vec<&'n str> {
        let shared =
            |name: &str| self.call.split('_').filter(|word| is_word_of(name, word)).count();
        let all = names.iter().copied().chain(OURS);
        let mut names: Vec<_> = all.filter(|name| shared(name) > 0).collect();
        names.sort_by_key(|name| (std::cmp::Reverse(shared(name)), *name));
        names.dedup();
        names.truncate(4);
        names
    }
}

/// Whether a word is part of a name.
fn is_word_of(name: &str, word: &str) -> bool {
    word.len() > 2 && name.split('_').any(|other| other.eq_ignore_ascii_case(word))
}

/// System calls that are no ioctls.
const OURS: [&str; 2] = ["mmap", "open"];

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.occurrence {
            0 => write!(f, "{}:*:", self.call)?,
            number => write!(f, "{}:{number}:", self.call)?,
        }
        match self.effect {
            Effect::Fail(errno) => write!(f, "{errno}"),
            Effect::Refuse(status) => write!(f, "{status}"),
            Effect::Delay(time) => write!(f, "delay={}us", time.as_micros()),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usage =
            || format!("`{text}` is not CALL:N:ERRNO or CALL:N:delay=TIME with N from 1 or `*`");
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().filter(|part| !part.is_empty()).ok_or_else(usage);
        let (call, occurrence, effect) = (next()?, next()?, next()?);
        let occurrence = match occurrence {
            "*" => 0,
            // All calls are `*` alone: who counts from 0 means the first one.
            number => number.parse().ok().filter(|number| *number > 0).ok_or_else(usage)?,
        };
        let effect = match effect.strip_prefix("delay=") {
            Some(time) => Effect::Delay(duration(time).ok_or_else(usage)?),
            None if effect.starts_with("NV_") => Effect::Refuse(effect.parse()?),
            None => Effect::Fail(effect.parse()?),
        };
        Ok(Self { call: call.to_owned(), occurrence, effect })
    }
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number = number.parse().ok()?;
    match unit {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

/// The faults of a run, and how often their calls were made.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    faults: Vec<Fault>,
    /// Which of them have happened.
    happened: Vec<bool>,
    made: HashMap<String, u64>,
}

impl Faults {
    /// Those of a run, and the names of its machine's calls; one that names no call is refused.
    pub(crate) fn new(faults: Vec<Fault>, names: &[&str]) -> io::Result<Self> {
        let is_known = |fault: &&Fault| names.iter().chain(&OURS).any(|name| fault.names(name));
        if let Some(fault) = faults.iter().find(|fault| !is_known(fault)) {
            let near = fault.near_names(names);
            let near =
                if near.is_empty() { String::new() } else { format!(": {}", near.join(", ")) };
            let text = format!("no simulated call is named `{}`{near}", fault.call);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let happened = vec![false; faults.len()];
        Ok(Self { faults, happened, made: HashMap::new() })
    }

    /// Those that have not happened.
    pub(crate) fn unmet(&self) -> Vec<String> {
        let unmet = self.faults.iter().zip(&self.happened).filter(|(_, happened)| !**happened);
        unmet.map(|(fault, _)| fault.to_string()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// Counts a call and says what happens to it.
    pub(crate) fn next(&mut self, call: &str) -> Option<Effect> {
        // Calls that no fault means are not remembered: a client may make any number of them.
        if !self.faults.iter().any(|fault| fault.names(call)) {
            return None;
        }
        let made = self.made.entry(call.to_owned()).or_default();
        *made += 1;
        let made = *made;
        let is_meant = |fault: &Fault| {
            fault.names(call) && (fault.occurrence == made || fault.occurrence == 0)
        };
        let index = self.faults.iter().position(is_meant)?;
        self.happened[index] = true;
        Some(self.faults[index].effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = [
        "NVGPU_GPU_IOCTL_OPEN_CHANNEL",
        "NVGPU_IOCTL_CHANNEL_OPEN",
        "NVMAP_IOC_CREATE",
        "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS",
    ];

    #[test]
    fn faults_are_read() {
        let fault: Result<Fault, _> = "OPEN_CHANNEL:3:ENOMEM".parse();
        let effect = Effect::Fail(Errno::ENOMEM);
        assert_eq!(fault, Ok(Fault { call: "OPEN_CHANNEL".to_owned(), occurrence: 3, effect }));
        let fault: Result<Fault, _> = "ALLOC_AS:*:delay=10ms".parse();
        let effect = Effect::Delay(Duration::from_millis(10));
        assert_eq!(fault, Ok(Fault { call: "ALLOC_AS".to_owned(), occurrence: 0, effect }));
        let fault: Result<Fault, _> = "GPU_GET_ATTACHED_IDS:1:NV_ERR_NO_MEMORY".parse();
        assert_eq!(fault.map(|f| f.effect), Ok(Effect::Refuse(Status::NO_MEMORY)));
        for wrong in [
            "A:1:NV_ERR_EVIL",
            "",
            "A",
            "A:1",
            "A:x:EIO",
            "A:0:EIO",
            "A:1:EVIL",
            "A:1:delay=3",
            "A:1:delay=3h",
        ] {
            assert!(wrong.parse::<Fault>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_of_several_calls_is_meant() {
        let faults: Vec<Fault> = ["OPEN_CHANNEL:2:ENOMEM"].iter().flat_map(|f| f.parse()).collect();
        let mut faults = Faults::new(faults, &NAMES).unwrap_or_default();
        assert_eq!(faults.unmet(), ["OPEN_CHANNEL:2:ENOMEM"]);
        assert_eq!(faults.next("NVGPU_GPU_IOCTL_OPEN_CHANNEL"), None);
        assert_eq!(faults.next("NVGPU_IOCTL_CHANNEL_OPEN"), None);
        let second = faults.next("NVGPU_GPU_IOCTL_OPEN_CHANNEL");
        assert_eq!(second, Some(Effect::Fail(Errno::ENOMEM)));
        assert_eq!(faults.unmet(), [""; 0]);
        assert_eq!(faults.next("NVGPU_GPU_IOCTL_OPEN_CHANNEL"), None);
    }

    #[test]
    fn names_of_no_call_are_refused() {
        let told = |text: &str| {
            let fault: Vec<Fault> = text.parse().into_iter().collect();
            Faults::new(fault, &NAMES).err().map(|error| error.to_string())
        };
        let text = "no simulated call is named `CHANNEL_OPENING`: ";
        assert!(told("CHANNEL_OPENING:1:EIO").is_some_and(|told| told.starts_with(text)));
        let told_of_open = told("OPEN_CHANEL:1:EIO").unwrap_or_default();
        assert!(told_of_open.contains("NVGPU_IOCTL_CHANNEL_OPEN"), "{told_of_open}");
        assert_eq!(told("open:1:EIO"), None);
        assert_eq!(told("NVMAP_IOC_CREATE:1:EIO"), None);
    }
}

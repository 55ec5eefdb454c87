//! Failures on demand.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

use super::kernel::Errno;

/// A call that is to fail, or to take long: `OPEN_CHANNEL:3:ENOMEM`, `MAP_BUFFER_EX:1:delay=10ms`,
/// `open:2:EMFILE`.
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
    /// It takes longer.
    Delay(Duration),
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usage = || format!("`{text}` is not CALL:N:ERRNO or CALL:N:delay=TIME");
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().filter(|part| !part.is_empty()).ok_or_else(usage);
        let (call, occurrence, effect) = (next()?, next()?, next()?);
        let occurrence = match occurrence {
            "*" => 0,
            number => number.parse().map_err(|_| usage())?,
        };
        let effect = match effect.strip_prefix("delay=") {
            Some(time) => Effect::Delay(duration(time).ok_or_else(usage)?),
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
    made: HashMap<String, u64>,
}

impl Faults {
    pub(crate) fn new(faults: Vec<Fault>) -> Self {
        Self { faults, made: HashMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// Counts a call and says what happens to it.
    pub(crate) fn next(&mut self, call: &str) -> Option<Effect> {
        let made = self.made.entry(call.to_owned()).or_default();
        *made += 1;
        let made = *made;
        let is_meant = |fault: &&Fault| {
            let names = fault.call == call
                || call.strip_suffix(&fault.call).is_some_and(|rest| rest.ends_with('_'));
            names && (fault.occurrence == made || fault.occurrence == 0)
        };
        self.faults.iter().find(is_meant).map(|fault| fault.effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let fault: Result<Fault, _> = "OPEN_CHANNEL:3:ENOMEM".parse();
        let effect = Effect::Fail(Errno::ENOMEM);
        assert_eq!(fault, Ok(Fault { call: "OPEN_CHANNEL".to_owned(), occurrence: 3, effect }));
        let fault: Result<Fault, _> = "ALLOC_AS:*:delay=10ms".parse();
        let effect = Effect::Delay(Duration::from_millis(10));
        assert_eq!(fault, Ok(Fault { call: "ALLOC_AS".to_owned(), occurrence: 0, effect }));
        for wrong in ["", "A", "A:1", "A:x:EIO", "A:1:EVIL", "A:1:delay=3", "A:1:delay=3h"] {
            assert!(wrong.parse::<Fault>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_of_several_calls_is_meant() {
        let faults: Vec<Fault> = ["OPEN_CHANNEL:2:ENOMEM"].iter().flat_map(|f| f.parse()).collect();
        let mut faults = Faults::new(faults);
        assert_eq!(faults.next("NVGPU_GPU_IOCTL_OPEN_CHANNEL"), None);
        assert_eq!(faults.next("NVGPU_IOCTL_CHANNEL_OPEN"), None);
        let second = faults.next("NVGPU_GPU_IOCTL_OPEN_CHANNEL");
        assert_eq!(second, Some(Effect::Fail(Errno::ENOMEM)));
        assert_eq!(faults.next("NVGPU_GPU_IOCTL_OPEN_CHANNEL"), None);
    }
}

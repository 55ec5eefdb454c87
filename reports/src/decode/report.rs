//! What was found in logs, as plain data.

use std::collections::BTreeMap;

use nix::errno::Errno;
use serde::Serialize;

use super::catalog::{self, NodeId};
use super::fds::{How, Slot};
use super::fold::Part;
use super::line::Result as Ended;
pub use super::phases::PhaseForm;
use super::phases::PhaseSummary;
use super::{Decoder, Key, Pid, Symbol, Tally};
use nvabi_pipeline::model::{DIRECTIONS, request_size};

/// As many numbers of lines that could not be read are kept.
pub(crate) const FIRST_LINES: usize = 8;

/// Failures by the name of the error.
pub type Errors = BTreeMap<String, u64>;

/// Everything that logs tell of ioctls. Each ioctl of the logs is counted once: in a device, among
/// the unknown that have no node, elsewhere, or as unread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decoded {
    /// Lines read.
    pub lines: u64,
    /// Ioctls among them.
    pub ioctls: u64,
    /// The releases of Jetson that know every request that was answered; none where there is no
    /// choice, as no such request was made or one release was asked for.
    pub releases: Option<Vec<String>>,
    /// What has a node in the specs.
    pub devices: Vec<Device>,
    /// Requests that no spec knows, those of the devices among them.
    pub unknown: Vec<Unknown>,
    /// Requests on files that are no such devices, and those that any file knows.
    pub elsewhere: Vec<Elsewhere>,
    /// What each process did, in order.
    pub phases: Vec<Phase>,
    /// What could not be read.
    pub unread: Unread,
}

/// What the kernel itself answers on any file, or programs ask any file to learn whether it is a terminal.
const OF_ANY_FILE: [(u32, &str); 7] = [
    (0x5401, "TCGETS"),
    (0x5413, "TIOCGWINSZ"),
    (0x541b, "FIONREAD"),
    (0x5421, "FIONBIO"),
    (0x5450, "FIONCLEX"),
    (0x5451, "FIOCLEX"),
    (0x5452, "FIOASYNC"),
];

/// The name of a request that any file may be asked.
pub(super) fn of_any_file(request: u32) -> Option<&'static str> {
    OF_ANY_FILE.iter().find(|(number, _)| *number == request).map(|(_, name)| *name)
}

/// The ioctls of one device, or of all fds that ioctls returned for one kind of node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Device {
    /// The node, by its name in the spec.
    pub node: String,
    /// What it is, by the spec.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The path that was opened; none for what ioctls return, and for fds that are known by their requests alone.
    pub path: Option<String>,
    /// How often it was opened, as far as the logs show.
    pub opened: u64,
    /// By number.
    pub calls: Vec<Row>,
}

/// One request on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The number in the request.
    pub nr: Option<u32>,
    /// The letter in the request, as a number.
    pub magic: Option<u32>,
    /// `none`, `read`, `write` or `readwrite`.
    pub dir: Option<&'static str>,
    /// Bytes of the argument, by the request.
    pub size: Option<u32>,
    /// The constant in the headers; none if the node knows no such request.
    pub name: Option<String>,
    /// The name without family and node.
    pub short: Option<String>,
    /// The whole request; none where strace wrote a name whose number is not known.
    pub request: Option<u32>,
    /// The names that strace wrote, of whatever driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// Types of the argument.
    pub params: Vec<String>,
    /// How often.
    pub count: u64,
    /// How often in vain.
    pub errors: Errors,
    /// How many of the calls were on file descriptors that only their request speaks for.
    #[serde(skip_serializing_if = "is_zero")]
    pub guessed: u64,
    /// What else there is to say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A request that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// The node it was made on; none where that is not known either.
    pub node: Option<String>,
    /// Its path.
    pub path: Option<String>,
    /// The request.
    #[serde(flatten)]
    pub row: Row,
}

/// A request on a file that is no device of the specs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Elsewhere {
    /// The file, or the call that made it.
    pub path: String,
    /// The request.
    #[serde(flatten)]
    pub row: Row,
}

/// A part of what a process did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// The process; 0 where the log has no pids.
    pub pid: u32,
    /// Such as `Discovery`.
    pub title: &'static str,
    /// First line of the log.
    pub first: u64,
    /// Last line of the log.
    pub last: u64,
    /// Opens and ioctls in it.
    pub calls: u64,
    /// What `steps` are.
    pub form: PhaseForm,
    /// What was done.
    pub steps: Vec<Step>,
}

/// Something that was done a number of times in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Step {
    /// A device was opened.
    Open {
        /// How often.
        times: u64,
        /// Its path.
        open: String,
    },
    /// An ioctl.
    Call {
        /// How often.
        times: u64,
        /// `G:5`, letter and number.
        nr: String,
        /// The short name, or what strace wrote.
        name: String,
        /// The nodes whose fds it returned.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        opens: Vec<String>,
        /// Whether it failed.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        failed: bool,
    },
    /// Steps that repeat together.
    Loop {
        /// How often.
        times: u64,
        /// What repeats.
        steps: Vec<Step>,
    },
}

/// Lines that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// Lines that are none of strace's.
    pub lines: u64,
    /// Ioctls whose line was cut before the request, or that stand in such lines.
    pub ioctls: u64,
    /// The numbers of the first of both.
    pub first: Vec<u64>,
}

/// One call, for whoever wants each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Called<'a> {
    /// The line that it begins on.
    pub line: u64,
    /// Who made it; 0 where the log has no pids.
    pub pid: u32,
    /// On what file descriptor.
    pub fd: i64,
    /// The node behind that.
    pub node: Option<&'a str>,
    /// The path behind that.
    pub path: Option<&'a str>,
    /// The constant in the headers.
    pub name: Option<&'a str>,
    /// The whole request.
    pub request: Option<u32>,
    /// The names that strace wrote, of whatever driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<&'a str>,
    /// Types of the argument.
    pub params: Vec<&'a str>,
    /// What came back, where the call succeeded.
    pub result: Option<i64>,
    /// The error, where it failed.
    pub error: Option<&'a str>,
    /// How it is known whose file descriptor it is: `seen`, `ioctl`, `request` or `unknown`.
    pub how: &'static str,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The name of an error that strace wrote as a name or a number.
pub(crate) fn errno(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    match text.parse().map(Errno::from_raw) {
        Ok(Errno::UnknownErrno) | Err(_) => text.into_owned(),
        Ok(known) => format!("{known:?}"),
    }
}

impl Decoder<'_> {
    /// What was read from the logs.
    pub fn report(&self) -> Decoded {
        Decoded {
            lines: self.lines,
            ioctls: self.ioctls,
            releases: self.releases(),
            devices: self.devices(),
            unknown: self.unknown(),
            elsewhere: self.elsewhere(),
            phases: self.phases(),
            unread: self.unread.clone(),
        }
    }

    fn node_name(&self, node: Option<NodeId>) -> Option<&str> {
        Some(&self.catalog.nodes.get(usize::from(node?))?.name)
    }

    fn releases(&self) -> Option<Vec<String>> {
        const FAMILY: &str = "tegra";
        let asked = self.tallies.iter().filter_map(|tally| match tally.key {
            Key::Number(number) if self.answered(tally) => {
                Some((self.files[tally.file as usize].node?, number))
            }
            _ => None,
        });
        let tags = self.catalog.tags_with(FAMILY, asked)?;
        let choice = self.catalog.tags_of(FAMILY) > 1;
        choice.then(|| tags.into_iter().map(ToString::to_string).collect())
    }

    fn answered(&self, tally: &Tally) -> bool {
        let refused = |errno: u32| matches!(&*self.errnos[errno as usize], "ENOTTY" | "EBADF");
        let failed: u64 = tally.errors.iter().filter(|e| refused(e.0)).map(|e| e.1).sum();
        failed < tally.count
    }

    fn devices(&self) -> Vec<Device> {
        let with_node =
            self.files.iter().zip(0..).filter_map(|(file, id)| Some((file.node?, id, file)));
        let mut devices: Vec<((NodeId, Option<&str>), Device)> = Vec::new();
        for (node, id, file) in with_node {
            let calls = self.rows(id);
            if calls.is_empty() && file.opened == 0 {
                continue;
            }
            let known = &self.catalog.nodes[usize::from(node)];
            devices.push((
                (node, file.path.as_deref()),
                Device {
                    node: known.name.clone(),
                    note: known.note.clone(),
                    path: file.path.as_deref().map(str::to_owned),
                    opened: file.opened,
                    calls,
                },
            ));
        }
        devices.sort_by_key(|(key, _)| *key);
        devices.into_iter().map(|(_, device)| device).collect()
    }

    fn rows(&self, file: u32) -> Vec<Row> {
        let mut rows: Vec<Row> = self
            .tallies
            .iter()
            .filter(|tally| tally.file == file && !self.is_of_any_file(tally))
            .map(|tally| self.row(tally))
            .collect();
        rows.sort_by(|a, b| {
            (a.magic, a.nr, a.request, &a.words).cmp(&(b.magic, b.nr, b.request, &b.words))
        });
        rows
    }

    fn row(&self, tally: &Tally) -> Row {
        let node = self.files[tally.file as usize].node;
        let (request, words) = (number(tally.key), self.words_of(tally));
        let known = node.zip(request).and_then(|(node, request)| self.catalog.known(node, request));
        let errors =
            tally.errors.iter().map(|(at, count)| (self.errnos[*at as usize].to_string(), *count));
        let short =
            known.map(|k| catalog::short(&k.name, self.node_name(node).unwrap_or_default()));
        Row {
            nr: request.map(|request| request & 0xff),
            magic: request.map(|request| request >> 8 & 0xff),
            dir: request.map(|request| DIRECTIONS[(request >> 30) as usize]),
            size: request.map(|request| request_size(request.into()) as u32),
            name: known.map(|known| known.name.clone()),
            short: short.map(str::to_owned),
            request,
            words: words.map(str::to_owned),
            params: known.map_or_else(Vec::new, |known| {
                known.params_of(request).into_iter().map(str::to_owned).collect()
            }),
            count: tally.count,
            errors: errors.collect(),
            guessed: tally.guessed,
            notes: node.zip(request).map_or_else(Vec::new, |(n, r)| self.catalog.notes(n, r)),
        }
    }

    /// What strace wrote, if no number.
    fn words_of(&self, tally: &Tally) -> Option<&str> {
        self.named.get(tally.words? as usize).map(|(words, _)| words.as_str())
    }

    /// Requests without a name: of devices, and of file descriptors that nobody knows.
    fn unknown(&self) -> Vec<Unknown> {
        let nameless = self.tallies.iter().filter(|tally| {
            let file = &self.files[tally.file as usize];
            (file.node.is_some() || file.path.is_none()) && !self.is_of_any_file(tally)
        });
        let rows = nameless.filter_map(|tally| {
            let (file, row) = (&self.files[tally.file as usize], self.row(tally));
            let node = self.node_name(file.node).map(str::to_owned);
            let path = file.path.as_deref().map(str::to_owned);
            row.name.is_none().then_some(Unknown { node, path, row })
        });
        let mut rows: Vec<Unknown> = rows.collect();
        rows.sort_by(|a, b| {
            (&a.node, &a.path, a.row.request, &a.row.words).cmp(&(
                &b.node,
                &b.path,
                b.row.request,
                &b.row.words,
            ))
        });
        rows
    }

    /// Whether it is a request of no driver's, which its device does not know either.
    fn is_of_any_file(&self, tally: &Tally) -> bool {
        let Some(request) = number(tally.key) else { return false };
        let node = self.files[tally.file as usize].node;
        let is_known = node.is_some_and(|node| self.catalog.known(node, request).is_some());
        of_any_file(request).is_some() && !is_known
    }

    fn elsewhere(&self) -> Vec<Elsewhere> {
        let rows = self.tallies.iter().filter_map(|tally| {
            let file = &self.files[tally.file as usize];
            let is_other = file.node.is_none() && file.path.is_some();
            let path = file.path.as_deref().or(self.node_name(file.node)).unwrap_or("?");
            let is_here = is_other || self.is_of_any_file(tally);
            is_here.then(|| Elsewhere { path: path.to_owned(), row: self.row(tally) })
        });
        let mut rows: Vec<Elsewhere> = rows.collect();
        rows.sort_by(|a, b| {
            (&a.path, a.row.request, &a.row.words).cmp(&(&b.path, b.row.request, &b.row.words))
        });
        rows
    }

    fn phases(&self) -> Vec<Phase> {
        let all = self.phases.iter().flat_map(|(pid, phases)| {
            phases.summaries().into_iter().map(move |phase| self.phase(*pid, phase))
        });
        all.collect()
    }

    fn phase(&self, pid: Pid, summary: PhaseSummary) -> Phase {
        Phase {
            pid,
            title: summary.title,
            first: summary.lines.0,
            last: summary.lines.1,
            calls: summary.calls,
            form: summary.how,
            steps: summary.steps.into_iter().map(|step| self.step(step)).collect(),
        }
    }

    fn step(&self, (part, times): (Part, u64)) -> Step {
        let symbol = match part {
            Part::One(symbol) => self.symbols[symbol as usize],
            Part::Loop(body) => {
                let steps = body.into_iter().map(|step| self.step(step)).collect();
                return Step::Loop { times, steps };
            }
        };
        match symbol {
            Symbol::Open(file) => {
                let path = self.files[file as usize].path.as_deref();
                Step::Open { times, open: path.unwrap_or_default().to_owned() }
            }
            Symbol::Call { node, key, failed } => self.call_step(times, node, key, failed),
        }
    }

    fn call_step(&self, times: u64, node: NodeId, key: Key, failed: bool) -> Step {
        let request = number(key);
        let words = match key {
            Key::Words(at) => self.named.get(at as usize).map(|(words, _)| words.as_str()),
            Key::Number(_) => None,
        };
        let known = request.and_then(|request| self.catalog.known(node, request));
        let on = self.node_name(Some(node)).unwrap_or_default();
        let name = match (known, request) {
            (Some(known), _) => catalog::short(&known.name, on).to_owned(),
            (None, Some(request)) => format!("{request:#x}"),
            (None, None) => words.unwrap_or_default().to_owned(),
        };
        let opened = known.into_iter().filter(|_| !failed).flat_map(|known| &known.opens);
        let opens = opened.filter_map(|id| self.node_name(Some(*id))).map(str::to_owned);
        Step::Call {
            times,
            nr: request.map_or_else(String::new, letter),
            name,
            opens: opens.collect(),
            failed,
        }
    }

    /// A call as it is handed to whoever wants each.
    pub(super) fn called<'s>(
        &'s self,
        pid: Pid,
        line: u64,
        fd: i64,
        slot: Slot,
        at: usize,
        result: Ended<'s>,
    ) -> Called<'s> {
        let (tally, file) = (&self.tallies[at], &self.files[slot.file as usize]);
        let (request, words) = (number(tally.key), self.words_of(tally));
        let known =
            file.node.zip(request).and_then(|(node, request)| self.catalog.known(node, request));
        let last = |errors: &'s [(u32, u64)], said: &[u8]| {
            let name = errno(said);
            errors.iter().map(|(at, _)| &*self.errnos[*at as usize]).find(|known| *known == name)
        };
        let (value, error) = match result {
            Ended::Done { value, .. } => (Some(value), None),
            Ended::Failed(said) => (None, last(&tally.errors, said)),
            Ended::Nothing | Ended::Unfinished | Ended::Cut => (None, None),
        };
        Called {
            line,
            pid,
            fd,
            node: self.node_name(file.node),
            path: file.path.as_deref(),
            name: known.map(|known| known.name.as_str()),
            request,
            words,
            params: known.map_or_else(Vec::new, |known| known.params_of(request)),
            result: value,
            error,
            how: match slot.how {
                How::Seen | How::Inherited => "seen",
                How::Predicted | How::Confirmed | How::Matched => "ioctl",
                How::Guessed => "request",
                How::Gap => "unknown",
            },
        }
    }
}

fn number(key: Key) -> Option<u32> {
    match key {
        Key::Number(number) => Some(number),
        Key::Words(_) => None,
    }
}

/// `G:5` for a request with a letter, `5` or `0x30000001` for a number alone.
pub(crate) fn letter(request: u32) -> String {
    let (magic, nr) = (request >> 8 & 0xff, request & 0xff);
    match u8::try_from(magic) {
        Ok(letter) if letter.is_ascii_graphic() => format!("{}:{nr}", char::from(letter)),
        _ if request > 0xffff => format!("{request:#x}"),
        _ => request.to_string(),
    }
}

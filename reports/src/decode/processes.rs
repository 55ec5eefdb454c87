//! Processes and threads of a log, with the tables of file descriptors that they share or copied.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::fds::{FileId, Table};

/// A pid of the log; 0 for the process of lines that have none.
pub(crate) type Pid = u32;

/// How a child got its file descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forked {
    Shared,
    Copied,
}

/// A call whose end is not there yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending {
    pub(crate) line: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) args: Vec<u8>,
}

#[derive(Debug, Default)]
struct Process {
    table: u32,
    pending: Option<Pending>,
    /// For the next pending call, so that none needs new memory.
    spare: Pending,
    /// A child was seen before the call that made it ended.
    claimed: bool,
}

/// All processes of a log.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    processes: FxHashMap<Pid, Process>,
    tables: FxHashMap<u32, (Table, usize)>,
    next_table: u32,
    /// The process of lines without a pid.
    main: Pid,
    /// What a process that was there before the log has open.
    inherited: FileId,
}

impl Processes {
    /// The process of a line; one that was not seen before is a child of who is in the middle of a
    /// fork, or the one whose first lines had no pid, or one that was there before the log.
    pub(crate) fn pid(&mut self, pid: Option<Pid>, resumes_fork: bool, inherited: FileId) -> Pid {
        self.inherited = inherited;
        let pid = pid.unwrap_or(self.main);
        if self.processes.contains_key(&pid) {
            return pid;
        }
        let parent = if resumes_fork { None } else { self.forking() };
        match parent {
            Some(parent) => self.claim(parent, pid),
            None if self.main == 0 && self.processes.contains_key(&0) => self.rename(pid),
            None => self.add(pid, Table::inherited(inherited)),
        }
        pid
    }

    /// Who has begun to fork, and whose child was not seen yet.
    fn forking(&self) -> Option<Pid> {
        let mut forking = self.processes.iter().filter(|(_, process)| {
            let pending = process.pending.as_ref();
            !process.claimed && pending.is_some_and(|pending| super::forks(&pending.name))
        });
        // Of several the latest; the order of a hash map is nobody's.
        let latest = |p: &(&Pid, &Process)| (p.1.pending.as_ref().map(|p| p.line), *p.0);
        let first = forking.next()?;
        let latest = forking.fold(first, |a, b| if latest(&b) > latest(&a) { b } else { a });
        Some(*latest.0)
    }

    fn claim(&mut self, parent: Pid, child: Pid) {
        let Some(process) = self.processes.get(&parent) else { return };
        let args = process.pending.as_ref().map_or(&b""[..], |pending| &pending.args);
        let shares = super::line::has_flag(args, b"CLONE_FILES", 0x400);
        self.forked(parent, child, if shares { Forked::Shared } else { Forked::Copied });
        if let Some(process) = self.processes.get_mut(&parent) {
            process.claimed = true;
        }
    }

    /// The lines without a pid were this process's.
    fn rename(&mut self, pid: Pid) {
        self.main = pid;
        if let Some(process) = self.processes.remove(&0) {
            self.processes.insert(pid, process);
        }
    }

    fn add(&mut self, pid: Pid, table: Table) {
        self.next_table += 1;
        self.tables.insert(self.next_table, (table, 1));
        let process = Process { table: self.next_table, ..Process::default() };
        self.processes.insert(pid, process);
    }

    /// A process made another one; where that was seen already, this changes nothing.
    pub(crate) fn forked(&mut self, parent: Pid, child: Pid, how: Forked) {
        let of_parent = self.processes.get_mut(&parent);
        let claimed = of_parent.is_some_and(|process| std::mem::take(&mut process.claimed));
        if child == 0 || child == parent || claimed && self.processes.contains_key(&child) {
            return;
        }
        // The number of one whose end the log does not show.
        self.exit(child);
        let id = self.table_id(parent);
        match (how, self.tables.get_mut(&id)) {
            (Forked::Shared, Some((_, users))) => {
                *users += 1;
                self.processes.insert(child, Process { table: id, ..Process::default() });
            }
            (Forked::Copied, Some((table, _))) => {
                let copy = table.clone();
                self.add(child, copy);
            }
            (_, None) => {}
        }
    }

    /// strace took hold of a child of the process's, or of a process that was there before.
    pub(crate) fn attached(&mut self, pid: Pid, child: Pid) {
        if self.processes.contains_key(&child) {
            return;
        }
        match self.forking().or_else(|| self.processes.contains_key(&pid).then_some(pid)) {
            Some(parent) if self.is_forking(parent) => self.claim(parent, child),
            _ => self.add(child, Table::inherited(self.inherited)),
        }
    }

    fn is_forking(&self, pid: Pid) -> bool {
        let pending = self.processes.get(&pid).and_then(|process| process.pending.as_ref());
        pending.is_some_and(|pending| super::forks(&pending.name))
    }

    /// The number of a process's table.
    pub(crate) fn table_id(&self, pid: Pid) -> u32 {
        self.processes.get(&pid).map_or(0, |process| process.table)
    }

    /// The file descriptors of a process.
    pub(crate) fn table(&mut self, pid: Pid) -> &mut Table {
        let id = self.table_id(pid);
        let inherited = self.inherited;
        &mut self.tables.entry(id).or_insert_with(|| (Table::inherited(inherited), 1)).0
    }

    /// Gives a process a table of its own.
    pub(crate) fn unshare(&mut self, pid: Pid) {
        let id = self.table_id(pid);
        let Some((table, users)) = self.tables.get_mut(&id).filter(|(_, users)| *users > 1) else {
            return;
        };
        *users -= 1;
        let copy = table.clone();
        self.next_table += 1;
        self.tables.insert(self.next_table, (copy, 1));
        if let Some(process) = self.processes.get_mut(&pid) {
            process.table = self.next_table;
        }
    }

    /// A process runs another program.
    pub(crate) fn exec(&mut self, pid: Pid) {
        self.unshare(pid);
        self.table(pid).exec();
    }

    /// A process is gone; its number may be given out anew.
    pub(crate) fn exit(&mut self, pid: Pid) {
        let Some(process) = self.processes.remove(&pid) else { return };
        let Some((_, users)) = self.tables.get_mut(&process.table) else { return };
        *users -= 1;
        if *users == 0 {
            self.tables.remove(&process.table);
        }
    }

    /// Keeps the beginning of a call.
    pub(crate) fn begin(&mut self, pid: Pid, line: u64, name: &[u8], args: &[u8]) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let mut pending = std::mem::take(&mut process.spare);
        pending.line = line;
        pending.name.clear();
        pending.name.extend_from_slice(name);
        pending.args.clear();
        pending.args.extend_from_slice(args);
        process.pending = Some(pending);
    }

    /// The call that a process has begun.
    pub(crate) fn take(&mut self, pid: Pid) -> Option<Pending> {
        self.processes.get_mut(&pid)?.pending.take()
    }

    /// The call goes on.
    pub(crate) fn keep(&mut self, pid: Pid, pending: Pending) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.pending = Some(pending);
        }
    }

    /// The call is over; its memory serves the next one.
    pub(crate) fn give_back(&mut self, pid: Pid, pending: Pending) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.spare = pending;
        }
    }

    /// The calls that never ended, in the order of the log.
    pub(crate) fn end(&mut self) -> Vec<(Pid, Pending)> {
        let begun = self.processes.iter_mut().filter_map(|(pid, process)| {
            let pending = process.pending.take()?;
            Some(((pending.line, *pid), pending))
        });
        let begun: BTreeMap<(u64, Pid), Pending> = begun.collect();
        begun.into_iter().map(|((_, pid), pending)| (pid, pending)).collect()
    }
}

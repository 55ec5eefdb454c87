//! Which programs computed on a GPU, when, and with how much of it (`gpu_acct.c`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Driver;
use super::control::{Seen, microseconds};
use super::load::Busy;
use super::server::ObjectKind;

/// NV_MAX_DEAD_ACCT_PROCESS: the oldest of those that ended is forgotten.
const MOST_ENDED: usize = 128;

/// What is known of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    /// In us since 1970; zero of one that has not ended.
    pub(super) began: u64,
    pub(super) ended: u64,
    /// The most bytes of memory that it had.
    pub(super) most_memory: u64,
    pub(super) busy: Busy,
    /// Whether it had a channel: others are not told of.
    computes: bool,
}

/// The programs of a GPU, by their numbers: those that run, and those that ended, which is longest ago first.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    running: BTreeMap<u32, Account>,
    ended: VecDeque<(u32, Account)>,
    /// What all did, those that are forgotten too.
    done: Busy,
}

impl Accounts {
    fn begin(&mut self, process: u32, now: u64) {
        let busy = Busy::default();
        let new = Account { began: now, ended: 0, most_memory: 0, busy, computes: false };
        self.running.entry(process).or_insert(new);
    }

    /// What a program did.
    pub(super) fn worked(&mut self, process: u32, busy: Busy) {
        self.done.add(busy);
        if let Some(account) = self.running.get_mut(&process) {
            account.busy.add(busy);
        }
    }

    /// What all programs did.
    pub(super) fn done(&self) -> Busy {
        self.done
    }

    /// Ends all but some.
    fn keep(&mut self, running: &BTreeSet<u32>, now: u64) {
        let gone: Vec<u32> =
            self.running.keys().copied().filter(|process| !running.contains(process)).collect();
        for process in gone {
            let Some(account) = self.running.remove(&process).filter(|it| it.computes) else {
                continue;
            };
            // Of one number the last is kept.
            self.ended.retain(|(other, _)| *other != process);
            if self.ended.len() >= MOST_ENDED {
                self.ended.pop_front();
            }
            self.ended.push_back((process, Account { ended: now, ..account }));
        }
    }

    /// The programs that are told of: first those that ended.
    pub(super) fn processes(&self) -> Vec<u32> {
        let ended = self.ended.iter().map(|(process, _)| *process);
        let runs = |process: &u32| self.running.get(process).is_some_and(|it| it.computes);
        let ended = ended.filter(|process| !runs(process));
        let running = self.running.iter().filter(|(_, account)| account.computes);
        ended.chain(running.map(|(process, _)| *process)).collect()
    }

    pub(super) fn of(&self, process: u32) -> Option<Account> {
        let running = self.running.get(&process).copied().filter(|it| it.computes);
        let ended = || self.ended.iter().find(|(other, _)| *other == process).map(|(_, it)| *it);
        running.or_else(ended)
    }

    /// Forgets those that ended: `gpuacctClearAccountingData_IMPL`.
    pub(super) fn clear(&mut self) {
        self.ended.clear();
    }

    /// Forgets those that run: `gpuacctDisableAccounting_IMPL`.
    pub(super) fn stop(&mut self) {
        self.running.clear();
    }
}

impl Driver {
    /// After a client has got an object of a GPU's.
    pub(super) fn account(&mut self, client: u32, made: &ObjectKind) {
        /// NV0000_CTRL_GPU_ACCOUNTING_STATE_ENABLED.
        const ENABLED: i128 = 0;
        let is_meant =
            matches!(made, ObjectKind::Device(_) | ObjectKind::Channel(_) | ObjectKind::Memory(_));
        let Some(gpu) = made.gpu().filter(|_| is_meant) else { return };
        if self.number_of(gpu, "state.accounting") != Some(ENABLED) {
            return;
        }
        let Ok(process) = self.server.find(client).map(|client| client.process) else { return };
        let (own, shared) = self.memory_used_by(gpu, process, Seen::All);
        let accounts = &mut self.gpus[gpu].accounts;
        if let ObjectKind::Device(_) = made {
            accounts.begin(process, microseconds());
        }
        // One that had its device before is not accounted.
        if let Some(account) = accounts.running.get_mut(&process) {
            account.computes |= matches!(made, ObjectKind::Channel(_));
            account.most_memory = account.most_memory.max(own + shared);
        }
    }

    /// After objects have gone: a program that has no device any more has ended.
    pub(super) fn end_accounts(&mut self) {
        for gpu in 0..self.gpus.len() {
            if self.gpus[gpu].accounts.running.is_empty() {
                continue;
            }
            let objects = self.server.objects_with_process();
            let with_device = objects.filter(|(_, it)| it.kind == ObjectKind::Device(gpu));
            let running: BTreeSet<u32> = with_device.map(|(process, _)| process).collect();
            self.gpus[gpu].accounts.keep(&running, microseconds());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_computed_are_kept_until_there_are_too_many() {
        let mut accounts = Accounts::default();
        for process in 1..=200 {
            accounts.begin(process, u64::from(process));
            // One that never computes is not told of.
            if let Some(account) = accounts.running.get_mut(&process).filter(|_| process != 150) {
                account.computes = true;
            }
        }
        assert_eq!((accounts.processes().len(), accounts.of(150)), (199, None));
        assert_eq!(accounts.of(7).map(|it| (it.began, it.ended)), Some((7, 0)));
        accounts.keep(&BTreeSet::from([200]), 1000);
        let processes = accounts.processes();
        assert_eq!((processes.len(), processes[0], processes[127]), (129, 71, 199));
        assert_eq!(accounts.of(71).map(|it| (it.began, it.ended)), Some((71, 1000)));
        // The same number again is another program.
        accounts.begin(71, 2000);
        if let Some(account) = accounts.running.get_mut(&71) {
            account.computes = true;
        }
        accounts.keep(&BTreeSet::new(), 3000);
        assert_eq!(accounts.of(71).map(|it| (it.began, it.ended)), Some((2000, 3000)));
        assert_eq!(accounts.processes().iter().filter(|it| **it == 71).count(), 1);
        accounts.clear();
        assert!(accounts.processes().is_empty());
    }
}

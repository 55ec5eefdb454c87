//! Profiles of GPUs, and what is wrong with them as the command's other diagnostics show it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::process::ExitCode;

use nvabi_pipeline::diagnostic::{Diagnostic, Report, SourceSpan};
use nvabi_pipeline::lock;
use nvabi_pipeline::tag::Tag;
use nvabi_sim::profile::{self, Gravity, Problem, Profile};
use nvabi_sim::rm::Interface;
use nvabi_sim::topology::Topology;

use super::interface;
use crate::args::RmCheck;
use crate::context::Context;

/// `nvabi rm check`: profiles against the drivers of the lock.
pub(crate) fn check(context: &Context<'_>, args: &RmCheck) -> ExitCode {
    match compare(context, args) {
        Ok((report, done)) if report.diagnostics.is_empty() => {
            context.status("Checked", &done);
            ExitCode::SUCCESS
        }
        Ok((report, _)) => {
            context.complain(&report.sorted());
            ExitCode::from(1)
        }
        Err(report) => {
            context.complain(&report);
            ExitCode::from(2)
        }
    }
}

fn compare(context: &Context<'_>, args: &RmCheck) -> Result<(Report, String), Report> {
    let family = context.family_named("")?;
    let tags = match args.tag.is_empty() {
        true => {
            newest(&lock::read_tags(&family.lock)?.into_iter().map(|it| it.tag).collect::<Vec<_>>())
        }
        false => args.tag.clone(),
    };
    let names: Vec<String> = match args.profiles.is_empty() {
        true => profile::names().map(str::to_owned).collect(),
        false => args.profiles.clone(),
    };
    let mut report = Report::default();
    let mut profiles = Vec::new();
    for name in &names {
        let problems = match Profile::examine(name) {
            Ok((mut profile, problems)) => {
                profile.name.clone_from(name);
                profiles.push(Comparison::of(profile));
                problems
            }
            Err(problems) => problems,
        };
        report.diagnostics.extend(problems.into_iter().map(diagnostic));
    }
    let mut checked = Vec::new();
    for tag in &tags {
        let interface = interface::at(&family, tag)?;
        for comparison in &mut profiles {
            comparison.with(&interface);
        }
    }
    for Comparison { profile, found, drivers, unknown } in profiles {
        if let Some(problem) = unknown.filter(|_| drivers == 0) {
            report.push(diagnostic(problem));
        }
        checked.push((profile.name, drivers));
        for (problem, count) in found.into_values() {
            // What one driver has need not be in the others, and what this command carries has answers for all.
            let is_ours = problem.place.as_ref().is_some_and(|place| place.source.is_embedded);
            let are_all = args.tag.is_empty() && drivers == tags.len();
            let is_lacking = count == drivers && (are_all || !is_ours);
            if problem.gravity == Gravity::Wrong || is_lacking {
                report.push(diagnostic(Problem { gravity: Gravity::Wrong, ..problem }));
            }
        }
    }
    // Profiles share what they extend.
    let mut seen = Vec::new();
    report.diagnostics.retain(|it| {
        !seen.contains(it) && {
            seen.push(it.clone());
            true
        }
    });
    Ok((report, told(&checked)))
}

/// Which profiles were compared with how many drivers: those that do not know a card are not.
fn told(checked: &[(String, usize)]) -> String {
    let mut groups: BTreeMap<Reverse<usize>, Vec<&str>> = BTreeMap::new();
    for (name, drivers) in checked {
        groups.entry(Reverse(*drivers)).or_default().push(name);
    }
    let groups = groups
        .into_iter()
        .map(|(Reverse(drivers), names)| format!("{} against {drivers} drivers", names.join(", ")));
    groups.collect::<Vec<_>>().join("; ")
}

/// A profile, and what drivers say of it.
struct Comparison {
    profile: Profile,
    /// Problems, and of how many drivers they are.
    found: BTreeMap<String, (Problem, usize)>,
    /// How many drivers know the card, and why the last one that does not does not.
    drivers: usize,
    unknown: Option<Problem>,
}

impl Comparison {
    fn of(profile: Profile) -> Self {
        Self { profile, found: BTreeMap::new(), drivers: 0, unknown: None }
    }

    fn with(&mut self, interface: &Interface) {
        if let Some(problem) = self.profile.unknown_to(interface) {
            self.unknown = Some(problem);
            return;
        }
        self.drivers += 1;
        for problem in self.profile.check(interface) {
            self.note(problem);
        }
    }

    /// Counts the drivers that have a problem: it is the same one where its place and its kind are.
    fn note(&mut self, problem: Problem) {
        let place = problem.place.as_ref();
        let place = place.map(|place| (place.source.path.clone(), place.span.clone()));
        let key = format!("{place:?} {} {:?}", problem.code, problem.gravity);
        self.found.entry(key).or_insert((problem, 0)).1 += 1;
    }
}

/// The last tag of each branch.
fn newest(tags: &[Tag]) -> Vec<Tag> {
    let is_last =
        |index: usize| tags.get(index + 1).is_none_or(|next| next.branch() != tags[index].branch());
    (0..tags.len()).filter(|index| is_last(*index)).map(|index| tags[index].clone()).collect()
}

/// A profile that fits a driver.
pub(super) fn load(name: &str, interface: &Interface) -> Result<Profile, Report> {
    let (profile, mut problems) = Profile::examine(name).map_err(report)?;
    match profile.unknown_to(interface) {
        Some(problem) => problems.push(problem),
        None => problems.extend(profile.check(interface)),
    }
    // What a driver lacks is not answered there. Tests compare embedded profiles with all drivers.
    problems.retain(|problem| problem.gravity == Gravity::Wrong);
    if problems.is_empty() { Ok(profile) } else { Err(report(problems)) }
}

/// Where the GPUs are.
pub(super) fn load_topology(name: &str) -> Result<Topology, Report> {
    Topology::load(name).map_err(report)
}

pub(super) fn report(problems: Vec<Problem>) -> Report {
    let mut report = Report::default();
    for problem in problems {
        report.push(diagnostic(problem));
    }
    report.sorted()
}

fn diagnostic(problem: Problem) -> Diagnostic {
    let mut diagnostic = match problem.gravity {
        Gravity::Wrong => Diagnostic::error(problem.code, problem.message),
        Gravity::NotOfThisDriver => Diagnostic::warning(problem.code, problem.message),
    };
    if let Some(place) = problem.place {
        let (path, text) = (place.source.path.clone(), place.source.text.clone());
        diagnostic = diagnostic.at(SourceSpan { path, text, span: place.span });
    }
    match problem.help {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}

//! Profiles of GPUs, and what is wrong with them as the command's other diagnostics show it.

use nvabi_pipeline::diagnostic::{Diagnostic, Report, SourceSpan};
use nvabi_sim::profile::{Gravity, Problem, Profile};
use nvabi_sim::rm::Interface;

/// A profile that fits a driver.
pub(super) fn load(name: &str, interface: &Interface) -> Result<Profile, Report> {
    let profile = Profile::load(name).map_err(report)?;
    let mut problems = profile.check(interface);
    // What a driver lacks is not answered there. Tests compare embedded profiles with all drivers.
    problems.retain(|problem| problem.gravity == Gravity::Wrong);
    if problems.is_empty() { Ok(profile) } else { Err(report(problems)) }
}

fn report(problems: Vec<Problem>) -> Report {
    let mut report = Report::default();
    for problem in problems {
        report.push(diagnostic(problem));
    }
    report
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

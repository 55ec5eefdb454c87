//! `nvabi emit` and `nvabi facts`: the lock's types in another language, or as data.

use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::path::Path;

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::files;
use nvabi_pipeline::lock::{self, Lock};
use nvabi_pipeline::parallel;
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;
use nvabi_reports::emit::{self, File, Scope};

use crate::Outcome;
use crate::args;
use crate::context::{Context, Family};
use crate::names;

pub(crate) fn emit(context: &Context<'_>, args: &args::Emit) -> Result<Outcome, Report> {
    refuse(context, args)?;
    let tags = sorted(&args.tags)?;
    let refs: Vec<&Tag> = tags.iter().collect();
    let family = context.family_of(&refs)?;
    let names = args.items.as_deref().map(names::of_file).transpose()?;
    let scope = match &names {
        Some(names) => Scope::Items(names),
        None if args.all => Scope::All,
        None => Scope::Spec,
    };
    let specs = specs_of(&family, &tags);
    // Giving back a million pieces one by one takes a tenth of the time.
    let locked = ManuallyDrop::new(read(&family, &tags, &specs, scope)?);
    let command = command(args, &tags);
    let options =
        emit::Options { language: args.lang.language(), package: &args.package, command: &command };
    let files = emit::emit(&locked, &specs, scope, options)?;
    let what = format!("{} of {}", args.lang.name(), tags_text(&tags));
    match (&args.out, files.as_slice()) {
        (Some(folder), _) => {
            write(folder, &files)?;
            let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
            context.status("Emitted", &format!("{what}: {}", names.join(", ")));
        }
        (None, [file]) => {
            context.print(&file.text)?;
            context.status("Emitted", &what);
        }
        (None, files) => {
            let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
            let message =
                format!("{} makes {} files: {}", args.lang.name(), files.len(), names.join(", "));
            return Err(Diagnostic::error("emit-files", message)
                .help("give the folder to write them to with --out FOLDER")
                .into());
        }
    }
    Ok(Outcome::Same)
}

/// What no module can be called, and `--json` where it is none.
fn refuse(context: &Context<'_>, args: &args::Emit) -> Result<(), Report> {
    let (language, package) = (args.lang.name(), &args.package);
    if let Some(reason) = args.lang.language().refuses(package) {
        let message = format!("`{package}` cannot be imported in {language}: {reason}");
        let help = "give another name with --package";
        return Err(Diagnostic::error("emit-package", message).help(help).into());
    }
    if context.json() && args.lang != args::Language::Json {
        let message = format!("--json prints a model, and {language} is none");
        let help = "leave --json out, or write the model with --lang json";
        return Err(Diagnostic::error("emit-json", message).help(help).into());
    }
    Ok(())
}

pub(crate) fn facts(context: &Context<'_>, args: &args::Facts) -> Result<Outcome, Report> {
    let family = context.family_of(&[&args.tag])?;
    let facts = lock::read_facts(&family.lock, &args.tag)?;
    context.print_json(&facts)?;
    context.status("Printed", &format!("the facts of {}", facts.tag));
    Ok(Outcome::Same)
}

/// The tags in order, each once, all of one family.
fn sorted(tags: &[Tag]) -> Result<Vec<Tag>, Report> {
    let mut tags = tags.to_vec();
    tags.sort();
    tags.dedup();
    if let [first, .., last] = tags.as_slice() {
        if first.family() != last.family() {
            let message = format!("{first} and {last} are of different drivers");
            return Err(Diagnostic::error("emit-families", message)
                .help("one module holds the tags of one driver: run the command once for each")
                .into());
        }
    }
    Ok(tags)
}

fn specs_of<'f>(family: &'f Family, tags: &[Tag]) -> Vec<&'f Spec> {
    let has_tag = |spec: &&Spec| tags.iter().any(|tag| tag.branch() == spec.driver);
    family.specs.iter().filter(has_tag).collect()
}

/// Most of a driver is constants of its methods, which only `--all` needs.
fn read(family: &Family, tags: &[Tag], specs: &[&Spec], scope: Scope<'_>) -> Result<Lock, Report> {
    if scope == Scope::All {
        return lock::read_at(&family.lock, &tags.iter().collect::<Vec<_>>());
    }
    let of_specs = specs.iter().flat_map(|spec| {
        let numbers = spec.items.iter().map(|item| item.name.as_str());
        let constants = spec.constants.iter().chain(&spec.statuses);
        numbers.chain(constants.map(|named| named.name.as_str()))
    });
    let named = match scope {
        Scope::Items(names) => names,
        Scope::All | Scope::Spec => &[],
    };
    // Conditions of unions are constants too.
    let conditions = specs.iter().flat_map(|spec| spec.unions.values());
    let conditions = conditions.flat_map(|choice| choice.members.values());
    let constants: Vec<&str> = of_specs
        .chain(named.iter().map(|asked| asked.name.as_str()))
        .chain(conditions.map(|named| named.name.as_str()))
        .collect();
    let mut locked = Lock::default();
    for facts in parallel::map(tags, |tag| lock::read_facts_with(&family.lock, tag, &constants)) {
        locked.insert(&facts?, String::new());
    }
    Ok(locked)
}

/// The command that makes the same files.
fn command(args: &args::Emit, tags: &[Tag]) -> String {
    let mut text = format!("nvabi emit --lang {}", args.lang.name());
    for tag in tags {
        text.push_str(&format!(" --tag {tag}"));
    }
    match &args.items {
        Some(path) => {
            text.push_str(&format!(" --items {}", items_text(path)));
        }
        None if args.all => text.push_str(" --all"),
        None => text.push_str(" --spec"),
    }
    if args.package != args::PACKAGE {
        text.push_str(&format!(" --package {}", args.package));
    }
    text
}

/// A path as it was given, which a shell reads again. What only this machine has is left out, so that all write the
/// same: of an absolute path its folders, of a pipe everything.
fn items_text(path: &Path) -> String {
    const ANY: &str = "FILE";
    if names::is_shells_pipe(path) {
        return ANY.to_owned();
    }
    let path = match path.is_absolute() {
        true => path.file_name().map_or(path, Path::new),
        false => path,
    };
    let is_plain = |c: char| c.is_alphanumeric() || "._-/+,@%=:".contains(c);
    match path.to_str() {
        Some(text) if text.chars().all(is_plain) => text.to_owned(),
        Some(text) if text.chars().all(|c| is_plain(c) || " ()[]&;#".contains(c)) => {
            format!("'{text}'")
        }
        // It may end the comment that it stands in.
        _ => ANY.to_owned(),
    }
}

fn tags_text(tags: &[Tag]) -> String {
    match tags {
        [one] => one.to_string(),
        tags => format!("{} tags", tags.len()),
    }
}

/// All files are written before the first is put in its place: there are those of one command, or nothing is new.
fn write(folder: &Path, made: &[File]) -> Result<(), Report> {
    let failed = |path: &Path, error: io::Error| {
        let message = format!("cannot write {}: {error}", path.display());
        Report::from(Diagnostic::error("emit-write", message))
    };
    if folder.exists() && !folder.is_dir() {
        let message = format!("{} is a file, and --out names a folder", folder.display());
        return Err(Diagnostic::error("emit-write", message).into());
    }
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let files: Vec<_> =
        made.iter().map(|file| (folder.join(&file.name), file.text.as_str())).collect();
    files::write_all(&files).map_err(|(path, error)| failed(&path, error))
}

//! `nvabi decode`: logs of strace, and the bytes of one struct, into names and fields.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Write as _};
use std::path::Path;

use nvabi_pipeline::diagnostic::{Diagnostic, Report, nearest};
use nvabi_pipeline::lock::{self, Part};
use nvabi_pipeline::model::Facts;
use nvabi_pipeline::spec::Named;
use nvabi_pipeline::tag::Tag;
use nvabi_reports::decode::{
    self, Called, Catalog, Decoded, Decoder, Lines, NVKMS_ARGUMENT, OnCall, value,
};
use nvabi_reports::terminal;

use crate::Outcome;
use crate::args;
use crate::context::{Context, Family, facts_of, spec_of, written};

/// What is read of a log at once.
const BLOCK: usize = 1 << 20;

/// Constants of the x86 driver that requests are made of, beside those of the specs.
const REQUESTS: [&str; 2] = ["NV_IOCTL_MAGIC", "DRM_IOCTL_*"];

pub(crate) fn strace(context: &Context<'_>, args: &args::DecodeStrace) -> Result<Outcome, Report> {
    let catalog = catalog(context, &args.tags)?;
    let mut decoder = Decoder::new(&catalog);
    let mut calls = args.calls.then(|| Calls::new(context.json()));
    let mut report = Report::default();
    for file in &args.files {
        if let Err(complaint) = read(&mut decoder, file, calls.as_mut()) {
            report.push(complaint);
        }
    }
    if !report.diagnostics.is_empty() {
        return Err(report);
    }
    let decoded = decoder.report();
    match calls {
        Some(calls) => calls.finish(&decoded)?,
        None if context.json() => context.print_json(&decoded)?,
        None => context.print(&decode::text(&decoded))?,
    }
    context.status("Decoded", &summary(&decoded));
    if decoded.unread.lines + decoded.unread.ioctls > 0 {
        context.status("Not read", &unread(&decoded));
    }
    Ok(Outcome::Same)
}

/// The requests of both families: one tag of the x86 driver, of Jetson's all or the one asked
/// for.
fn catalog(context: &Context<'_>, tags: &[Tag]) -> Result<Catalog, Report> {
    let mut catalog = Catalog::default();
    for family in context.families()?.into_iter().filter(|family| lock::exists(&family.lock)) {
        let mut asked = tags.iter().filter(|tag| tag.family() == family.name);
        let (tag, more) = (asked.next(), asked.next());
        if let (Some(one), Some(other)) = (tag, more) {
            let message = format!("{one} and {other} belong to one driver family");
            let help = "give one tag of the x86 driver and one of Jetson's";
            return Err(Diagnostic::error("decode-tags", message).help(help).into());
        }
        match family.name.as_str() {
            "" => add_x86(&mut catalog, &family, tag)?,
            _ => add_all(&mut catalog, &family, tag)?,
        }
    }
    let known = |tag: &&Tag| context.family(Some(tag)).is_err();
    match tags.iter().find(known) {
        Some(tag) => context.family(Some(tag)).map(|_| catalog),
        None => Ok(catalog),
    }
}

/// The x86 driver's lock is large, so only what names requests is read of it.
fn add_x86(catalog: &mut Catalog, family: &Family, tag: Option<&Tag>) -> Result<(), Report> {
    let locked = lock::read_tags(&family.lock)?;
    let Some(newest) = tag.or(locked.last().map(|newest| &newest.tag)) else { return Ok(()) };
    let mut spec = spec_of(&family.specs, newest)?.clone();
    // No item takes it: it is what the mode setter's one request has.
    let place = spec.surfaces.first().map(|surface| surface.place.clone());
    let argument = place.map(|place| Named { name: NVKMS_ARGUMENT.to_owned(), place });
    spec.extra_types.extend(argument);
    let part = Part { specs: &[&spec], constants: &REQUESTS, lines: false };
    let facts = facts_of(&lock::read_part(&family.lock, part)?, newest)?;
    catalog.add(&facts, &spec);
    Ok(())
}

fn add_all(catalog: &mut Catalog, family: &Family, tag: Option<&Tag>) -> Result<(), Report> {
    let (locked, _) = lock::read(&family.lock)?;
    let all = locked.tags.iter().map(|locked| &locked.tag);
    let tags: Vec<&Tag> = tag.map_or_else(|| all.collect(), |tag| vec![tag]);
    for tag in tags {
        catalog.add(&facts_of(&locked, tag)?, spec_of(&family.specs, tag)?);
    }
    Ok(())
}

fn read(
    decoder: &mut Decoder<'_>,
    file: &Path,
    calls: Option<&mut Calls>,
) -> Result<(), Diagnostic> {
    let unreadable = |error: io::Error| {
        let message = format!("cannot read {}: {error}", file.display());
        Diagnostic::error("decode-unreadable", message)
    };
    let log: Box<dyn BufRead> = match file.to_str() {
        Some("-") => Box::new(BufReader::with_capacity(BLOCK, io::stdin().lock())),
        _ => Box::new(BufReader::with_capacity(BLOCK, File::open(file).map_err(unreadable)?)),
    };
    let name = file.display().to_string();
    let lines = match calls {
        Some(calls) => {
            calls.file = name;
            let mut each = |called: &Called<'_>| calls.one(called);
            let on_call: OnCall<'_> = &mut each;
            decoder.read(log, Some(on_call))
        }
        None => decoder.read(log, None),
    };
    let lines = lines.map_err(unreadable)?;
    match lines.are_log() {
        true => Ok(()),
        false => Err(no_log(file, &lines)),
    }
}

fn no_log(file: &Path, lines: &Lines) -> Diagnostic {
    let which = match lines.calls {
        0 => "no line is a system call".to_owned(),
        calls => {
            format!("{calls} of {} lines are system calls", calls + lines.notes + lines.others)
        }
    };
    let message = format!("{} is not an strace log: {which}", file.display());
    let mut complaint = Diagnostic::error("decode-no-log", message);
    if let Some(first) = lines.first {
        complaint = complaint.note(format!("line {first} is the first that is none of strace's"));
    }
    complaint.help("record one with: strace -f -y -o FILE PROGRAM")
}

/// Calls on stdout, as they come: there may be more of them than memory holds.
struct Calls {
    out: BufWriter<io::Stdout>,
    json: bool,
    file: String,
    any: bool,
    text: String,
    /// The first failure; it ends the command once the log is read.
    result: io::Result<()>,
}

impl Calls {
    fn new(json: bool) -> Self {
        let out = BufWriter::with_capacity(1 << 16, io::stdout());
        Self { out, json, file: String::new(), any: false, text: String::new(), result: Ok(()) }
    }

    fn one(&mut self, called: &Called<'_>) {
        if self.result.is_ok() {
            self.result = self.print(called);
        }
    }

    fn print(&mut self, called: &Called<'_>) -> io::Result<()> {
        if !self.json {
            self.text.clear();
            decode::call(&mut self.text, called);
            return self.out.write_all(terminal::lines(&self.text).as_bytes());
        }
        let before = if self.any { ",\n    " } else { "{\n  \"calls\": [\n    " };
        self.any = true;
        self.out.write_all(before.as_bytes())?;
        let mut call = serde_json::to_value(called)?;
        if let Some(call) = call.as_object_mut() {
            call.insert("file".to_owned(), self.file.as_str().into());
        }
        terminal::json_line(&mut self.out, &call)
    }

    /// The rest of the model behind the calls.
    fn finish(mut self, decoded: &Decoded) -> Result<(), Report> {
        let result = std::mem::replace(&mut self.result, Ok(()));
        written(result.and_then(|()| self.end(decoded)).and_then(|()| self.out.flush()))
    }

    fn end(&mut self, decoded: &Decoded) -> io::Result<()> {
        if !self.json {
            return write!(self.out, "\n{}", terminal::lines(&decode::text(decoded)));
        }
        let mut model = Vec::new();
        terminal::json(&mut model, decoded)?;
        let model = String::from_utf8_lossy(&model);
        let begun = if self.any { "\n  ]," } else { "{\n  \"calls\": []," };
        writeln!(self.out, "{begun}{}", model.strip_prefix('{').unwrap_or(&model))
    }
}

fn summary(decoded: &Decoded) -> String {
    let unknown: u64 = decoded.unknown.iter().map(|unknown| unknown.row.count).sum();
    let devices = decoded.devices.iter().filter(|device| !device.calls.is_empty()).count();
    let elsewhere: u64 = decoded.elsewhere.iter().map(|other| other.row.count).sum();
    let Decoded { lines, ioctls, .. } = decoded;
    format!(
        "{lines} lines, {ioctls} ioctls: {devices} devices, {elsewhere} on other files, {unknown} unknown"
    )
}

fn unread(decoded: &Decoded) -> String {
    let first: Vec<String> = decoded.unread.first.iter().map(u64::to_string).collect();
    let (lines, ioctls) = (decoded.unread.lines, decoded.unread.ioctls);
    let more = if decoded.unread.lines + ioctls > first.len() as u64 { ", …" } else { "" };
    let first = first.join(", ");
    format!(
        "lines that are not strace's: {lines}, truncated ioctls: {ioctls} (lines {first}{more})"
    )
}

pub(crate) fn structure(
    context: &Context<'_>,
    args: &args::DecodeStruct,
) -> Result<Outcome, Report> {
    let facts = facts(context, args)?;
    let Some((_, name, record)) = value::record(&facts, &args.name) else {
        return Err(unknown(&facts, &args.name).into());
    };
    let (name, size) = (name.to_owned(), record.size);
    let narrow = value::narrow_size(&facts, &name);
    let fits = |len: usize| [Some(size), narrow].contains(&Some(len as u64));
    let given = bytes(&args.bytes)?;
    let bytes = match fits(given.len()) {
        true => given,
        // A file may hold the digits as text.
        false => match std::str::from_utf8(&given).ok().and_then(value::from_hex) {
            Some(bytes) if fits(bytes.len()) => bytes,
            digits => {
                let len = digits.map_or(given.len(), |digits| digits.len());
                return Err(wrong_size(context, &facts, &name, (size, narrow), len)?);
            }
        },
    };
    let decoded = match bytes.len() as u64 == size {
        true => value::decode(&facts, &name, &bytes),
        false => value::decode_narrow(&facts, &name, &bytes),
    };
    let Some(decoded) = decoded else { return Err(unknown(&facts, &args.name).into()) };
    match context.json() {
        true => context.print_json(&decoded)?,
        false => context.print(&value::text(&decoded))?,
    }
    context.status("Decoded", &format!("{} bytes as of {}", decoded.size, facts.tag));
    Ok(Outcome::Same)
}

/// The facts of the tag; without one, of the newest of the first family that has the struct.
fn facts(context: &Context<'_>, args: &args::DecodeStruct) -> Result<Facts, Report> {
    let found = context.search(args.tag.as_ref(), |folder, tag| {
        let facts = lock::read_facts(folder, tag)?;
        Ok(value::record(&facts, &args.name).is_some().then_some(facts))
    })?;
    match found {
        Ok(facts) => Ok(facts),
        Err((folder, tag)) => Err(unknown(&lock::read_facts(&folder, &tag)?, &args.name).into()),
    }
}

fn unknown(facts: &Facts, name: &str) -> Diagnostic {
    let message = format!("{} has no struct named `{name}`", facts.tag);
    let names = facts.surfaces.values().flat_map(|surface| surface.records.keys());
    let diagnostic = Diagnostic::error("decode-unknown", message);
    match nearest(name, names.map(String::as_str)) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic,
    }
}

/// A file, stdin, or bytes in hexadecimal where there is no such file.
fn bytes(given: &Path) -> Result<Vec<u8>, Report> {
    let result = match given.to_str() {
        Some("-") => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
        }
        Some(text) if !given.exists() => match value::from_hex(text) {
            Some(bytes) => Ok(bytes),
            None => fs::read(given),
        },
        _ => fs::read(given),
    };
    result.map_err(|error| {
        let message = format!("cannot read {}: {error}", given.display());
        let help = "give a file, - for stdin, or bytes in hexadecimal such as 00ff10";
        Diagnostic::error("decode-unreadable", message).help(help).into()
    })
}

/// Says both sizes, and at which tags the struct is as long as what was given.
fn wrong_size(
    context: &Context<'_>,
    facts: &Facts,
    name: &str,
    (size, narrow): (u64, Option<u64>),
    len: usize,
) -> Result<Report, Report> {
    let narrow = narrow.map_or(String::new(), |n| format!(" ({n} in a 32-bit program)"));
    let message = format!("{name} has {size} bytes{narrow} in {}, but {len} are given", facts.tag);
    let (locked, _) = lock::read(&context.family(Some(&facts.tag))?.lock)?;
    let sizes = value::sizes(&locked, name);
    let spans = sizes.iter().filter(|(size, ..)| *size == len as u64);
    let fits: Vec<String> = spans.map(|(_, first, last)| value::span(first, last)).collect();
    let diagnostic = Diagnostic::error("decode-size", message);
    let diagnostic = match fits.as_slice() {
        [] => sizes.iter().fold(diagnostic, |diagnostic, (size, first, last)| {
            diagnostic.note(format!("{size} bytes in {}", value::span(first, last)))
        }),
        _ => diagnostic.help(format!("it has {len} bytes in {}: give --tag", fits.join(", "))),
    };
    Ok(diagnostic.into())
}

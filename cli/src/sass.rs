//! `nvabi sass`: machine code of GPUs as text.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_sass::check::check;
use nvabi_sass::cubin::{self, Code, Cubin, Image};
use nvabi_sass::{Control, Instruction, Op, Unknown, Value, decode};
use serde::Serialize;

use crate::Outcome;
use crate::context::Context;

/// The column at which control information begins.
const CONTROL_COLUMN: usize = 72;

#[derive(Debug, clap::Args)]
pub(crate) struct SassArgs {
    /// A cubin, a fatbin, or a program or library with fatbins in it.
    file: PathBuf,
    /// Only code for this architecture, such as sm_80.
    #[arg(long, value_name = "ARCH", value_parser = architecture)]
    arch: Option<u32>,
    /// Only functions whose names contain this.
    #[arg(long, value_name = "TEXT")]
    function: Option<String>,
    /// Print the PTX of each function before it, where the file has some.
    #[arg(long)]
    ptx: bool,
    /// Print only what is wrong with control information: results that are read too early.
    #[arg(long, conflicts_with = "ptx")]
    check: bool,
}

fn architecture(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("sm_").unwrap_or(text).parse();
    number.map_err(|_| format!("expected an architecture such as sm_80, found '{text}'"))
}

#[derive(Serialize)]
struct FunctionModel {
    arch: u32,
    name: String,
    instructions: Vec<InstructionModel>,
    findings: Vec<String>,
    /// With --ptx.
    #[serde(skip_serializing_if = "Option::is_none")]
    ptx: Option<String>,
}

#[derive(Serialize)]
struct InstructionModel {
    address: u64,
    word: String,
    /// None where the instruction is unknown.
    text: Option<String>,
    control: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    /// Does a block begin here?
    is_target: bool,
}

#[derive(Default)]
struct Counts {
    functions: usize,
    instructions: usize,
    unknown: usize,
    findings: usize,
}

pub(crate) fn sass(context: &Context<'_>, args: &SassArgs) -> Result<Outcome, Report> {
    let name = args.file.display();
    let fail = |code, message: String| Report::from(Diagnostic::error(code, message));
    let file = std::fs::read(&args.file)
        .map_err(|error| fail("sass-unreadable", format!("{name}: {error}")))?;
    let images =
        cubin::images(&file).map_err(|error| fail("sass-file", format!("{name}: {error}")))?;
    let has = |image: &&Image<'_>| args.arch.is_none_or(|arch| image.arch == arch);
    let mut counts = Counts::default();
    let mut functions = Vec::new();
    // PTX of any architecture: it is assembled for those behind it.
    let ptx: Vec<&str> = (images.iter().filter(|_| args.ptx))
        .filter_map(|image| match &image.code {
            Code::Ptx(text) => Some(text.as_str()),
            Code::Cubin(_) => None,
        })
        .collect();
    for image in images.iter().filter(has) {
        match &image.code {
            Code::Ptx(_) => {}
            Code::Cubin(bytes) => match cubin::cubin(bytes) {
                Ok(cubin) => {
                    functions.extend(functions_of(&cubin, &ptx, args, context, &mut counts)?);
                }
                Err(error) => {
                    context.status("Skipped", &format!("code at byte {:#x}: {error}", image.at))
                }
            },
        }
    }
    if counts.functions == 0 {
        let found: BTreeSet<String> =
            images.iter().map(|image| format!("sm_{}", image.arch)).collect();
        let found = found.into_iter().collect::<Vec<_>>().join(", ");
        let message = format!("{name}: no such function or architecture");
        return Err(Diagnostic::error("sass-empty", message)
            .help(format!("the file has code for {found}"))
            .into());
    }
    if context.json() {
        context.print_json(&functions)?;
    }
    let Counts { functions, instructions, unknown, findings } = counts;
    context.status(
        "Decoded",
        &format!("instructions: {instructions}, functions: {functions}, unknown: {unknown}"),
    );
    if args.check {
        context.status("Checked", &format!("findings: {findings}"));
    }
    Ok(if args.check && findings > 0 { Outcome::Different } else { Outcome::Same })
}

/// Prints the functions of a cubin, or returns them for JSON.
fn functions_of(
    cubin: &Cubin<'_>,
    ptx: &[&str],
    args: &SassArgs,
    context: &Context<'_>,
    counts: &mut Counts,
) -> Result<Vec<FunctionModel>, Report> {
    let mut models = Vec::new();
    let is_asked = |name: &str| args.function.as_deref().is_none_or(|part| name.contains(part));
    for function in cubin.functions.iter().filter(|function| is_asked(&function.name)) {
        let mut model = model(cubin, function);
        model.ptx = ptx.iter().find_map(|text| ptx_of(text, &function.name)).map(str::to_owned);
        counts.functions += 1;
        counts.instructions += model.instructions.len();
        counts.unknown +=
            model.instructions.iter().filter(|instruction| instruction.text.is_none()).count();
        counts.findings += model.findings.len();
        match (context.json(), args.check) {
            (true, _) => models.push(model),
            (false, false) => context.print(&text(&model))?,
            (false, true) => {
                for finding in &model.findings {
                    context.print(&format!("{} (sm_{}): {finding}\n", model.name, model.arch))?;
                }
            }
        }
    }
    Ok(models)
}

fn model(cubin: &Cubin<'_>, function: &cubin::Function<'_>) -> FunctionModel {
    let decoded: Vec<(u64, u128, Result<Instruction, Unknown>)> = function
        .words()
        .map(|(address, word)| (address, word, decode(cubin.arch, word, address)))
        .collect();
    let known: Vec<Instruction> =
        decoded.iter().filter_map(|(_, _, result)| result.as_ref().ok()).copied().collect();
    // The address of a return is where its register counts from, not where it leads.
    let jumps = known.iter().filter(|instruction| instruction.op != Op::RET);
    let targets: BTreeSet<i64> =
        jumps.flat_map(|instruction| instruction.operands.iter()).filter_map(target).collect();
    let mut ends = false;
    let instructions = decoded.iter().map(|(address, word, result)| {
        let is_behind = std::mem::replace(&mut ends, result.as_ref().is_ok_and(ends_a_block));
        let source = function.lines.get(address);
        InstructionModel {
            address: *address,
            word: format!("{word:#034x}"),
            text: result.as_ref().ok().map(Instruction::to_string),
            control: control(Control::of(*word)),
            file: source.map(|source| source.file.clone()),
            line: source.map(|source| source.line),
            is_target: is_behind
                || i64::try_from(*address).is_ok_and(|address| targets.contains(&address)),
        }
    });
    FunctionModel {
        arch: cubin.arch.number(),
        name: function.name.clone(),
        instructions: instructions.collect(),
        findings: check(&known).iter().map(ToString::to_string).collect(),
        ptx: None,
    }
}

/// Whether what is behind an instruction may not run after it.
fn ends_a_block(instruction: &Instruction) -> bool {
    matches!(instruction.op, Op::BRA | Op::BRX | Op::JMP | Op::RET | Op::EXIT)
}

/// The definition of a function in PTX: from the line that names it to the brace that closes it.
fn ptx_of<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let is_name = |part: &str| part.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$'));
    let names = |line: &str| {
        line.split(|c: char| !is_name(c.encode_utf8(&mut [0; 4]))).any(|word| word == name)
    };
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let head = &text[start..];
        let words = line.split_whitespace();
        let begins = words
            .take_while(|word| word.starts_with('.'))
            .any(|word| matches!(word, ".entry" | ".func"));
        // A declaration ends before there is a brace.
        let opens = head.find('{').filter(|brace| !head[..*brace].contains(';'));
        if let (true, true, Some(brace)) = (begins, names(line), opens) {
            let mut depth = 0usize;
            for (at, byte) in head.bytes().enumerate().skip(brace) {
                match byte {
                    b'{' => depth += 1,
                    b'}' => depth -= 1,
                    _ => continue,
                }
                if depth == 0 {
                    return Some(&head[..=at]);
                }
            }
        }
        start += line.len();
    }
    None
}

fn target(operand: &nvabi_sass::Operand) -> Option<i64> {
    match operand.value {
        Value::Target(address) => Some(address),
        _ => None,
    }
}

fn text(function: &FunctionModel) -> String {
    let mut out = format!("{} (sm_{})\n", function.name, function.arch);
    let mut write = || -> std::fmt::Result {
        for line in function.ptx.iter().flat_map(|ptx| ptx.lines()) {
            writeln!(out, "  | {line}")?;
        }
        for instruction in &function.instructions {
            if instruction.is_target {
                writeln!(out, "{:04x}:", instruction.address)?;
            }
            if let (Some(file), Some(line)) = (&instruction.file, instruction.line) {
                writeln!(out, "  {file}:{line}")?;
            }
            let text = match &instruction.text {
                Some(text) => text.clone(),
                None => format!("unknown {}", instruction.word),
            };
            let line = format!("    {:04x}  {text}", instruction.address);
            writeln!(out, "{line:CONTROL_COLUMN$}  {}", instruction.control)?;
        }
        for finding in &function.findings {
            writeln!(out, "  finding: {finding}")?;
        }
        writeln!(out)
    };
    // Writing to a string does not fail.
    let _ = write();
    out
}

/// Scoreboards that it waits for, that are released when it has read and when it has written, and its cycles.
fn control(control: Control) -> String {
    let waits: String = (0..6_u8)
        .map(|bit| if control.wait_mask >> bit & 1 == 1 { char::from(b'0' + bit) } else { '-' })
        .collect();
    let barrier = |barrier: Option<u8>| barrier.map_or("-".to_owned(), |number| number.to_string());
    let (read, write) = (barrier(control.read_barrier), barrier(control.write_barrier));
    let yields = if control.yields { " yield" } else { "" };
    format!("wait {waits} read {read} write {write} stall {:2}{yields}", control.stall)
}

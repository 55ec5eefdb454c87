//! Folders that `nvabi trace export --by-launch` wrote, as traces.
//!
//! The events are put into their frame again, in a file that goes with the process.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_trace::convert::{EventSource, filled};
use nvabi_trace::{Event, EventKind, Trace, V2Writer};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::failed;

/// What there is to know of a trace besides its events; engines pass by names that begin with `_`.
pub(super) const FRAME: &str = "_frame.nvtrace";
/// The folder of a launch, before its number.
pub(super) const PARTITION: &str = "launch=";
/// The events of a launch, in its folder.
pub(super) const EVENTS: &str = "events.parquet";

/// Opens a folder, or that of one launch in it.
pub(super) fn open(path: &Path) -> Result<Trace, Report> {
    let launch = launch_of(path);
    let folder = match launch {
        Some(_) => path.parent().unwrap_or(Path::new("")),
        None => path,
    };
    let frame = folder.join(FRAME);
    if !frame.is_file() {
        let message = format!("{}: no trace: there is no {FRAME}", path.display());
        let help = "`nvabi trace export --by-launch` writes such folders";
        return Err(Diagnostic::error("trace-unreadable", message).help(help).into());
    }
    let frame = super::open(&frame)?;
    if let Some(launch) = launch.filter(|launch| *launch >= frame.launches().len()) {
        let message = format!("{}: the trace has no launch {launch}", path.display());
        return Err(Diagnostic::error("trace-launch", message).into());
    }
    let failed_io = |error: std::io::Error| unreadable(path, &error);
    // Its name is gone when this ends; the trace has it open, and reads it to the end.
    let whole = tempfile::Builder::new().prefix("nvabi-").suffix(".nvtrace").tempfile();
    let whole = whole.map_err(failed_io)?;
    let out = BufWriter::with_capacity(1 << 20, whole.as_file());
    let mut out = V2Writer::new(out, None).map_err(failed_io)?;
    let mut rows = Rows::new(folder);
    // Who opens the trace is told of what is lost.
    let mut told = |_, _| {};
    filled(&frame, launch, &mut rows, &mut out, &mut told).map_err(failed)?;
    out.finish().map_err(failed_io)?;
    super::open(whole.path())
}

/// The number in the name of a launch's folder.
fn launch_of(path: &Path) -> Option<usize> {
    path.file_name()?.to_str()?.strip_prefix(PARTITION)?.parse().ok()
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Report {
    let message = format!("{}: {error}", path.display());
    Diagnostic::error("trace-unreadable", message).into()
}

/// The rows of a folder's files, launch by launch.
struct Rows<'a> {
    folder: &'a Path,
    launch: Option<usize>,
    groups: Option<Groups>,
}

/// The groups of rows of one file.
struct Groups {
    path: PathBuf,
    file: SerializedFileReader<File>,
    next: usize,
    group: Option<Group>,
    rows: std::vec::IntoIter<(u32, Event)>,
    row: Option<(u32, Event)>,
}

/// The columns of a group of rows, as far as they are not read.
struct Group {
    number: usize,
    rows: usize,
    columns: Vec<(&'static str, ColumnReader)>,
}

/// Rows that are read at once.
const BATCH: usize = 8192;

impl<'a> Rows<'a> {
    fn new(folder: &'a Path) -> Self {
        Self { folder, launch: None, groups: None }
    }
}

impl EventSource for Rows<'_> {
    fn next_of(&mut self, launch: usize, warp: u32) -> Result<Option<Event>, String> {
        if self.launch != Some(launch) {
            self.launch = Some(launch);
            let path = self.folder.join(format!("{PARTITION}{launch}")).join(EVENTS);
            self.groups = Some(Groups::open(path)?);
        }
        match &mut self.groups {
            Some(groups) => groups.next_of(warp),
            None => Ok(None),
        }
    }
}

impl Groups {
    fn open(path: PathBuf) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = File::open(&path).map_err(|error| failed(&error))?;
        let file = SerializedFileReader::new(file).map_err(|error| failed(&error))?;
        Ok(Self { path, file, next: 0, group: None, rows: Vec::new().into_iter(), row: None })
    }

    fn next_of(&mut self, warp: u32) -> Result<Option<Event>, String> {
        loop {
            if self.row.is_none() {
                self.row = self.rows.next();
            }
            match self.row {
                Some((other, _)) if other < warp => {
                    let path = self.path.display();
                    let why = "the trace has no such warp, or rows are not in their order";
                    return Err(format!("{path}: a row of warp {other} before warp {warp}: {why}"));
                }
                Some((other, event)) if other == warp => {
                    self.row = None;
                    return Ok(Some(event));
                }
                Some(_) => return Ok(None),
                None => match self.batch() {
                    Ok(Some(rows)) => self.rows = rows.into_iter(),
                    Ok(None) => return Ok(None),
                    Err(why) => return Err(format!("{}: {why}", self.path.display())),
                },
            }
        }
    }

    /// The next rows; `None` at the end of the file.
    fn batch(&mut self) -> Result<Option<Vec<(u32, Event)>>, String> {
        loop {
            if let Some(group) = self.group.as_mut().filter(|group| group.rows > 0) {
                return group.batch().map(Some);
            }
            if self.next == self.file.num_row_groups() {
                return Ok(None);
            }
            self.group = Some(Group::open(&self.file, self.next)?);
            self.next += 1;
        }
    }
}

impl Group {
    fn open(file: &SerializedFileReader<File>, number: usize) -> Result<Self, String> {
        let group = file.get_row_group(number).map_err(|error| error.to_string())?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let column = |name: &'static str| {
            let columns = group.metadata().columns();
            let at = columns.iter().position(|column| column.column_path().string() == name);
            let at = at.ok_or_else(|| format!("there is no column {name}"))?;
            let reader = group.get_column_reader(at).map_err(|error| error.to_string())?;
            Ok((name, reader))
        };
        let names = ["warp", "site", "kind", "direction", "mask", "ballot", "value"];
        let columns = names.into_iter().map(column).collect::<Result<_, String>>()?;
        Ok(Self { number, rows, columns })
    }

    fn batch(&mut self) -> Result<Vec<(u32, Event)>, String> {
        let rows = self.rows.min(BATCH);
        self.rows -= rows;
        let (mut numbers, mut longs, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
        for (name, column) in &mut self.columns {
            match column {
                ColumnReader::Int32ColumnReader(reader) => numbers.push(read(reader, rows, name)?),
                ColumnReader::Int64ColumnReader(reader) => longs.push(read(reader, rows, name)?),
                ColumnReader::ByteArrayColumnReader(reader) => {
                    kinds.push(read(reader, rows, name)?);
                }
                _ => return Err(format!("column {name} has another type")),
            }
        }
        // Other types than these leave other numbers of columns of each.
        let ([warps, directions, masks, ballots], [sites, values], [kinds]) =
            (&numbers[..], &longs[..], &kinds[..])
        else {
            return Err("a column has another type".to_owned());
        };
        let row = |at: usize| {
            let event = Event {
                site: (*sites.get(at)?)? as u64,
                kind: kind(kinds.get(at)?.as_ref()?)?,
                direction: (*directions.get(at)?)? as u32,
                mask: (*masks.get(at)?)? as u32,
                ballot: ballots.get(at)?.map(|lanes| lanes as u32),
                value: values.get(at)?.map(|value| value as u64),
            };
            Some(((*warps.get(at)?)? as u32, event))
        };
        let number = self.number;
        let row = |at| row(at).ok_or_else(|| format!("a row of group {number} is no event"));
        (0..rows).map(row).collect()
    }
}

fn kind(name: &ByteArray) -> Option<EventKind> {
    let known = (0..=u8::MAX).map(EventKind).take_while(|kind| kind.is_known());
    known.into_iter().find(|kind| kind.name().as_bytes() == name.data())
}

/// The values of a column, where there are any.
fn read<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    name: &str,
) -> Result<Vec<Option<T::T>>, String> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let (records, _, _) = reader
        .read_records(rows, Some(&mut levels), None, &mut values)
        .map_err(|error| format!("column {name}: {error}"))?;
    if records != rows {
        return Err(format!("column {name} has {records} rows of {rows}"));
    }
    // A column without levels has a value in each row.
    if levels.is_empty() {
        return Ok(values.into_iter().map(Some).collect());
    }
    let mut values = values.into_iter();
    Ok(levels.iter().map(|level| if *level > 0 { values.next() } else { None }).collect())
}

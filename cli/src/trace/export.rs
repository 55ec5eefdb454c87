//! `nvabi trace export`: a row of Parquet for each event, in one file or in one for each launch.

use std::fs::File;
use std::io::BufWriter;
use std::iter::Peekable;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_trace::{Error, Event, Events, Found, Trace, Warp, convert as to};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl, get_column_writer};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::parser::parse_message_type;
use rustc_hash::FxHashMap;

use super::args::TraceExport;
use super::convert::{Beside, write_v2};
use super::import::{EVENTS, FRAME, PARTITION};
use super::{Losses, failed, open};
use crate::Outcome;
use crate::context::Context;

/// The columns. In a file of one launch its number is in the name of the folder instead.
const SCHEMA: &str = "message events {
    REQUIRED INT32 launch (INTEGER(32, false));
    REQUIRED INT32 session (INTEGER(32, false));
    REQUIRED BYTE_ARRAY kernel (UTF8);
    REQUIRED INT32 warp (INTEGER(32, false));
    REQUIRED INT64 index (INTEGER(64, false));
    REQUIRED INT64 site (INTEGER(64, false));
    REQUIRED BYTE_ARRAY kind (UTF8);
    REQUIRED INT32 direction (INTEGER(32, false));
    REQUIRED INT32 mask (INTEGER(32, false));
    OPTIONAL INT32 ballot (INTEGER(32, false));
    OPTIONAL INT64 value (INTEGER(64, false));
    OPTIONAL BYTE_ARRAY file (UTF8);
    OPTIONAL BYTE_ARRAY function (UTF8);
    OPTIONAL INT32 line (INTEGER(32, false));
}";

/// Level of zstd of the frame.
const LEVEL: i32 = 3;
/// Rows of a group. What a file keeps in memory grows with its groups alone; the columns of a group are
/// encoded as they come, and lie in memory until it is written.
const ROWS: usize = 1 << 18;
/// Rows of a page: until it is full, its values lie in memory unpacked.
const PAGE: usize = 1 << 15;
/// Bytes of a dictionary; a column with more different values is written without one.
const DICTIONARY: usize = 1 << 18;
/// Rows that are encoded at once; all are of one warp.
const BATCH: usize = 4096;
/// Sites whose lines are remembered.
const PLACES: usize = 1 << 14;

pub(crate) fn export(context: &Context<'_>, args: &TraceExport) -> Result<Outcome, Report> {
    let trace = open(&args.file)?;
    let mut losses = Losses::of(context, std::slice::from_ref(&trace));
    match args.by_launch {
        true => folder(&trace, &args.out, &mut losses)?,
        false => file(&trace, 0..trace.launches().len(), false, &args.out, &mut losses)?,
    }
    context.status("Written", &args.out.display().to_string());
    Ok(losses.outcome())
}

/// Writes a folder with one file for each launch, and what there is to know besides the events.
fn folder(trace: &Trace, out: &Path, losses: &mut Losses<'_>) -> Result<(), Report> {
    let create = |folder: &Path| {
        std::fs::create_dir_all(folder).map_err(|error| super::convert::unwritable(folder, &error))
    };
    create(out)?;
    // A folder that has a frame is whole.
    let frame = Beside::new(&out.join(FRAME))?;
    let mut told = |_, _| {};
    write_v2(&frame, LEVEL, |out| to::frame(trace, out, &mut told))?;
    for launch in 0..trace.launches().len() {
        let folder = out.join(format!("{PARTITION}{launch}"));
        create(&folder)?;
        file(trace, launch..launch + 1, true, &folder.join(EVENTS), losses)?;
    }
    frame.done()
}

/// Writes the events of some launches to a file.
fn file(
    trace: &Trace,
    launches: Range<usize>,
    partition: bool,
    out: &Path,
    losses: &mut Losses<'_>,
) -> Result<(), Report> {
    let beside = Beside::new(out)?;
    let warps = launches
        .flat_map(|launch| trace.warps(launch).map(move |found| (launch, found)))
        .filter_map(|(launch, found)| match found {
            Found::Warp(warp) => Some((launch, warp)),
            Found::Lost { first, last, error } => {
                losses.warps(first..=last, &error);
                None
            }
        });
    let mut batches = warps.flat_map(|(launch, warp)| Batches::of(launch, &warp)).peekable();
    let failed_parquet = |error: ParquetError| {
        let message = format!("cannot write {}: {error}", out.display());
        Report::from(Diagnostic::error("trace-unwritable", message))
    };
    let mut table = Table::new(trace, partition, beside.writer()?).map_err(failed_parquet)?;
    while batches.peek().is_some() {
        table.group(&mut batches).map_err(|stopped| match stopped {
            Stopped::Reading(error) => failed(error),
            Stopped::Writing(error) => failed_parquet(error),
        })?;
    }
    drop(batches);
    table.out.close().map_err(failed_parquet)?;
    beside.done()
}

/// Some events of a warp, in a row.
struct Batch {
    launch: usize,
    warp: u32,
    /// The index of the first.
    first: u64,
    events: Vec<Event>,
}

/// The events of a warp, batch after batch.
struct Batches<'a> {
    launch: usize,
    warp: u32,
    next: u64,
    events: Events<'a>,
}

impl<'a> Batches<'a> {
    fn of(launch: usize, warp: &Warp<'a>) -> Self {
        Self { launch, warp: warp.number(), next: 0, events: warp.events() }
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let events: Result<Vec<Event>, Error> = self.events.by_ref().take(BATCH).collect();
        let events = match events {
            Ok(events) if events.is_empty() => return None,
            Ok(events) => events,
            Err(error) => return Some(Err(error)),
        };
        let first = self.next;
        self.next += events.len() as u64;
        Some(Ok(Batch { launch: self.launch, warp: self.warp, first, events }))
    }
}

/// Why a table is not whole.
enum Stopped {
    Reading(Error),
    Writing(ParquetError),
}

impl From<ParquetError> for Stopped {
    fn from(error: ParquetError) -> Self {
        Self::Writing(error)
    }
}

struct Table<'a> {
    trace: &'a Trace,
    out: SerializedFileWriter<BufWriter<File>>,
    properties: WriterPropertiesPtr,
    /// The lines of sites, so that each text is there once.
    places: Vec<SourceLine>,
    known: FxHashMap<(usize, u64), Option<usize>>,
}

struct SourceLine {
    file: ByteArray,
    function: ByteArray,
    line: i32,
}

impl<'a> Table<'a> {
    fn new(trace: &'a Trace, partition: bool, out: BufWriter<File>) -> Result<Self, ParquetError> {
        let is_kept = |line: &&str| !(partition && line.contains(" launch "));
        let schema: Vec<&str> = SCHEMA.lines().filter(is_kept).collect();
        let schema = Arc::new(parse_message_type(&schema.join("\n"))?);
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            // What is said of each page would lie in memory up to the end of the file.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_data_page_row_count_limit(PAGE)
            .set_dictionary_page_size_limit(DICTIONARY);
        // Numbers that are hardly ever the same again have no use for a dictionary.
        for column in ["index", "value"] {
            properties = properties
                .set_column_dictionary_enabled(column.into(), false)
                .set_column_encoding(column.into(), Encoding::DELTA_BINARY_PACKED);
        }
        let properties = Arc::new(properties.build());
        let out = SerializedFileWriter::new(out, schema, properties.clone())?;
        Ok(Self { trace, out, properties, places: Vec::new(), known: FxHashMap::default() })
    }

    /// Writes a group of rows: each column to memory, then one after another to the file.
    fn group(
        &mut self,
        batches: &mut Peekable<impl Iterator<Item = Result<Batch, Error>>>,
    ) -> Result<(), Stopped> {
        let descriptors = self.out.schema_descr().columns().to_vec();
        let names: Vec<String> =
            descriptors.iter().map(|column| column.name().to_owned()).collect();
        let mut sinks: Vec<_> = descriptors.iter().map(|_| TrackedWrite::new(Vec::new())).collect();
        let mut columns: Vec<ColumnWriter<'_>> = sinks
            .iter_mut()
            .zip(descriptors)
            .map(|(sink, descriptor)| {
                let pages = Box::new(SerializedPageWriter::new(sink));
                get_column_writer(descriptor, self.properties.clone(), pages)
            })
            .collect();
        let mut rows = 0;
        while rows < ROWS {
            let Some(batch) = batches.next() else { break };
            let batch = batch.map_err(Stopped::Reading)?;
            self.write(&names, &mut columns, &batch)?;
            rows += batch.events.len();
        }
        let closed: Vec<_> =
            columns.into_iter().map(ColumnWriter::close).collect::<Result<_, _>>()?;
        let mut group = self.out.next_row_group()?;
        for (sink, closed) in sinks.into_iter().zip(closed) {
            group.append_column(&Bytes::from(sink.into_inner()?), closed)?;
        }
        group.close()?;
        Ok(())
    }

    fn write(
        &mut self,
        names: &[String],
        columns: &mut [ColumnWriter<'_>],
        batch: &Batch,
    ) -> Result<(), ParquetError> {
        use ColumnWriter::Int64ColumnWriter as I64;
        use ColumnWriter::{ByteArrayColumnWriter as Text, Int32ColumnWriter as I32};
        let Batch { launch, warp, first, events } = batch;
        let about = self.trace.launches().get(*launch);
        let places = self.places(*launch, events);
        let place = |at: &Option<usize>| at.and_then(|at| self.places.get(at));
        let rows = events.len();
        for (name, column) in names.iter().zip(columns) {
            match (name.as_str(), column) {
                ("launch", I32(out)) => same(out, rows, *launch as i32)?,
                ("session", I32(out)) => {
                    same(out, rows, about.map_or(0, |about| about.session as i32))?
                }
                ("kernel", Text(out)) => {
                    same(out, rows, about.map_or("", |about| &about.kernel).into())?;
                }
                ("warp", I32(out)) => same(out, rows, *warp as i32)?,
                ("index", I64(out)) => {
                    each(out, *first..*first + rows as u64, |index| index as i64)?
                }
                ("site", I64(out)) => each(out, events, |event| event.site as i64)?,
                ("kind", Text(out)) => each(out, events, kind)?,
                ("direction", I32(out)) => each(out, events, |event| event.direction as i32)?,
                ("mask", I32(out)) => each(out, events, |event| event.mask as i32)?,
                ("ballot", I32(out)) => {
                    some(out, events, |event| event.ballot.map(|lanes| lanes as i32))?
                }
                ("value", I64(out)) => {
                    some(out, events, |event| event.value.map(|value| value as i64))?
                }
                ("file", Text(out)) => some(out, &places, |at| Some(place(at)?.file.clone()))?,
                ("function", Text(out)) => {
                    some(out, &places, |at| Some(place(at)?.function.clone()))?
                }
                ("line", I32(out)) => some(out, &places, |at| Some(place(at)?.line))?,
                _ => return Err(ParquetError::General("a column of another type".to_owned())),
            }
        }
        Ok(())
    }

    /// Where in `places` the lines of some events are.
    fn places(&mut self, launch: usize, events: &[Event]) -> Vec<Option<usize>> {
        if self.trace.site_count(launch) == 0 {
            return vec![None; events.len()];
        }
        if self.places.len() > PLACES {
            self.places.clear();
            self.known.clear();
        }
        let place = |event: &Event| {
            *self.known.entry((launch, event.site)).or_insert_with(|| {
                let source = self.trace.source(launch, event.site)?;
                let (file, function) =
                    (source.file.as_str().into(), source.function.as_str().into());
                self.places.push(SourceLine { file, function, line: source.line as i32 });
                Some(self.places.len() - 1)
            })
        };
        events.iter().map(place).collect()
    }
}

fn kind(event: &Event) -> ByteArray {
    Bytes::from_static(event.kind.name().as_bytes()).into()
}

/// A column of which all rows are the same.
fn same<T: DataType>(
    out: &mut ColumnWriterImpl<'_, T>,
    rows: usize,
    value: T::T,
) -> Result<(), ParquetError> {
    out.write_batch(&vec![value; rows], None, None).map(|_| ())
}

fn each<T: DataType, I: IntoIterator>(
    out: &mut ColumnWriterImpl<'_, T>,
    rows: I,
    value: impl FnMut(I::Item) -> T::T,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = rows.into_iter().map(value).collect();
    out.write_batch(&values, None, None).map(|_| ())
}

/// A column that may have no value: a level for each row says whether it has.
fn some<T: DataType, I: IntoIterator>(
    out: &mut ColumnWriterImpl<'_, T>,
    rows: I,
    mut value: impl FnMut(I::Item) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for row in rows {
        let value = value(row);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    out.write_batch(&values, Some(&levels), None).map(|_| ())
}

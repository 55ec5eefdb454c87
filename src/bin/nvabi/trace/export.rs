//! `nvabi trace export`: a row of Parquet for each event.

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use nvabi::trace::{Event, Found, Launch, Trace};
use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::convert::Beside;
use super::{Losses, failed, open};
use crate::Outcome;
use crate::args::TraceExport;
use crate::context::Context;

/// The columns, in the order in which `Rows::columns` has them.
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

/// Rows of a group: they lie in memory until the group is written.
const ROWS: usize = 1 << 17;

pub(crate) fn export(context: &Context<'_>, args: &TraceExport) -> Result<Outcome, Report> {
    let trace = open(&args.file)?;
    let beside = Beside::new(&args.out)?;
    let unwritable = |error: ParquetError| {
        let message = format!("cannot write {}: {error}", args.out.display());
        Report::from(Diagnostic::error("trace-unwritable", message))
    };
    let mut table = Table::new(beside.writer()?).map_err(unwritable)?;
    let mut losses = Losses::of(context, std::slice::from_ref(&trace));
    for (at, launch) in trace.launches().iter().enumerate() {
        for found in trace.warps(at) {
            let warp = match found {
                Found::Warp(warp) => warp,
                Found::Lost { first, last, error } => {
                    losses.warps(first..=last, &error);
                    continue;
                }
            };
            for (index, event) in (0..).zip(warp.events()) {
                let event = event.map_err(failed)?;
                table.rows.push(&trace, at, launch, warp.number(), index, &event);
                if table.rows.warp.len() == ROWS {
                    table.flush().map_err(unwritable)?;
                }
            }
        }
    }
    table.finish().map_err(unwritable)?;
    beside.done()?;
    context.status("Written", &args.out.display().to_string());
    Ok(losses.outcome())
}

struct Table {
    out: SerializedFileWriter<BufWriter<File>>,
    rows: Rows,
}

/// The columns of some rows. Optional ones have a level for each row: 1 where there is a value.
#[derive(Default)]
struct Rows {
    launch: Vec<i32>,
    session: Vec<i32>,
    kernel: Vec<ByteArray>,
    warp: Vec<i32>,
    index: Vec<i64>,
    site: Vec<i64>,
    kind: Vec<ByteArray>,
    direction: Vec<i32>,
    mask: Vec<i32>,
    ballot: (Vec<i32>, Vec<i16>),
    value: (Vec<i64>, Vec<i16>),
    file: (Vec<ByteArray>, Vec<i16>),
    function: (Vec<ByteArray>, Vec<i16>),
    line: (Vec<i32>, Vec<i16>),
    /// What the last rows were about, so that texts are shared.
    sources: std::collections::HashMap<(usize, u64), Option<Place>>,
    kernels: std::collections::HashMap<usize, ByteArray>,
}

#[derive(Clone)]
struct Place {
    file: ByteArray,
    function: ByteArray,
    line: u32,
}

/// Sites whose lines are remembered.
const SOURCES: usize = 1 << 14;

impl Table {
    fn new(out: BufWriter<File>) -> Result<Self, ParquetError> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .build();
        let out = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
        Ok(Self { out, rows: Rows::default() })
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.rows);
        let mut group = self.out.next_row_group()?;
        let mut number = 0;
        while let Some(mut column) = group.next_column()? {
            rows.write(number, column.untyped())?;
            column.close()?;
            number += 1;
        }
        group.close()?;
        Ok(())
    }

    fn finish(mut self) -> Result<(), ParquetError> {
        if !self.rows.warp.is_empty() {
            self.flush()?;
        }
        self.out.close().map(|_| ())
    }
}

impl Rows {
    fn push(
        &mut self,
        trace: &Trace,
        at: usize,
        launch: &Launch,
        warp: u32,
        index: u64,
        event: &Event,
    ) {
        let kernel = self.kernels.entry(at).or_insert_with(|| launch.kernel.as_str().into());
        self.kernel.push(kernel.clone());
        self.launch.push(at as i32);
        self.session.push(launch.session as i32);
        self.warp.push(warp as i32);
        self.index.push(index as i64);
        self.site.push(event.site as i64);
        self.kind.push(event.kind.name().into());
        self.direction.push(event.direction as i32);
        self.mask.push(event.mask as i32);
        optional(&mut self.ballot, event.ballot.map(|ballot| ballot as i32));
        optional(&mut self.value, event.value.map(|value| value as i64));
        if self.sources.len() == SOURCES {
            self.sources.clear();
        }
        let place = self.sources.entry((at, event.site)).or_insert_with(|| {
            let source = trace.source(at, event.site)?;
            let (file, function) = (source.file.as_str().into(), source.function.as_str().into());
            Some(Place { file, function, line: source.line })
        });
        optional(&mut self.file, place.as_ref().map(|place| place.file.clone()));
        optional(&mut self.function, place.as_ref().map(|place| place.function.clone()));
        optional(&mut self.line, place.as_ref().map(|place| place.line as i32));
    }

    fn write(&self, number: usize, column: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        use ColumnWriter::{ByteArrayColumnWriter, Int32ColumnWriter, Int64ColumnWriter};
        match column {
            Int32ColumnWriter(out) => {
                let (values, levels) = match number {
                    0 => (&self.launch, None),
                    1 => (&self.session, None),
                    3 => (&self.warp, None),
                    7 => (&self.direction, None),
                    8 => (&self.mask, None),
                    9 => (&self.ballot.0, Some(&self.ballot.1)),
                    _ => (&self.line.0, Some(&self.line.1)),
                };
                out.write_batch(values, levels.map(Vec::as_slice), None)?;
            }
            Int64ColumnWriter(out) => {
                let (values, levels) = match number {
                    4 => (&self.index, None),
                    5 => (&self.site, None),
                    _ => (&self.value.0, Some(&self.value.1)),
                };
                out.write_batch(values, levels.map(Vec::as_slice), None)?;
            }
            ByteArrayColumnWriter(out) => {
                let (values, levels) = match number {
                    2 => (&self.kernel, None),
                    6 => (&self.kind, None),
                    11 => (&self.file.0, Some(&self.file.1)),
                    _ => (&self.function.0, Some(&self.function.1)),
                };
                out.write_batch(values, levels.map(Vec::as_slice), None)?;
            }
            _ => return Err(ParquetError::General("a column of another type".to_owned())),
        }
        Ok(())
    }
}

fn optional<T>((values, levels): &mut (Vec<T>, Vec<i16>), value: Option<T>) {
    levels.push(i16::from(value.is_some()));
    values.extend(value);
}

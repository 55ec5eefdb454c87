//! `nvabi alloc devices`: who makes memory on this machine, and who does what with it.

use nvabi_devmem::{
    Capability, CapabilitySet, Constraint, ConstraintName, Device, DeviceInfo, Memory,
};
use nvabi_pipeline::diagnostic::Report;
use nvabi_reports::terminal;
use serde::Serialize;

use crate::Outcome;
use crate::context::Context;

/// What `--json` prints of each.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    info: DeviceInfo,
    /// What its memory costs, compared with others'.
    cost: u64,
    /// What its memory is like, where all of it is alike.
    memory: Option<Memory>,
}

pub(crate) fn devices(context: &Context<'_>) -> Result<Outcome, Report> {
    let found = super::found(context);
    let rows: Vec<Row> = found.devices.iter().map(|device| Row::new(&**device)).collect();
    match context.json() {
        true => context.print_json(&rows)?,
        false => context.print(&text(&rows))?,
    }
    let plural = if rows.len() == 1 { "" } else { "s" };
    context.status("Found", &format!("{} device{plural}", rows.len()));
    Ok(Outcome::Same)
}

impl Row {
    fn new(device: &dyn Device) -> Self {
        let rows = CapabilitySet::new(vec![], vec![Capability::pitch_linear()]);
        let (info, memory) = (device.info().clone(), device.memory().filter(Memory::is_known));
        Self { info, cost: device.cost(&rows), memory }
    }

    fn cells(&self) -> [String; 5] {
        let operations = self.info.operations.iter().map(ToString::to_string);
        let does: Vec<String> = operations.collect();
        let takes = if self.info.imports { "yes" } else { "-" };
        [
            self.info.name.clone(),
            if self.info.allocates { self.cost.to_string() } else { "-".to_owned() },
            self.makes(),
            takes.to_owned(),
            or_none(does.join(", ")),
        ]
    }

    fn makes(&self) -> String {
        match &self.memory {
            _ if !self.info.allocates => "-".to_owned(),
            None => "its own".to_owned(),
            Some(memory) => words(memory),
        }
    }
}

/// `system, cached, pages of 4 KiB, 64 MiB at most`.
fn words(memory: &Memory) -> String {
    let word = |name: ConstraintName, value| {
        let text = Constraint::new(name, value).to_string();
        text.rsplit(' ').next().unwrap_or_default().to_owned()
    };
    let mut words = vec![
        word(ConstraintName::PLACEMENT, memory.placement),
        word(ConstraintName::COHERENCY, memory.coherency),
    ];
    words.push(match memory.contiguous {
        u64::MAX => "in one piece".to_owned(),
        _ => format!("pages of {}", bytes(memory.page)),
    });
    if memory.max_size != u64::MAX {
        words.push(format!("{} at most", bytes(memory.max_size)));
    }
    words.join(", ")
}

fn bytes(count: u64) -> String {
    match count {
        _ if count % (1 << 20) == 0 => format!("{} MiB", count >> 20),
        _ => format!("{} KiB", count >> 10),
    }
}

fn or_none(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Cells beyond this stick out of their column.
const WIDEST: usize = 64;

/// A table whose columns are as wide as they have to be.
fn text(rows: &[Row]) -> String {
    let header = ["DEVICE", "COST", "MAKES", "TAKES", "DOES"].map(str::to_owned);
    let cells = std::iter::once(header).chain(rows.iter().map(Row::cells));
    let one_line = |cell: String| terminal::line(&cell).into_owned();
    let cells: Vec<[String; 5]> = cells.map(|row| row.map(one_line)).collect();
    let width =
        |column: usize| terminal::width(cells.iter().map(|row| row[column].as_str()), WIDEST);
    let line = |row: &[String; 5]| {
        let cells = row.iter().enumerate();
        let padded: Vec<String> =
            cells.map(|(column, cell)| format!("{cell:<0$}", width(column))).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    cells.iter().map(line).collect()
}

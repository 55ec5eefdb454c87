//! A layout as a picture: bytes from left to right, a box for each field, padding hatched.

use std::fmt::Write as _;

use super::html::Esc;
use super::layout::{Layout, Mark, Row, place, width};
use crate::words::counted;
use nvabi_pipeline::model::{Field, RecordKind, split_array};

/// Pixels, as the picture is drawn; the page scales it.
const GUTTER: u64 = 48;
const WIDTH: u64 = 704;
const LINE: u64 = 24;
const TOP: u64 = 16;
/// Of a letter in a label.
const LETTER: f64 = 6.7;
/// A field of more whole lines than this has those in the middle left out.
const WHOLE: u64 = 6;
/// Lines drawn at most; what is behind them is in the table.
const LINES: u64 = 160;

/// A box: bits from `start` to `end`.
struct Cell<'r, 'l> {
    start: u64,
    end: u64,
    row: &'r Row<'l>,
    mark: &'r Mark,
    /// Whether it or something in it is otherwise than before.
    changed: bool,
}

/// The picture of a layout, from its rows with what changed.
pub(super) fn svg(name: &str, layout: &Layout<'_>, rows: &[(&Row<'_>, Mark)]) -> String {
    let cells = cells(rows, layout.kind);
    match layout.kind {
        RecordKind::Struct => of_struct(name, layout.size, &cells),
        RecordKind::Union => of_union(name, layout.size, &cells),
    }
}

/// Fields and padding in order; of unnamed structs their members, of unions and arrays the whole.
/// Of a union, each member as a whole.
fn cells<'r, 'l>(rows: &'r [(&'r Row<'l>, Mark)], kind: RecordKind) -> Vec<Cell<'r, 'l>> {
    let mut cells: Vec<Cell<'_, '_>> = Vec::new();
    // The depth of a row whose members are not drawn, and whether it is a cell itself.
    let mut closed: Option<(usize, bool)> = None;
    for (row, mark) in rows {
        let changed = *mark != Mark::Same;
        if let Some((_, drawn)) = closed.filter(|(depth, _)| row.depth > *depth) {
            cells.last_mut().into_iter().for_each(|cell| cell.changed |= drawn && changed);
            continue;
        }
        closed = None;
        if *mark == Mark::Gone {
            closed = Some((row.depth, false));
            continue;
        }
        let array = row.field.is_some_and(|f| f.canonical.ends_with(']'));
        match row.open {
            Some(RecordKind::Struct) if !array && kind == RecordKind::Struct => continue,
            Some(_) => closed = Some((row.depth, true)),
            None => {}
        }
        let (bit, bits) = match row.field {
            Some(field) => (field.bits.map_or(0, |bits| bits.bit_offset), width(field)),
            None => (0, row.size.saturating_mul(8)),
        };
        let start = row.offset.saturating_mul(8).saturating_add(bit);
        if bits > 0 {
            cells.push(Cell { start, end: start.saturating_add(bits), row, mark, changed });
        }
    }
    cells
}

/// Where lines are left out, and so where the others are drawn.
struct Lines {
    /// Bits.
    width: u64,
    /// First and last line of each gap, each gap drawn as one line.
    gaps: Vec<(u64, u64)>,
    count: u64,
}

impl Lines {
    fn new(size: u64, cells: &[Cell<'_, '_>]) -> Self {
        let width = if size <= 64 { 64 } else { 128 };
        let mut gaps = Vec::new();
        for cell in cells {
            let (first, end) = (cell.start.div_ceil(width), cell.end / width);
            if end.saturating_sub(first) > WHOLE {
                gaps.push((first + 1, end - 2));
            }
        }
        gaps.sort_unstable();
        // Fields that overlap are not C, but a lock may say so.
        gaps.dedup_by(|later, earlier| later.0 <= earlier.1);
        Self { width, gaps, count: size.saturating_mul(8).div_ceil(width) }
    }

    /// The line on which one is drawn; the lines of a gap are on the gap's.
    fn shown(&self, line: u64) -> u64 {
        let before = self.gaps.iter().take_while(|gap| gap.0 <= line);
        line - before.map(|gap| gap.1.min(line) - gap.0).sum::<u64>()
    }

    fn gap_at(&self, line: u64) -> Option<&(u64, u64)> {
        self.gaps.iter().find(|gap| (gap.0..=gap.1).contains(&line))
    }

    fn height(&self) -> u64 {
        self.shown(self.count.saturating_sub(1)).saturating_add(1).min(LINES)
    }

    fn x(&self, bit: u64) -> f64 {
        GUTTER as f64 + (bit * WIDTH) as f64 / self.width as f64
    }
}

fn of_struct(name: &str, size: u64, cells: &[Cell<'_, '_>]) -> String {
    let lines = Lines::new(size, cells);
    let mut svg = open(name, lines.height());
    for byte in 0..lines.width / 8 {
        let x = lines.x(byte * 8 + 4);
        let _ = write!(svg, "<text class=o x={} y=11>{byte}</text>", Px(x));
    }
    // The outline of what changed lies over its neighbours.
    for changed in [false, true] {
        for cell in cells.iter().filter(|cell| cell.changed == changed) {
            boxed(&mut svg, &lines, cell);
        }
    }
    offsets(&mut svg, &lines);
    svg.push_str("</svg>");
    if lines.shown(lines.count.saturating_sub(1)) >= LINES {
        svg.push_str("<p class=m>The picture ends here; the table goes on.");
    }
    svg
}

fn open(name: &str, lines: u64) -> String {
    let (width, height) = (GUTTER + WIDTH + 2, TOP + lines * LINE + 2);
    let name = Esc(name);
    format!(
        "<svg class=map viewBox=\"0 0 {width} {height}\" width={width} height={height} role=img \
aria-label=\"Byte map of {name}; the table has the same facts\">"
    )
}

/// The offset of each line, and how much is left out.
fn offsets(svg: &mut String, lines: &Lines) {
    let mut line = 0;
    while line < lines.count && lines.shown(line) < LINES {
        let y = TOP + lines.shown(line) * LINE;
        match lines.gap_at(line) {
            Some((first, last)) => {
                let bytes = (last - first + 1) * lines.width / 8;
                let (x, y) = (GUTTER + WIDTH / 2, y + 16);
                let _ = write!(svg, "<text class=g x={x} y={y}>⋯ {bytes} bytes ⋯</text>");
                line = last + 1;
            }
            None => {
                let (x, offset) = (GUTTER - 6, line * lines.width / 8);
                let _ = write!(svg, "<text class=r x={x} y={}>{offset}</text>", y + 16);
                line += 1;
            }
        }
    }
}

fn boxed(svg: &mut String, lines: &Lines, cell: &Cell<'_, '_>) {
    let (first, last) = (cell.start / lines.width, (cell.end - 1) / lines.width);
    let (top, bottom) = (lines.shown(first), lines.shown(last));
    if top >= LINES {
        return;
    }
    let bottom = bottom.min(LINES - 1);
    let left = lines.x(cell.start - first * lines.width);
    let right = lines.x(cell.end - last * lines.width);
    let (min, max) = (lines.x(0), lines.x(lines.width));
    let y = |line: u64| (TOP + line * LINE) as f64;
    let bar = |x: f64, to: f64, line: u64| {
        format!("M{} {}h{}v{LINE}h-{}z", Px(x), Px(y(line)), Px(to - x), Px(to - x))
    };
    let path = if top == bottom {
        bar(left, if first == last { right } else { max }, top)
    } else if bottom == top + 1 && right <= left {
        // Nothing of the second line is below the first.
        bar(left, max, top) + &bar(min, right, bottom)
    } else {
        let [left, right, min, max] = [left, right, min, max].map(Px);
        let [y0, y1, y2, y3] = [top, top + 1, bottom, bottom + 1].map(|line| Px(y(line)));
        format!("M{left} {y0}H{max}V{y2}H{right}V{y3}H{min}V{y1}H{left}z")
    };
    shape(svg, cell, &path);
    // The label stands where there is most room.
    let below = top < bottom && left > min + (max - min) / 2.0;
    let (x, end, line) = match (below, first == last) {
        (true, _) if top + 1 == bottom => (min, right, bottom),
        (true, _) => (min, max, top + 1),
        (false, true) => (left, right, top),
        (false, false) => (left, max, top),
    };
    label(svg, cell, x, y(line), end - x);
}

/// Every member on a line of its own, as all start at the same place.
fn of_union(name: &str, size: u64, cells: &[Cell<'_, '_>]) -> String {
    let shown = &cells[..cells.len().min(LINES as usize)];
    let mut svg = open(name, shown.len() as u64);
    let scale = WIDTH as f64 / (size.max(1) as f64 * 8.0);
    for changed in [false, true] {
        for (i, cell) in shown.iter().enumerate().filter(|(_, cell)| cell.changed == changed) {
            let y = (TOP + i as u64 * LINE) as f64;
            let x = GUTTER as f64 + cell.start as f64 * scale;
            let w = (cell.end - cell.start) as f64 * scale;
            let path = format!("M{} {}h{}v{LINE}h-{}z", Px(x), Px(y), Px(w), Px(w));
            shape(&mut svg, cell, &path);
            // A short bar leaves room behind it.
            label(&mut svg, cell, x, y, (GUTTER + WIDTH) as f64 - x);
            let (x, y) = (GUTTER - 6, y as u64 + 16);
            let _ = write!(svg, "<text class=r x={x} y={y}>{}</text>", cell.row.size);
        }
    }
    let x = GUTTER - 6;
    let _ = write!(svg, "<text class=r x={x} y=11>bytes</text>");
    svg.push_str("</svg>");
    svg
}

fn shape(svg: &mut String, cell: &Cell<'_, '_>, path: &str) {
    let changed = if cell.changed { " c" } else { "" };
    let title = title(cell);
    let title = Esc(&title);
    let _ = match cell.row.field {
        Some(field) => {
            let class = class(field, cell.row.record.is_some());
            write!(
                svg,
                "<path class=\"{class}{changed}\" d=\"{path}\"><title>{title}</title></path>"
            )
        }
        // A stylesheet cannot point at a pattern of the page.
        None => {
            write!(svg, "<path class=pad fill=url(#pad) d=\"{path}\"><title>{title}</title></path>")
        }
    };
}

fn title(cell: &Cell<'_, '_>) -> String {
    let Some(field) = cell.row.field else {
        return format!("{} of padding at {}", counted(cell.row.size, "byte"), cell.row.offset);
    };
    let size = match field.bits {
        Some(bits) => counted(bits.bit_width, "bit"),
        None => counted(field.size, "byte"),
    };
    let mut text = format!("{} {}: {size} at {}", field.ty, cell.row.shown(), place(cell.row));
    match cell.mark {
        Mark::New => text.push_str(" (new)"),
        Mark::Was(was) => text.push_str(&format!(" (was {was})")),
        Mark::Same if cell.changed => text.push_str(" (changed inside)"),
        Mark::Same | Mark::Gone => {}
    }
    text
}

fn label(svg: &mut String, cell: &Cell<'_, '_>, x: f64, y: f64, room: f64) {
    let Some(field) = cell.row.field else { return };
    let (_, counts) = split_array(&field.canonical);
    let mut text = cell.row.shown();
    for count in counts {
        let _ = write!(text, "[{count}]");
    }
    let fits = ((room - 8.0) / LETTER) as usize;
    let letters = text.chars().count();
    if letters > fits {
        // Of a long path the end tells most.
        if let Some((_, last)) = text.rsplit_once('.') {
            text = last.to_owned();
        }
        if text.chars().count() > fits {
            text = text.chars().take(fits.saturating_sub(1)).collect();
            text.push('…');
        }
    }
    if fits >= 3 || letters <= fits {
        let (x, y) = (Px(x + 4.0), Px(y + 16.0));
        let _ = write!(svg, "<text x={x} y={y}>{}</text>", Esc(&text));
    }
}

/// What sort of field it is: the colours of the stylesheet.
fn class(field: &Field, record: bool) -> &'static str {
    let (base, counts) = split_array(&field.canonical);
    if base.ends_with('*') {
        "ptr"
    } else if record {
        "rec"
    } else if field.ty.starts_with("NvHandle") {
        "han"
    } else if !counts.is_empty() {
        "arr"
    } else {
        "num"
    }
}

/// A length in pixels, with a tenth where there is one.
struct Px(f64);

impl std::fmt::Display for Px {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round() as i64;
        match tenths % 10 {
            0 => write!(f, "{}", tenths / 10),
            tenth => write!(f, "{}.{}", tenths / 10, tenth.abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, canonical: &str, offset: u64, size: u64) -> Field {
        let (name, canonical) = (name.to_owned(), canonical.to_owned());
        Field { name, ty: canonical.clone(), canonical, offset, size, bits: None }
    }

    fn row<'f>(depth: usize, field: &'f Field, open: Option<RecordKind>) -> Row<'f> {
        Row {
            depth,
            path: field.name.clone(),
            offset: field.offset,
            size: field.size,
            field: Some(field),
            record: None,
            open,
        }
    }

    fn shown(size: u64, rows: &[(&Row<'_>, Mark)]) -> String {
        let cells = cells(rows, RecordKind::Struct);
        of_struct("X", size, &cells)
    }

    #[test]
    fn leaves_out_the_middle_of_a_wide_array() {
        let wide = field("wide", "unsigned char[1048576]", 0, 1 << 20);
        let end = field("end", "unsigned int", 1 << 20, 4);
        let (wide, end) = (row(0, &wide, None), row(0, &end, None));
        let svg = shown((1 << 20) + 4, &[(&wide, Mark::Same), (&end, Mark::Same)]);
        assert!(svg.contains("⋯ 1048544 bytes ⋯") && svg.contains(">1048576</text>"), "{svg}");
        assert!(svg.len() < 2500 && svg.matches("<path").count() == 2, "{svg}");
    }

    #[test]
    fn outlines_a_field_over_two_lines() {
        let fields =
            [field("a", "int", 0, 4), field("b", "int[2]", 4, 8), field("c", "int", 12, 4)];
        let rows = fields.each_ref().map(|field| row(0, field, None));
        let svg = shown(16, &rows.each_ref().map(|row| (row, Mark::Same)));
        // Two boxes, as nothing of the second line is below the first.
        assert!(svg.contains("d=\"M400 16h352v24h-352zM48 40h352v24h-352z\""), "{svg}");
        let fields = [field("a", "int", 0, 4), field("b", "int[3]", 4, 12)];
        let rows = fields.each_ref().map(|field| row(0, field, None));
        let svg = shown(16, &rows.each_ref().map(|row| (row, Mark::Same)));
        assert!(svg.contains("d=\"M400 16H752V40H752V64H48V40H400z\""), "{svg}");
    }

    #[test]
    fn a_member_that_is_gone_marks_the_union_it_was_in_alone() {
        let [union, inner, other] =
            [field("u", "A::u_t", 0, 8), field("u.x", "int", 0, 4), field("o", "A::o_t", 8, 8)];
        let gone = field("g", "A::g_t", 16, 8);
        let rows = [
            (&row(0, &union, Some(RecordKind::Union)), Mark::Same),
            (&row(1, &inner, None), Mark::Gone),
            (&row(0, &other, Some(RecordKind::Union)), Mark::Same),
            (&row(0, &gone, Some(RecordKind::Union)), Mark::Gone),
            (&row(1, &inner, None), Mark::Gone),
        ];
        let cells = cells(&rows, RecordKind::Struct);
        let changed: Vec<_> =
            cells.iter().map(|cell| (cell.row.path.as_str(), cell.changed)).collect();
        assert_eq!(changed, [("u", true), ("o", false)]);
    }
}

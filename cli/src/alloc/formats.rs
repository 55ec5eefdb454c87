//! `nvabi alloc formats`: what a device takes for an operation.

use nvabi_devmem::{Hint, Use};
use nvabi_pipeline::diagnostic::Report;
use serde::Serialize;

use super::args::AllocFormats;
use super::plan;
use crate::Outcome;
use crate::context::Context;

/// What one device takes.
#[derive(Debug, Serialize)]
struct Formats {
    #[serde(rename = "use")]
    of: Use,
    formats: Vec<Hint>,
}

pub(crate) fn formats(context: &Context<'_>, args: &AllocFormats) -> Result<Outcome, Report> {
    let found = super::found(context);
    let asked = plan::ask_each(context, &found, &args.wanted, |device, of| device.hints_for(of))?;
    let formats = |(of, hints): (Use, Option<Vec<Hint>>)| {
        let formats = hints.unwrap_or_default();
        Formats { of, formats }
    };
    let all: Vec<Formats> = asked.into_iter().map(formats).collect();
    match context.json() {
        true => context.print_json(&all)?,
        false => context.print(&text(&all))?,
    }
    for Formats { of, formats } in &all {
        context.status("Found", &format!("{} formats for {of}", formats.len()));
    }
    let takes_nothing = all.iter().all(|each| each.formats.is_empty());
    Ok(if takes_nothing { Outcome::Different } else { Outcome::Same })
}

/// A table; of several devices one below the other, each under its name.
fn text(all: &[Formats]) -> String {
    match all {
        [one] => table(&one.formats),
        all => {
            let each = all.iter().map(|each| format!("{}\n{}", each.of, table(&each.formats)));
            each.collect::<Vec<_>>().join("\n")
        }
    }
}

fn table(hints: &[Hint]) -> String {
    let side = |most: u32| if most == u32::MAX { "any".to_owned() } else { most.to_string() };
    let line = |hint: &Hint| {
        let (width, height) = (side(hint.max_width), side(hint.max_height));
        format!("{:<10} {width:>9} {height:>10}\n", hint.format.to_string())
    };
    let header = format!("{:<10} {:>9} {:>10}\n", "FORMAT", "MAX WIDTH", "MAX HEIGHT");
    header + &hints.iter().map(line).collect::<String>()
}

#[cfg(test)]
mod tests {
    use nvabi_devmem::{Fourcc, Operation};

    use super::*;

    #[test]
    fn several_devices_are_one_below_the_other() {
        let of = |device: &str, most: Option<u32>| {
            let hint =
                |most| Hint { format: Fourcc::new(b"XR24"), max_width: most, max_height: u32::MAX };
            let of = Use::new(device, Operation::Scanout);
            Formats { of, formats: most.map(hint).into_iter().collect() }
        };
        let all = [of("left", Some(64)), of("right", None)];
        let header = "FORMAT     MAX WIDTH MAX HEIGHT\n";
        let row = "XR24              64        any\n";
        assert_eq!(text(&all[..1]), format!("{header}{row}"));
        assert_eq!(text(&all), format!("left:scanout\n{header}{row}\nright:scanout\n{header}"));
    }
}

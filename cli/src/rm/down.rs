//! `nvabi rm down`: ends a machine.

use std::io;
use std::process::ExitCode;

use super::connection::{self, Kind};
use super::folder::{Folder, State};
use crate::args::RmDown;
use crate::context::Context;

pub(crate) fn down(context: &Context<'_>, args: &RmDown) -> ExitCode {
    match end(&args.name) {
        Ok(()) => {
            context.status("Down", &args.name);
            ExitCode::SUCCESS
        }
        Err(error) => {
            context.status("Failed", &error.to_string());
            ExitCode::from(2)
        }
    }
}

fn end(name: &str) -> io::Result<()> {
    let folder = Folder::of(name)?;
    let stream = folder.connect()?;
    connection::send(&stream, Kind::Down, &[])?;
    // It is closed when the machine's process has ended all programs.
    while connection::receive(&stream)?.is_some() {}
    // The folder goes right after, or before.
    match folder.state()? {
        State::Missing | State::Up => {}
        State::Dead(lock) => folder.remove(lock),
    }
    Ok(())
}

//! Which driver is behind a node.

use std::os::fd::BorrowedFd;

use super::error::{Error, ErrorKind, Result};
use super::escape::{self, CheckVersion};
use crate::driver::installed;

/// `NV_RM_API_VERSION_CMD_STRICT`: is this your version?
const STRICT: u32 = 0;
/// `NV_RM_API_VERSION_CMD_QUERY`: which version are you? Before 530 the number means something else.
const QUERY: u32 = b'2' as u32;

/// The version of the driver behind `/dev/nvidiactl` (`NV_ESC_CHECK_VERSION_STR`).
///
/// Where files tell a version the driver is asked whether that is it: what it answers counts, since a
/// container or a simulator can have the files of another. A driver that is asked for a version that it
/// is not says so in the kernel's log, so that is left for those that know no other way.
pub(super) fn of_node(control: BorrowedFd<'_>) -> Result<String> {
    let said = match installed() {
        Some(version) => ask(control, STRICT, &version)?,
        None => match ask(control, QUERY, "")? {
            version if version.is_empty() => ask(control, STRICT, "")?,
            version => version,
        },
    };
    if said.is_empty() { Err(no_version()) } else { Ok(said) }
}

/// Asks, and returns the reply: the version that was asked for, where that was right.
fn ask(control: BorrowedFd<'_>, cmd: u32, version: &str) -> Result<String> {
    let mut params = CheckVersion { cmd, reply: 0, version: [0; 64] };
    let text = version.as_bytes();
    params.version.get_mut(..text.len()).ok_or_else(no_version)?.copy_from_slice(text);
    // SAFETY: the derive checks the struct against the drivers of the build: integers and text, no address.
    let called = unsafe { escape::call(control, escape::CHECK_VERSION_STR, &mut params) };
    match called {
        // It has written its own, and reports that as this error.
        Err(error) if error.raw_os_error() != Some(libc::EINVAL) || params.reply == 0 => {
            Err(Error::errno_of(&error).call(escape::CHECK_VERSION_STR))
        }
        _ => {
            let end = params.version.iter().position(|byte| *byte == 0).unwrap_or(64);
            Ok(String::from_utf8_lossy(&params.version[..end]).into_owned())
        }
    }
}

fn no_version() -> Error {
    Error::new(ErrorKind::NoVersion).call(escape::CHECK_VERSION_STR)
}

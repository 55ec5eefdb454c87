//! A driver shim in small: its own parameter structs, checked against driver 550, and a look-up of
//! control commands by number.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod params;

use nvabi::call::Info;

/// What driver 550 knows of a command of `NV_ESC_RM_CONTROL`.
///
/// ```
/// let info = shim::command(0x275).expect("driver 550 has it");
/// assert_eq!(info.name, "NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID");
/// assert!(shim::command(0xffff_ffff).is_none());
/// ```
pub fn command(number: u32) -> Option<&'static Info> {
    nvabi::r550::control::ALL.iter().copied().flatten().copied().find(|info| info.number == number)
}

/// What has to be translated before the command's parameters can be handed on.
///
/// ```
/// let info = shim::command(0x275).expect("driver 550 has it");
/// assert_eq!(shim::to_translate(info), "nothing");
/// ```
pub fn to_translate(info: &Info) -> String {
    let fds = info.fds.iter().map(|fd| format!("fd {}", fd.field));
    let pointers = info.pointers.iter().filter(|pointer| !pointer.opaque);
    let pointers = pointers.map(|pointer| format!("pointer {}", pointer.field));
    let all: Vec<String> = fds.chain(pointers).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

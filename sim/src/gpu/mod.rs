//! What a GPU does by itself, a Jetson's and a card's: channels' rings, pushbuffers, and the engines that their
//! methods are for. It reaches memory by a [`Space`] of addresses, and knows nothing of drivers.

mod clock;
mod compute;
mod copy;
mod doorbell;
#[cfg(test)]
mod empty_launches;
mod engine;
mod field;
mod host;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod hostile_launches;
mod kernel;
mod launch;
mod methods;
mod qmd;
#[cfg(test)]
mod reflected_launches;
#[cfg(test)]
mod rig;
mod seen;
mod surface;
mod texture;
#[cfg(test)]
mod texture_launches;
#[cfg(test)]
mod time_launches;

pub(crate) use clock::Clock;
pub(crate) use doorbell::{USERMODE_SIZE, clear, is_rung, set_time, take_token};
pub(crate) use engine::{
    ENTRY, Engine, EngineKind, Fault, Interrupt, KernelSpace, Ring, Space, Trap, in_turn, shorter,
};
pub(crate) use seen::{Bytes, Found, Mappings, Seen};

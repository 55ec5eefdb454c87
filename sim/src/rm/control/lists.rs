//! Commands that list classes and engines. Each has an older form, whose list is a buffer of the caller's, and
//! a newer one, whose list is in the parameters.

use super::gpu::gpu;
use super::{Handler, Target};
use crate::Status;
use crate::rm::Driver;
use crate::rm::failed::Result;
use crate::rm::interface::Params;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV0080_CTRL_CMD_GPU_GET_CLASSLIST" => classes,
        "NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2" => classes_v2,
        "NV2080_CTRL_CMD_GPU_GET_ENGINES" => engines,
        "NV2080_CTRL_CMD_GPU_GET_ENGINES_V2" => engines_v2,
        _ => return None,
    })
}

fn class_list(driver: &Driver, target: &Target<'_>) -> Result<Vec<u32>> {
    gpu(driver, target)?;
    Ok(target.kind.gpu().map_or(Vec::new(), |gpu| driver.class_numbers(gpu)))
}

impl Driver {
    /// What objects of a card can be made of: the classes of the profile that the driver has, by their numbers.
    pub(in crate::rm) fn class_numbers(&self, gpu: usize) -> Vec<u32> {
        let names = self.gpus.get(gpu).map_or(Vec::new(), |gpu| gpu.words("classes"));
        let classes = &self.interface.classes;
        let found = classes.iter().filter(|class| names.contains(&class.name));
        let mut numbers: Vec<u32> = found.map(|class| class.number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The engines of a card by their numbers: those of the profile that the driver has.
    pub(in crate::rm) fn engine_numbers(&self, gpu: usize) -> Vec<u32> {
        let names = self.gpus.get(gpu).map_or(Vec::new(), |gpu| gpu.words("engines"));
        let names = names.iter().map(|name| format!("NV2080_ENGINE_TYPE_{name}"));
        names.filter_map(|name| self.interface.constant(&name)).collect()
    }
}

fn engine_list(driver: &Driver, target: &Target<'_>) -> Result<Vec<u32>> {
    gpu(driver, target)?;
    Ok(target.kind.gpu().map_or(Vec::new(), |gpu| driver.engine_numbers(gpu)))
}

fn classes(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let list = class_list(driver, target)?;
    put_list(target, params, &list, ["numClasses", "classList"])
}

fn classes_v2(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let list = class_list(driver, target)?;
    params.set("numClasses", list.len() as u32)?;
    Ok(params.fill("classList", &list, 0)?)
}

fn engines(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let list = engine_list(driver, target)?;
    put_list(target, params, &list, ["engineCount", "engineList"])
}

fn engines_v2(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let list = engine_list(driver, target)?;
    params.set("engineCount", list.len() as u32)?;
    Ok(params.fill("engineList", &list, 0)?)
}

/// To a buffer of the caller's, which has room for so many; without one, how many there are.
fn put_list(
    target: &Target<'_>,
    params: &mut Params,
    list: &[u32],
    [count, buffer]: [&str; 2],
) -> Result {
    let (room, address) = (params.get(count)?, params.get(buffer)?);
    if address != 0 && room < list.len() as u64 {
        return Err(Status::INVALID_PARAM_STRUCT.into());
    }
    params.set(count, list.len() as u32)?;
    let bytes: Vec<u8> = list.iter().flat_map(|number| number.to_le_bytes()).collect();
    if address != 0 && target.caller.client.write(address, &bytes) < bytes.len() {
        return Err(Status::INVALID_ADDRESS.into());
    }
    Ok(())
}

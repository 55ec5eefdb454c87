//! Commands that fill lists: classes, engines, and values by their indices. Each has an older form, whose
//! list is a buffer of the caller's, and a newer one, whose list is in the parameters.

use std::collections::BTreeMap;

use super::{Handler, Target};
use crate::Status;
use crate::rm::Driver;
use crate::rm::failed::Result;
use crate::rm::gpu;
use crate::rm::interface::Params;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV0080_CTRL_CMD_GPU_GET_CLASSLIST" => classes,
        "NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2" => classes_v2,
        "NV2080_CTRL_CMD_GPU_GET_ENGINES" => engines,
        "NV2080_CTRL_CMD_GPU_GET_ENGINES_V2" => engines_v2,
        "NV2080_CTRL_CMD_FB_GET_INFO" => memory_info,
        "NV2080_CTRL_CMD_FB_GET_INFO_V2" => memory_info_v2,
        "NV2080_CTRL_CMD_GPU_GET_INFO" => gpu_info,
        "NV2080_CTRL_CMD_GPU_GET_INFO_V2" => gpu_info_v2,
        _ => return None,
    })
}

/// What objects can be made of on a GA102, besides what needs none.
const CLASSES: [u32; 20] = [
    0x003e, // NV01_MEMORY_SYSTEM
    0x0040, // NV01_MEMORY_LOCAL_USER
    0x0070, // NV01_MEMORY_VIRTUAL
    0x0073, // NV04_DISPLAY_COMMON
    0x2080, // NV20_SUBDEVICE_0
    0x902d, // FERMI_TWOD_A
    0x9067, // FERMI_CONTEXT_SHARE_A
    0x90f1, // FERMI_VASPACE_A
    0xa06c, // KEPLER_CHANNEL_GROUP_A
    0xa140, // KEPLER_INLINE_TO_MEMORY_B
    0xc461, // TURING_USERMODE_A
    0xc561, // AMPERE_USERMODE_A
    0xc56f, // AMPERE_CHANNEL_GPFIFO_A
    0xc670, // NVC670_DISPLAY
    0xc797, // AMPERE_B
    0xc7b0, // NVC7B0_VIDEO_DECODER
    0xc7b5, // AMPERE_DMA_COPY_B
    0xc7b7, // NVC7B7_VIDEO_ENCODER
    0xc7c0, // AMPERE_COMPUTE_B
    0xc7fa, // NVC7FA_VIDEO_OFA
];

fn class_list(driver: &Driver) -> Vec<u32> {
    CLASSES.into_iter().filter(|class| driver.interface.class(*class).is_some()).collect()
}

/// The engines of a GA102, by their names in the headers.
fn engine_list(driver: &Driver) -> Vec<u32> {
    let names = ["GRAPHICS", "COPY0", "COPY1", "COPY2", "COPY3", "COPY4", "BSP", "MSENC", "SW"];
    let numbers = names.map(|name| format!("NV2080_ENGINE_TYPE_{name}"));
    numbers.iter().filter_map(|name| driver.interface.constant(name)).collect()
}

fn classes(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let list = class_list(driver);
    put_list(target, params, &list, ["numClasses", "classList"])
}

fn classes_v2(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let list = class_list(driver);
    params.set("numClasses", list.len() as u32)?;
    Ok(params.fill("classList", &list, 0)?)
}

fn engines(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let list = engine_list(driver);
    put_list(target, params, &list, ["engineCount", "engineList"])
}

fn engines_v2(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let list = engine_list(driver);
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

/// What a list of values is of.
#[derive(Clone, Copy)]
struct Values {
    /// What the names of its indices begin with.
    prefix: &'static str,
    /// Its length and its entries in the parameters.
    fields: [&'static str; 2],
    /// The value of an index, by the rest of its name.
    value: fn(&Driver, usize, &str) -> Option<u32>,
}

const MEMORY: Values = Values {
    prefix: "NV2080_CTRL_FB_INFO_INDEX_",
    fields: ["fbInfoListSize", "fbInfoList"],
    value: memory_value,
};

const GPU: Values = Values {
    prefix: "NV2080_CTRL_GPU_INFO_INDEX_",
    fields: ["gpuInfoListSize", "gpuInfoList"],
    value: gpu_value,
};

/// Sizes are in KiB.
fn memory_value(driver: &Driver, gpu: usize, name: &str) -> Option<u32> {
    let kib = |bytes: u64| Some((bytes >> 10) as u32);
    match name {
        "RAM_SIZE" | "TOTAL_RAM_SIZE" | "HEAP_SIZE" | "USABLE_RAM_SIZE" => kib(gpu::MEMORY),
        "HEAP_FREE" | "LARGEST_FREE_REGION_SIZE_KB" => kib(driver.free_memory(gpu)),
        "BAR1_SIZE"
        | "MAPPABLE_HEAP_SIZE"
        | "BAR1_AVAIL_SIZE"
        | "BAR1_MAX_CONTIGUOUS_AVAIL_SIZE" => kib(gpu::WINDOW.1),
        "BUS_WIDTH" => Some(384),
        "PARTITION_COUNT" | "FBP_COUNT" => Some(6),
        "FBP_MASK" | "PARTITION_MASK" => Some(0x3f),
        "LTC_COUNT" => Some(12),
        "LTS_COUNT" => Some(48),
        "L2CACHE_SIZE" => Some(6 << 20),
        "RAM_TYPE" => driver.interface.constant("NV2080_CTRL_FB_INFO_RAM_TYPE_GDDR6X"),
        "RAM_LOCATION" | "FB_IS_BROKEN" | "IS_ZERO_FB" | "HEAP_START" | "HEAP_BASE_KB" => Some(0),
        _ => None,
    }
}

fn gpu_value(_: &Driver, _: usize, name: &str) -> Option<u32> {
    match name {
        // 8.6, as NV2080_CTRL_GPU_INFO_SM_VERSION_8_06.
        "GPU_SM_VERSION" => Some(0x806),
        "SYSMEM_ACCESS"
        | "DISPLAY_ENABLED"
        | "GPU_PROFILING_CAPABILITY"
        | "GPU_DEBUGGING_CAPABILITY"
        | "DMABUF_CAPABILITY" => Some(1),
        "GPU_SMC_MODE"
        | "GEMINI_BOARD"
        | "SURPRISE_REMOVAL_POSSIBLE"
        | "GPU_ATS_CAPABILITY"
        | "GPU_FLA_CAPABILITY"
        | "MOBILE_CONFIG_ENABLED"
        | "GPU_SELF_HOSTED_CAPABILITY"
        | "GPU_LOCAL_EGM_CAPABILITY"
        | "CMP_SKU"
        | "IBMNPU_RELAXED_ORDERING"
        | "GLOBAL_POISON_FUSE_ENABLED"
        | "NVSWITCH_PROXY_DETECTED" => Some(0),
        _ => None,
    }
}

fn memory_info(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    fill_buffer(driver, target, params, MEMORY)
}

fn memory_info_v2(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    fill_inline(driver, target, params, MEMORY)
}

fn gpu_info(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    fill_buffer(driver, target, params, GPU)
}

fn gpu_info_v2(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    fill_inline(driver, target, params, GPU)
}

fn fill_inline(
    driver: &mut Driver,
    target: &Target<'_>,
    params: &mut Params,
    values: Values,
) -> Result {
    let [length, list] = values.fields;
    let count = params.get(length)? as usize;
    if count == 0 || count > params.count(list)? {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    let names = indices(driver, values);
    for entry in 0..count {
        let index = params.word(&format!("{list}[{entry}].index"))?;
        let value = value_of(driver, target, values, &names, index)?;
        params.set(&format!("{list}[{entry}].data"), value)?;
    }
    Ok(())
}

fn fill_buffer(
    driver: &mut Driver,
    target: &Target<'_>,
    params: &mut Params,
    values: Values,
) -> Result {
    /// As many as the newest driver has indices, and more.
    const MOST: u64 = 256;
    /// An entry: its index and its value.
    const ENTRY: usize = 8;
    let [length, list] = values.fields;
    let (count, address) = (params.get(length)?, params.get(list)?);
    if count == 0 || count > MOST || address == 0 {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    let mut bytes = vec![0; count as usize * ENTRY];
    if target.caller.client.read(address, &mut bytes) < bytes.len() {
        return Err(Status::INVALID_ADDRESS.into());
    }
    let names = indices(driver, values);
    for entry in bytes.chunks_exact_mut(ENTRY) {
        let index = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let value = value_of(driver, target, values, &names, index)?;
        entry[4..].copy_from_slice(&value.to_le_bytes());
    }
    match target.caller.client.write(address, &bytes) == bytes.len() {
        true => Ok(()),
        false => Err(Status::INVALID_ADDRESS.into()),
    }
}

/// The names of the indices that the driver has, without what they begin with.
fn indices(driver: &Driver, values: Values) -> BTreeMap<u32, Vec<String>> {
    let constants = &driver.interface.constants;
    let mut names: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (name, value) in constants {
        let Some(name) = name.strip_prefix(values.prefix) else { continue };
        // The values of an index have names that begin with its own.
        let is_value = ["_NO", "_YES", "_ENABLED", "_DISABLED"].iter().any(|end| {
            let stem = name.strip_suffix(end);
            stem.is_some_and(|stem| constants.contains_key(&format!("{}{stem}", values.prefix)))
        });
        if name != "MAX" && !is_value {
            names.entry(*value as u32).or_default().push(name.to_owned());
        }
    }
    names
}

/// A value by its index. One that the driver has and we do not know is zero, which is told.
fn value_of(
    driver: &mut Driver,
    target: &Target<'_>,
    values: Values,
    names: &BTreeMap<u32, Vec<String>>,
    index: u32,
) -> Result<u32> {
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    let names = names.get(&index).ok_or(Status::INVALID_ARGUMENT)?;
    let known = names.iter().find_map(|name| (values.value)(driver, gpu, name));
    Ok(known.unwrap_or_else(|| {
        let name = names.iter().min().map_or("", String::as_str);
        let text = format!("{}{name} is unknown and was answered with 0", values.prefix);
        driver.log.diagnose(target.caller.client.process(), "value-not-known", text);
        0
    }))
}

//! Memory that a file stands for, so that another program can have it (`src/nvidia/arch/nvalloc/unix/src/os.c`,
//! `rmobjexportimport.c`).

use std::sync::Arc;

use super::{Handler, Target};
use crate::Status;
use crate::files::FileId;
use crate::rm::alloc::NewObject;
use crate::rm::failed::Result;
use crate::rm::interface::Params;
use crate::rm::memory::{Buffer, Of};
use crate::rm::server::ObjectKind;
use crate::rm::{Driver, Exported, NodeKind};

/// NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM.
const OF_RM: u32 = 1;
/// NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_FLAGS_EMPTY_FD_TRUE, which never gets to the driver.
const EMPTY_FD: u32 = 1;
/// NV_MAX_DEVICES: of no device.
const NO_DEVICE: u32 = 32;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD" => export_one,
        "NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD" => import_one,
        "NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD" => create,
        "NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD" => export_several,
        "NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD" => import_several,
        "NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO" => info,
        _ => return None,
    })
}

fn export_one(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let object = |name: &str| params.word(&format!("object.data.rmObject.{name}"));
    if params.word("flags")? & EMPTY_FD != 0 || params.word("object.type")? != OF_RM {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let memory = memory(driver, target, object("hObject")?)?;
    let file = control_file(driver, target, params)?;
    let device = device(driver, target, object("hDevice")?)?;
    let exported = Exported { memory: vec![Some(memory)], device, metadata: [0; 64] };
    begin(driver, file, exported)
}

fn import_one(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    if params.word("object.type")? != OF_RM {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let file = control_file(driver, target, params)?;
    let buffer = match exported(driver, file)?.memory.as_slice() {
        [Some(buffer)] => buffer.clone(),
        _ => return Err(Status::INVALID_PARAMETER.into()),
    };
    let (parent, wanted) = ("object.data.rmObject.hParent", "object.data.rmObject.hObject");
    let made = import(driver, target, params.word(parent)?, params.word(wanted)?, buffer)?;
    Ok(params.set(wanted, made)?)
}

fn create(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let file = control_file(driver, target, params)?;
    let exported = empty(driver, target, params)?;
    begin(driver, file, exported)
}

fn export_several(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let file = control_file(driver, target, params)?;
    let is_new = exported(driver, file).is_err();
    let mut exported = match exported(driver, file) {
        Ok(exported) => exported.clone(),
        Err(_) => empty(driver, target, params)?,
    };
    let (first, count) = span(params, "objects", exported.memory.len())?;
    for at in 0..count {
        let handle = params.word(&format!("objects[{at}]"))?;
        exported.memory[first + at] = match handle {
            0 => None,
            handle => Some(memory(driver, target, handle)?),
        };
        let gpu = exported.memory[first + at].as_ref().map(|buffer| buffer.gpu as u32);
        if gpu.is_some_and(|gpu| gpu != exported.device) {
            return Err(Status::INVALID_PARAMETER.into());
        }
    }
    if is_new {
        return begin(driver, file, exported);
    }
    let open = driver.files.get_mut(file).ok_or(Status::INVALID_PARAMETER)?;
    open.file.exported = Some(exported);
    Ok(())
}

fn import_several(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let file = control_file(driver, target, params)?;
    let all = exported(driver, file)?.memory.clone();
    let (first, count) = span(params, "objects", all.len())?;
    let parent = params.word("hParent")?;
    let mut made = Vec::new();
    for (at, buffer) in all[first..first + count].iter().enumerate() {
        let (object, kind) = (format!("objects[{at}]"), format!("objectTypes[{at}]"));
        let Some(buffer) = buffer else {
            params.set(&kind, object_type(driver, "NONE")?)?;
            continue;
        };
        let name = if buffer.of == Of::Video { "VIDMEM" } else { "SYSMEM" };
        params.set(&kind, object_type(driver, name)?)?;
        match import(driver, target, parent, params.word(&object)?, buffer.clone()) {
            Ok(handle) => {
                params.set(&object, handle)?;
                made.push(handle);
            }
            Err(failed) => {
                let client = driver.server.client(target.client, target.caller.owner)?;
                made.into_iter().for_each(|handle| client.remove(handle));
                return Err(failed);
            }
        }
    }
    Ok(())
}

fn info(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let file = control_file(driver, target, params)?;
    let exported = exported(driver, file)?;
    params.set("maxObjects", exported.memory.len() as u64)?;
    params.set("deviceInstance", exported.device)?;
    // Whole GPUs; the field is there since 545.
    params.set_if_any("gpuInstanceId", u32::MAX);
    Ok(params.put("metadata", &exported.metadata)?)
}

/// The control file that a command names.
fn control_file(driver: &Driver, target: &Target<'_>, params: &Params) -> Result<FileId> {
    let file = driver.descriptor(target.caller.client, params.word("fd")? as i32);
    let is_control = |file: &FileId| {
        driver.files.get(*file).is_some_and(|open| open.file.node == NodeKind::Control)
    };
    file.filter(is_control).ok_or_else(|| Status::INVALID_PARAMETER.into())
}

/// What a file stands for.
fn exported(driver: &Driver, file: FileId) -> Result<&Exported> {
    let found = driver.files.get(file).and_then(|open| open.file.exported.as_ref());
    found.ok_or_else(|| Status::INVALID_PARAMETER.into())
}

/// `_initializeExportObjectFd`: a file stands for something once.
fn begin(driver: &mut Driver, file: FileId, exported: Exported) -> Result {
    let open = driver.files.get_mut(file).ok_or(Status::INVALID_PARAMETER)?;
    if open.file.exported.is_some() {
        return Err(Status::STATE_IN_USE.into());
    }
    open.file.exported = Some(exported);
    Ok(())
}

/// What a file stands for that is to get its objects.
fn empty(driver: &mut Driver, target: &Target<'_>, params: &Params) -> Result<Exported> {
    let count = params.get("maxObjects")? as usize;
    if count == 0 {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let device = device(driver, target, params.word("hDevice")?)?;
    let mut metadata = [0; 64];
    let given = params.bytes_of("metadata")?;
    let length = given.len().min(metadata.len());
    metadata[..length].copy_from_slice(&given[..length]);
    Ok(Exported { memory: vec![None; count], device, metadata })
}

/// The instance of a device of the caller's.
fn device(driver: &mut Driver, target: &Target<'_>, handle: u32) -> Result<u32> {
    if handle == 0 {
        return Ok(NO_DEVICE);
    }
    let client = driver.server.client(target.client, target.caller.owner)?;
    match client.object(handle)?.kind {
        ObjectKind::Device(gpu) => Ok(gpu as u32),
        _ => Err(Status::INVALID_PARAMETER.into()),
    }
}

/// Memory of the caller's; nothing else is copied.
fn memory(driver: &mut Driver, target: &Target<'_>, handle: u32) -> Result<Arc<Buffer>> {
    let client = driver.server.client(target.client, target.caller.owner)?;
    let memory = client.object(handle)?.kind.memory();
    Ok(memory.ok_or(Status::INVALID_ARGUMENT)?.clone())
}

/// `RmImportObject`: the caller gets an object of its own for the memory.
fn import(
    driver: &mut Driver,
    target: &Target<'_>,
    parent: u32,
    wanted: u32,
    buffer: Arc<Buffer>,
) -> Result<u32> {
    let client = driver.server.client(target.client, target.caller.owner)?;
    client.add_memory(NewObject { client: target.client, parent, wanted }, buffer)
}

/// From where on, and how many, of as many as there are.
fn span(params: &Params, objects: &str, there: usize) -> Result<(usize, usize)> {
    let (first, count) = (params.get("index")? as usize, params.get("numObjects")? as usize);
    if count > params.count(objects)? {
        return Err(Status::INVALID_PARAMETER.into());
    }
    match first + count <= there {
        true => Ok((first, count)),
        false => Err(Status::OUT_OF_RANGE.into()),
    }
}

fn object_type(driver: &Driver, name: &str) -> Result<u32> {
    let name = format!("NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_TYPE_{name}");
    driver.interface.constant(&name).ok_or_else(|| Status::NOT_SUPPORTED.into())
}

//! The structs that this shim passes on, each checked against driver 550 where it stands.
//!
//! They are the shim's own: other names, other nesting, only what it needs. What the driver puts at
//! another place, or has in another width, does not compile.
#![allow(non_snake_case, non_camel_case_types, reason = "some bear the driver's names")]
#![allow(missing_docs, reason = "the driver's headers say what the fields mean")]

use nvabi::{Handle, NvProxy, P64, Uuid};

/// A handle of a type that the shim chose itself; it may stand wherever the driver has an NvHandle.
#[derive(NvProxy, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[nvproxy(name = "NvHandle")]
#[repr(transparent)]
pub struct ObjectId(pub u32);

/// `NV_ESC_RM_CONTROL`, under Rust names.
#[derive(NvProxy, Clone, Copy, Debug, Default)]
#[nvproxy(name = "NVOS54_PARAMETERS")]
#[repr(C)]
pub struct Control {
    #[nvproxy(name = "hClient")]
    pub client: Handle,
    #[nvproxy(name = "hObject")]
    pub object: Handle,
    #[nvproxy(name = "cmd")]
    pub command: u32,
    pub flags: u32,
    pub params: P64,
    #[nvproxy(name = "paramsSize")]
    pub params_size: u32,
    pub status: u32,
}

/// `NV_ESC_RM_ALLOC` in its short form, under the driver's names: then nothing need be said.
#[derive(NvProxy, Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NVOS21_PARAMETERS {
    pub hRoot: Handle,
    pub hObjectParent: Handle,
    pub hObjectNew: Handle,
    pub hClass: u32,
    pub pAllocParms: P64,
    pub paramsSize: u32,
    pub status: u32,
}

/// `NV_ESC_RM_ALLOC` in its long form; the last four bytes are padding in C too.
#[derive(NvProxy, Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NVOS64_PARAMETERS {
    pub hRoot: Handle,
    pub hObjectParent: Handle,
    pub hObjectNew: Handle,
    pub hClass: u32,
    pub pAllocParms: P64,
    pub pRightsRequested: P64,
    pub paramsSize: u32,
    pub flags: u32,
    pub status: u32,
    pub _pad: u32,
}

/// `NV_ESC_RM_FREE`, with the shim's own handle type; only one field has a name of its own.
#[derive(NvProxy, Clone, Copy, Debug, Default)]
#[nvproxy(name = "NVOS00_PARAMETERS")]
#[repr(C)]
pub struct Free {
    pub hRoot: ObjectId,
    pub hObjectParent: ObjectId,
    #[nvproxy(name = "hObjectOld")]
    pub object: ObjectId,
    pub status: u32,
}

/// `NV_ESC_RM_MAP_MEMORY`. The driver nests an NVOS33_PARAMETERS; here its fields are spelled out.
#[derive(NvProxy, Clone, Copy, Debug, Default)]
#[nvproxy(name = "nv_ioctl_nvos33_parameters_with_fd", flatten)]
#[repr(C)]
pub struct MapMemory {
    #[nvproxy(name = "hClient")]
    pub client: Handle,
    #[nvproxy(name = "hDevice")]
    pub device: Handle,
    #[nvproxy(name = "hMemory")]
    pub memory: Handle,
    pub _pad: u32,
    pub offset: u64,
    pub length: u64,
    #[nvproxy(name = "pLinearAddress")]
    pub linear_address: P64,
    pub status: u32,
    pub flags: u32,
    pub fd: i32,
    pub _pad_end: u32,
}

/// `NV_ESC_RM_VID_HEAP_CONTROL`. `function` chooses among twelve members of a union, all of which
/// the shim copies as bytes.
#[derive(NvProxy, Clone, Copy, Debug)]
#[nvproxy(name = "NVOS32_PARAMETERS", flatten)]
#[repr(C)]
pub struct VidHeapControl {
    #[nvproxy(name = "hRoot")]
    pub root: Handle,
    #[nvproxy(name = "hObjectParent")]
    pub object_parent: Handle,
    pub function: u32,
    #[nvproxy(name = "hVASpace")]
    pub va_space: Handle,
    #[nvproxy(name = "ivcHeapNumber")]
    pub ivc_heap_number: i16,
    pub _pad: [u8; 2],
    pub status: u32,
    pub total: u64,
    pub free: u64,
    pub data: [u8; 144],
}

/// Parameters of the memory classes.
#[derive(NvProxy, Clone, Copy, Debug, Default)]
#[nvproxy(name = "NV_MEMORY_ALLOCATION_PARAMS")]
#[repr(C)]
pub struct MemoryAllocation {
    pub owner: u32,
    pub r#type: u32,
    pub flags: u32,
    pub width: u32,
    pub height: u32,
    pub pitch: i32,
    pub attr: u32,
    pub attr2: u32,
    pub format: u32,
    #[nvproxy(name = "comprCovg")]
    pub compression_coverage: u32,
    #[nvproxy(name = "zcullCovg")]
    pub zcull_coverage: u32,
    #[nvproxy(name = "rangeLo")]
    pub range_low: u64,
    #[nvproxy(name = "rangeHi")]
    pub range_high: u64,
    pub size: u64,
    pub alignment: u64,
    pub offset: u64,
    pub limit: u64,
    pub address: P64,
    #[nvproxy(name = "ctagOffset")]
    pub tag_offset: u32,
    #[nvproxy(name = "hVASpace")]
    pub va_space: Handle,
    #[nvproxy(name = "internalflags")]
    pub internal_flags: u32,
    pub tag: u32,
    #[nvproxy(name = "numaNode")]
    pub numa_node: i32,
}

/// `UVM_REGISTER_GPU_VASPACE`, which takes a file descriptor and names the GPU by its UUID.
#[derive(NvProxy, Clone, Copy, Debug, Default)]
#[nvproxy(name = "UVM_REGISTER_GPU_VASPACE_PARAMS")]
#[repr(C)]
pub struct RegisterGpuVaSpace {
    #[nvproxy(name = "gpuUuid")]
    pub gpu: Uuid,
    #[nvproxy(name = "rmCtrlFd")]
    pub control_fd: i32,
    #[nvproxy(name = "hClient")]
    pub client: Handle,
    #[nvproxy(name = "hVaSpace")]
    pub va_space: Handle,
    #[nvproxy(name = "rmStatus")]
    pub status: u32,
}

/// Parameters of `NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID`: the UUID comes as text.
#[derive(NvProxy, Clone, Copy, Debug)]
#[nvproxy(name = "NV0000_CTRL_GPU_GET_UUID_FROM_GPU_ID_PARAMS")]
#[repr(C)]
pub struct UuidFromGpuId {
    #[nvproxy(name = "gpuId")]
    pub gpu_id: u32,
    pub flags: u32,
    #[nvproxy(name = "gpuUuid")]
    pub uuid: [u8; 256],
    #[nvproxy(name = "uuidStrLen")]
    pub uuid_len: u32,
}

/// `UVM_TOOLS_GET_PROCESSOR_UUID_TABLE` as the branch began. It grew within the branch, so the tag
/// has to be said.
#[derive(NvProxy, Clone, Copy, Debug, Default)]
#[nvproxy(name = "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", since = "550.40.07")]
#[repr(C)]
pub struct UuidTable {
    #[nvproxy(name = "tablePtr")]
    pub table: u64,
    pub count: u32,
    #[nvproxy(name = "rmStatus")]
    pub status: u32,
}

/// The same call from 550.40.53 on: the old struct, and what was added to it.
#[derive(NvProxy, Clone, Copy, Debug, Default)]
#[nvproxy(name = "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", since = "550.40.53", flatten)]
#[repr(C)]
pub struct UuidTableV2 {
    pub base: UuidTable,
    pub version: u32,
    pub _pad: u32,
}

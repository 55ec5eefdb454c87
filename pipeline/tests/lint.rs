//! What lint says of roles: each rule is broken once, in the specs as they are, at one tag.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::{lint, lock};

const TAG: &str = "550.90.07";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi-specs")
}

/// The specs that 550 is made of.
fn specs() -> Vec<(String, String, String)> {
    let names = ["515", "520", "525", "530", "535", "545", "550"].map(|n| format!("driver-{n}"));
    let read = |name: String| {
        let text = std::fs::read_to_string(folder().join(format!("{name}.toml"))).unwrap();
        (name.clone(), format!("{name}.toml"), text)
    };
    names.map(read).to_vec()
}

/// What is broken, where, and what is complained of: code and text.
type Broken = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const BROKEN: &[Broken] = &[
    // Names: in the record itself, 64 bits wide, and behind NvP64.
    (
        "515",
        "fds = [\"ctl_fd\"], files = { ctl_fd = \"nvidiactl\" }, ",
        "",
        &[(
            "lint-hidden-role",
            "declared simple, but its field `ctl_fd` looks like a file descriptor",
        )],
    ),
    (
        "530",
        "fds = [\"devDescriptor\"], files = { devDescriptor = \"nvidia\" }, ",
        "",
        &[("lint-hidden-role", "`devDescriptor` looks like a file descriptor")],
    ),
    (
        "550",
        "fds = [\"capDescriptor\", \"pOsEvent\"], ",
        "fds = [\"pOsEvent\"], ",
        &[(
            "lint-hidden-role",
            "`capDescriptor` that looks like a file descriptor and has no role",
        )],
    ),
    (
        "515",
        "fds = [\"data\"], files = { data = \"nvidia-frontend\" }, ",
        "",
        &[("lint-hidden-role", "`NV01_EVENT_OS_EVENT` is declared simple, but its field `data`")],
    ),
    // Members of unions, and integers that are called like pointers.
    (
        "530",
        "{ field = \"data.AllocSize.address\", opaque = true, dir = \"out\" }, ",
        "",
        &[("lint-hidden-role", "`data.AllocSize.address` that looks like a pointer")],
    ),
    (
        "550",
        "pointers = [{ field = \"tablePtr\", len = \"count\", of = \"NvProcessorUuid\", dir = \"out\" }], ",
        "",
        &[("lint-hidden-role", "`tablePtr` looks like a pointer")],
    ),
    ("515", "plain = [\"putPtr\"], ", "", &[("lint-hidden-role", "`putPtr` looks like a pointer")]),
    // The driver's list has the role that is missing.
    (
        "515",
        "pointers = [{ field = \"regOps\", len = \"regOpCount\", of = \"NV2080_CTRL_GPU_REG_OP\", dir = \"inout\" }], ",
        "",
        &[
            ("lint-hidden-role", "`regOps` looks like a pointer"),
            ("lint-pointer", "the driver follows `regOps`, but the spec does not"),
        ],
    ),
    (
        "515",
        "{ field = \"engineList\", len = \"engineCount\", of = \"NvU32\", dir = \"inout\" }",
        "{ field = \"engineList\", opaque = true, dir = \"inout\" }",
        &[("lint-pointer", "the driver follows `engineList`, but the spec does not")],
    ),
    (
        "515",
        "len = \"engineCount\", of = \"NvU32\", dir",
        "len = \"engineCount\", dir",
        &[("lint-pointer-length", "behind `engineList` the driver has engineCount of NvU32")],
    ),
    (
        "515",
        "len = \"engineCount\", of = \"NvU32\", dir",
        "len = 4, of = \"NvU32\", dir",
        &[("lint-pointer-length", "behind `engineList` the driver has engineCount of NvU32")],
    ),
    (
        "515",
        "len = \"engineCount\", of = \"NvU32\", dir = \"inout\"",
        "len = \"engineCount\", of = \"NvU32\", dir = \"in\"",
        &[("lint-pointer-direction", "`engineList` is copied inout, the spec says in")],
    ),
    (
        "550",
        "{ field = \"busEgmPeerIds\", len = \"gpuCount * gpuCount\"",
        "{ field = \"busEgmPeerIds\", len = \"gpuCount\"",
        &[(
            "lint-pointer-length",
            "behind `busEgmPeerIds` the driver has gpuCount*gpuCount of NvU32",
        )],
    ),
    // Its tables have other parameters.
    (
        "515",
        "NV01_DEVICE_0 = { params = \"NV0080_ALLOC_PARAMETERS\"",
        "NV01_DEVICE_0 = { params = \"NV2080_ALLOC_PARAMETERS\"",
        &[(
            "lint-parameters",
            "takes `NV0080_ALLOC_PARAMETERS`, as the driver has it in its resource list",
        )],
    ),
    (
        "515",
        "NV04_DISPLAY_COMMON = { parameterless = true",
        "NV04_DISPLAY_COMMON = { params = \"NV2080_ALLOC_PARAMETERS\"",
        &[("lint-parameters", "`NV04_DISPLAY_COMMON` takes no parameters")],
    ),
    (
        "515",
        "params = \"NV2080_CTRL_GPU_GET_ID_PARAMS\"",
        "parameterless = true",
        &[("lint-parameters", "in its number's message id")],
    ),
    // Handles, by type and by name, and what their names mean.
    ("515", "\"hMem\",", "", &[("lint-handle", "`NVENC_SW_SESSION` has a field `hMem`")]),
    (
        "515",
        "none = [\"hMaxResolution\", \"hResolution\"]",
        "none = [\"hMaxResolution\"]",
        &[
            (
                "lint-handle",
                "`NV2080_CTRL_GPU_GET_NVFBC_SW_SESSION_INFO` has a field `sessionInfoTbl.hResolution`",
            ),
            ("lint-handle", "`NVENC_SW_SESSION` has a field `hResolution`"),
        ],
    ),
    (
        "515",
        "\"handles\", ",
        "",
        &[
            ("lint-handle", "`NV00E0_CTRL_CMD_IMPORT_MEM` has a field `handles`"),
            ("lint-handle", "`NV_ESC_EXPORT_TO_DMABUF_FD` has a field `handles`"),
        ],
    ),
    // Unions.
    (
        "515",
        "HwFree = \"NVOS32_FUNCTION_HW_FREE\"\n",
        "",
        &[("lint-union", "when the union holds `data.HwFree.hResourceHandle`")],
    ),
    (
        "515",
        "by = \"function\"",
        "by = \"functions\"",
        &[("lint-unknown-field", "chosen by `functions`, which is no field")],
    ),
    (
        "515",
        "\"NVOS32_FUNCTION_HW_FREE\"",
        "\"NVOS32_FUNCTION_HW_FEE\"",
        &[("lint-unknown-item", "no constant `NVOS32_FUNCTION_HW_FEE`")],
    ),
    // Paths and lengths lead to something.
    (
        "550",
        "{ field = \"busEgmPeerIds\", len = \"gpuCount * gpuCount\"",
        "{ field = \"busEgmPeerIds\", len = \"gpuCount * gpus\"",
        &[
            ("lint-pointer-length", "behind `busEgmPeerIds`"),
            ("lint-unknown-length", "`gpus` is neither a field nor a constant"),
        ],
    ),
    // What lies behind pointers is looked at as the parameters are, and what lies behind that.
    (
        "515",
        "of = \"NvUnixEvent\"",
        "of = \"NVOS54_PARAMETERS\"",
        &[("lint-hidden-role", "a field `pEvent->params` that looks like a pointer")],
    ),
    (
        "515",
        "of = \"NvUnixEvent\"",
        "of = \"nv_ioctl_register_fd_t\"",
        &[("lint-hidden-role", "a field `pEvent->ctl_fd` that looks like a file descriptor")],
    ),
    (
        "515",
        "of = \"NvUnixEvent\"",
        "of = \"nv_ioctl_register_fd_t\", fds = [\"ctlfd\"], plain = [\"ctl_fd\"]",
        &[("lint-unknown-field", "`NV_ESC_RM_GET_EVENT_DATA` has no field `pEvent->ctlfd`")],
    ),
    (
        "515",
        "of = \"NvUnixEvent\"",
        "of = \"NVOS54_PARAMETERS\", pointers = [{ field = \"params\", len = \"paramSize\", of = \"NVOS54_PARAMETERS\" }]",
        &[
            ("lint-hidden-role", "a field `pEvent->params->params` that looks like a pointer"),
            ("lint-pointer-role", "which way to copy what is behind `pEvent->params`"),
            ("lint-unknown-length", "`paramSize` is neither a field nor a constant"),
        ],
    ),
    (
        "515",
        "of = \"NvUnixEvent\"",
        "of = \"NvP64\"",
        &[("lint-hidden-role", "a field `pEvent->.` that looks like a pointer")],
    ),
    (
        "515",
        "\"pChannelHandleList\",",
        "",
        &[("lint-handle", "a field `pChannelHandleList->.` that names an object")],
    ),
    // Only a union's members have a condition.
    (
        "515",
        "[handles]\nclient",
        "[unions.\"NVOS54_PARAMETERS.cmd\"]\nby = \"flags\"\nmembers = { x = \"1\" }\n[handles]\nclient",
        &[("lint-unknown-union", "`NVOS54_PARAMETERS.cmd` is no union, and so always holds")],
    ),
    // What is disputed is there.
    (
        "515",
        "hMemory = { theirs = \"number\", evidence = \"ctrl83",
        "hMemori = { theirs = \"number\", evidence = \"ctrl83",
        &[("lint-unknown-field", "`NV83DE_CTRL_CMD_DEBUG_READ_MEMORY` has no field `hMemori`")],
    ),
    (
        "515",
        "[disputed.NV83DE_CTRL_CMD_DEBUG_READ_MEMORY]",
        "[disputed.NV83DE_CTRL_CMD_DEBUG_READ_MEMORIES]",
        &[("lint-unknown-item", "has no call `NV83DE_CTRL_CMD_DEBUG_READ_MEMORIES`")],
    ),
    // What a proxy has to know of a pointer that the driver follows.
    (
        "515",
        "{ field = \"pEvent\", len = 1, of",
        "{ field = \"pEvent\", of",
        &[("lint-pointer-role", "no role says the length of what is behind `pEvent`")],
    ),
    (
        "515",
        "of = \"NvUnixEvent\", dir = \"out\" }",
        "of = \"NvUnixEvent\" }",
        &[("lint-pointer-role", "no role says which way to copy what is behind `pEvent`")],
    ),
    (
        "515",
        "control = \"cmd\", len = \"paramsSize\", ",
        "",
        &[("lint-pointer-role", "no role says the length of what is behind `params`")],
    ),
    (
        "515",
        "control = \"cmd\"",
        "control = \"command\"",
        &[("lint-unknown-length", "`command` is neither a field nor a constant")],
    ),
    (
        "515",
        "handles = { hObject = \"new\" }",
        "handles = { hObjekt = \"new\" }",
        &[("lint-unknown-field", "`NV_ESC_RM_DUP_OBJECT` has no field `hObjekt`")],
    ),
    (
        "515",
        "plain = [\"vMemPtr\"]",
        "plain = [\"vMemPt\", \"vMemPtr\"]",
        &[("lint-unknown-field", "has no field `vMemPt`")],
    ),
    (
        "515",
        "fds = [\"rmCtrlFd\"], files = { rmCtrlFd",
        "fds = [\"rmCtrlFd\"], files = { hClient",
        &[("lint-unknown-fd", "`hClient` of UVM_REGISTER_GPU_VASPACE is not among its `fds`")],
    ),
];

fn parsed(files: &[(String, String, String)]) -> Result<Spec, Report> {
    Ok(Spec::parse_all(files)?.into_iter().find(|spec| spec.driver == "550").unwrap())
}

#[test]
fn every_rule_of_roles_complains_of_what_breaks_it() {
    let (locked, _) = lock::read(&folder().join("lock")).unwrap();
    let tag = TAG.parse().unwrap();
    let sound = lint::lint_tag(&locked, &parsed(&specs()).unwrap(), &tag);
    assert_eq!(sound.to_string(), "");
    for (driver, from, to, expected) in BROKEN {
        let mut files = specs();
        let file = files.iter_mut().find(|(name, ..)| *name == format!("driver-{driver}")).unwrap();
        assert!(file.2.contains(from), "driver-{driver} has no {from}");
        file.2 = file.2.replacen(from, to, 1);
        let found = lint::lint_tag(&locked, &parsed(&files).unwrap(), &tag).diagnostics;
        let mut told: Vec<_> = found.iter().map(|d| (d.code, d.message.as_str())).collect();
        told.sort_unstable();
        let fits = |(told, expected): (&(&str, &str), &(&str, &str))| {
            told.0 == expected.0 && told.1.contains(expected.1)
        };
        let all = told.len() == expected.len() && told.iter().zip(*expected).all(fits);
        assert!(all, "{from} → {to}: {told:#?}");
    }
}

#[test]
fn a_missing_role_is_proposed_as_the_driver_has_it() {
    let (locked, _) = lock::read(&folder().join("lock")).unwrap();
    let mut files = specs();
    let role = "{ field = \"regOps\", len = \"regOpCount\", of = \"NV2080_CTRL_GPU_REG_OP\", dir = \"inout\" }";
    files[0].2 = files[0].2.replacen(&format!("pointers = [{role}], "), "", 1);
    let found = lint::lint_tag(&locked, &parsed(&files).unwrap(), &TAG.parse().unwrap());
    assert_eq!(found.to_string().matches(&format!("pointers = [{role}]")).count(), 2, "{found}");
}

#[test]
fn a_pointer_leads_to_one_thing() {
    let mut files = specs();
    files[0].2 =
        files[0].2.replacen("control = \"cmd\", ", "control = \"cmd\", of = \"NvU8\", ", 1);
    let told = parsed(&files).unwrap_err().to_string();
    assert!(told.contains("`params` points to one thing alone"), "{told}");
}

//! What the simulator itself adds: faults, diagnostics, what is left, and more GPUs.

use libc::{EMFILE, EPERM};

use crate::channel::Rig;
use crate::client::status::*;
use crate::client::*;
use crate::{diagnostics, passes_in_child, simulate};

const TAG: &str = "550.163.01";

fn ids(client: &Client) -> u32 {
    let mut params = Struct::new("NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS");
    client.control(client.handle, "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS", &mut params)
}

#[test]
fn faults_are_statuses_or_error_numbers() {
    let faults = [
        "--fault",
        "GPU_GET_ATTACHED_IDS:2:NV_ERR_NO_MEMORY",
        "--fault",
        "NV01_DEVICE_0:1:NV_ERR_INSUFFICIENT_PERMISSIONS",
        "--fault",
        "NV_ESC_CARD_INFO:1:NV_ERR_NO_MEMORY",
        "--fault",
        "NV_ESC_RM_FREE:1:EPERM",
        "--fault",
        "UVM_INITIALIZE:1:NV_ERR_NO_MEMORY",
        "--fault",
        "open:5:EMFILE",
        "--fault",
        "UVM_MIGRATE:1:NV_ERR_NO_MEMORY",
    ];
    let report =
        simulate("rm_sim::report::faults_are_statuses_or_error_numbers", TAG, &faults, || {
            let client = Client::new();
            assert_eq!([ids(&client), ids(&client), ids(&client)], [OK, NO_MEMORY, OK]);
            open("/dev/nvidia0").unwrap();
            let device = || client.alloc(client.handle, DEVICE, Some(&mut device_params(0)));
            assert_eq!(device(), Err(INSUFFICIENT_PERMISSIONS));
            assert!(device().is_ok());
            let mut cards = vec![0; 72 * 32];
            let request = request(200, cards.len());
            assert_eq!(raw(client.fd, request, &mut cards), Err(libc::EINVAL), "it has no status");
            let mut free = Struct::new("NVOS00_PARAMETERS");
            assert_eq!(escape(client.fd, 0x29, &mut free), Err(EPERM));
            let uvm_file = open("/dev/nvidia-uvm").unwrap();
            let mut args = Struct::new("UVM_INITIALIZE_PARAMS");
            assert_eq!(uvm(uvm_file, "UVM_INITIALIZE", &mut args), NO_MEMORY);
            assert_eq!(uvm(uvm_file, "UVM_INITIALIZE", &mut args), OK);
            open("/dev/nvidiactl").unwrap();
            assert_eq!(open("/dev/nvidiactl"), Err(EMFILE));
        });
    assert_eq!(report["unmet_faults"][0], "UVM_MIGRATE:1:NV_ERR_NO_MEMORY");
    let ids = &report["calls"]["NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS"];
    assert_eq!((&ids["total"], &ids["errors"]["NV_ERR_NO_MEMORY"]), (&3.into(), &1.into()));
}

#[test]
fn the_last_write_of_a_program_counts() {
    let name = "rm_sim::report::the_last_write_of_a_program_counts";
    let report = simulate(name, TAG, &[], || {
        open("/dev/nvidia0").unwrap();
        std::fs::write("/sys/bus/pci/devices/0000:01:00.0/remove", "1").unwrap();
    });
    // The device is still open when the program exits, and the write comes before that.
    let text = "GPU 0 is in use: it was not removed".to_owned();
    assert_eq!(diagnostics(&report), [("in-use".to_owned(), text)]);
}

#[test]
fn what_is_not_played_is_told_by_name() {
    let name = "rm_sim::report::what_is_not_played_is_told_by_name";
    let report = simulate(name, TAG, &[], || {
        let (client, _, subdevice) = Client::with_device();
        let mut params = Struct::new("NV0000_CTRL_SYSTEM_GET_CPU_INFO_PARAMS");
        client.control(client.handle, "NV0000_CTRL_CMD_SYSTEM_GET_CPU_INFO", &mut params);
        client.control_with(client.handle, 0x7ff, 0, 0);
        let mut context = Struct::new("NV_CONTEXT_DMA_ALLOCATION_PARAMS");
        client.alloc(client.handle, 0x2, Some(&mut context)).unwrap_err();
        client.alloc(client.handle, 0x1234, None).unwrap_err();
        let mut bind = Struct::new("NVOS49_PARAMETERS");
        escape(client.fd, 0x59, &mut bind).unwrap();
        raw(client.fd, request(0x77, 8), &mut [0; 8]).unwrap_err();
        // NETLIST_REV0, which nobody asks for.
        let mut values =
            Struct::new("NV2080_CTRL_GPU_GET_INFO_V2_PARAMS").with("gpuInfoListSize", 1);
        values.set("gpuInfoList[0].index", 0x12);
        client.control(subdevice, "NV2080_CTRL_CMD_GPU_GET_INFO_V2", &mut values);
    });
    let told = diagnostics(&report);
    for (code, text) in [
        ("not-simulated", "NV0000_CTRL_CMD_SYSTEM_GET_CPU_INFO is not simulated"),
        ("unknown-call", "command 0x000007ff of 0 bytes is unknown to 550.163.01"),
        ("not-simulated", "class NV01_CONTEXT_DMA is not simulated"),
        ("unknown-call", "class 0x1234 is unknown to 550.163.01"),
        ("not-simulated", "NV_ESC_RM_BIND_CONTEXT_DMA is not simulated"),
        ("unknown-call", "escape 0x77 is unknown to 550.163.01"),
        (
            "value-not-known",
            "NV2080_CTRL_GPU_INFO_INDEX_NETLIST_REV0 is unknown and was answered with 0",
        ),
    ] {
        assert!(told.contains(&(code.to_owned(), text.to_owned())), "no {text} in {told:#?}");
    }
    assert_eq!(told.len(), 7);
}

/// What no profile has: memory that several GPUs have at once, and the engines of videos.
#[test]
fn multicast_fabric_and_video_are_refused_by_name() {
    let name = "rm_sim::report::multicast_fabric_and_video_are_refused_by_name";
    let report = simulate(name, TAG, &["--gpu", "h100"], || {
        let (client, device, subdevice) = Client::with_device();
        for (parent, class, record) in [
            (client.handle, 0xfd, "NV00FD_ALLOCATION_PARAMETERS"),
            (subdevice, 0xf8, "NV00F8_ALLOCATION_PARAMETERS"),
            (device, 0xb8b0, "NV_BSP_ALLOCATION_PARAMETERS"),
            (device, 0xc4b7, "NV_MSENC_ALLOCATION_PARAMETERS"),
        ] {
            let made = client.alloc(parent, class, Some(&mut Struct::new(record)));
            assert_eq!(made, Err(NOT_SUPPORTED), "{record}");
        }
    });
    let told = diagnostics(&report);
    let texts: Vec<&str> = told.iter().map(|(_, text)| text.as_str()).collect();
    let names = [
        "NV_MEMORY_MULTICAST_FABRIC",
        "NV_MEMORY_FABRIC",
        "NVB8B0_VIDEO_DECODER",
        "NVC4B7_VIDEO_ENCODER",
    ];
    assert_eq!(texts, names.map(|name| format!("class {name} is not simulated")));
}

#[test]
fn what_is_of_another_driver_is_told() {
    let report = simulate("rm_sim::report::what_is_of_another_driver_is_told", TAG, &[], || {
        let client = Client::new();
        let params = [0_u8; 100];
        client.control_with(client.handle, 0x13e, params.as_ptr() as u64, 100);
        raw(client.fd, request(0x2a, 8), &mut [0; 8]).unwrap_err();
        let mut version = Struct::new("nv_ioctl_rm_api_version_t");
        version.bytes[8..17].copy_from_slice(b"535.43.02");
        raw(client.fd, request(210, version.bytes.len()), &mut version.bytes).unwrap_err();
    });
    let told = diagnostics(&report);
    let texts: Vec<&str> = told.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2: the caller passes 100 bytes, 550.163.01 has 776 bytes: \
             it is built for another driver",
            "NV_ESC_RM_CONTROL: the caller passes 8 bytes, 550.163.01 has 32 bytes: it is built for another driver",
            "the caller is of version \"535.43.02\", the driver is \"550.163.01\"",
        ]
    );
}

#[test]
fn what_a_program_leaves_is_listed() {
    let report = simulate("rm_sim::report::what_a_program_leaves_is_listed", TAG, &[], || {
        let (client, device, _) = Client::with_device();
        client.alloc(device, SYSTEM_MEMORY, Some(&mut memory_params(SYSTEM_MEMORY, 1))).unwrap();
    });
    let leaks = report["leaks"].as_array().cloned().unwrap_or_default();
    let left: Vec<String> = leaks
        .iter()
        .map(|leak| format!("{} × {}", leak["count"], leak["kind"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(
        left,
        [
            "1 × RM client",
            "1 × RM device",
            "1 × RM memory",
            "1 × RM subdevice",
            "1 × nvidia",
            "1 × nvidiactl"
        ]
    );
}

/// What was rung for goes with its channel, whether the program frees them or ends.
#[test]
fn a_doorbell_rung_last_is_not_told() {
    let name = "rm_sim::report::a_doorbell_rung_last_is_not_told";
    let report = simulate(name, TAG, &[], || {
        for turn in 0..200 {
            let rung = || {
                let mut rig = Rig::new();
                rig.submit(&[]);
                if turn % 2 == 0 {
                    assert_eq!(rig.client.free(rig.client.handle), OK);
                }
            };
            assert!(passes_in_child(&rung));
        }
    });
    let unknown = diagnostics(&report).into_iter().find(|(code, _)| code == "unknown-token");
    assert_eq!(unknown, None);
}

#[test]
fn machines_have_as_many_gpus_as_asked_for() {
    let name = "rm_sim::report::machines_have_as_many_gpus_as_asked_for";
    let report = simulate(name, TAG, &["--gpus", "3"], || {
        for path in ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"] {
            open(path).unwrap();
        }
        let client = Client::new();
        let mut params = Struct::new("NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS");
        client.control(client.handle, "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS", &mut params);
        let ids: Vec<u64> = (0..4).map(|at| params.get(&format!("gpuIds[{at}]"))).collect();
        assert_eq!(ids, [0x100, 0x200, 0x300, 0xffff_ffff]);
        for instance in 0..3 {
            client.alloc(client.handle, DEVICE, Some(&mut device_params(instance))).unwrap();
        }
    });
    assert_eq!(report["diagnostics"], serde_json::json!([]));
}

#[test]
fn what_cannot_be_played_is_refused() {
    let refused = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_nvabi"));
        let output = command.args(["rm", "sim"]).args(args).args(["--", "/bin/true"]).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, told) = refused(&["--tag", "550.1.2"]);
    assert_eq!(status, Some(2));
    assert!(told.contains("the lock has no tag 550.1.2"), "{told}");
    let (status, told) = refused(&["--fault", "GET_ATACHED_IDS:1:NV_ERR_NO_MEMORY"]);
    assert_eq!(status, Some(2));
    assert!(told.contains("no simulated call is named `GET_ATACHED_IDS`"), "{told}");
    let (status, told) = refused(&["--fault", "open:1:NV_ERR_NOTHING"]);
    assert_eq!(status, Some(2));
    assert!(told.contains("unknown status `NV_ERR_NOTHING`"), "{told}");
    assert_eq!(refused(&["--gpus", "9"]).0, Some(2));
    let (status, told) = refused(&["--version", "580.159.03"]);
    assert_eq!(status, Some(2));
    assert!(told.contains("--tag"), "whose interface it has must be said: {told}");
    let (status, told) = refused(&["--tag", "580.142", "--version", "580.x"]);
    assert_eq!(status, Some(2));
    assert!(told.contains("expected numbers separated by points"), "{told}");
}

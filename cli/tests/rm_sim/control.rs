//! Control commands.

use crate::channel::Rig;
use crate::client::status::*;
use crate::client::*;
use crate::rules;

const NO_GPU: u64 = 0xffff_ffff;
const UUID: &[u8] = b"nvabi-simulated\0";
const UUID_TEXT: &str = "GPU-6e766162-692d-7369-6d75-6c6174656400";
const BINARY: u64 = 2;

/// A command of the client itself.
fn ask(client: &Client, name: &str, params: &mut Struct) -> u32 {
    client.control(client.handle, name, params)
}

/// Whether the driver has a command.
fn has(name: &str) -> bool {
    let all = driver().calls().control.iter().copied().flatten();
    all.copied().any(|info| info.name == name)
}

/// The parameters of a list of values that is in them.
fn values(record: &str, list: &str, indices: &[u64]) -> Struct {
    let mut params = Struct::new(record).with(&format!("{list}Size"), indices.len() as u64);
    for (at, index) in indices.iter().enumerate() {
        params.set(&format!("{list}[{at}].index"), *index);
        params.set(&format!("{list}[{at}].data"), 0xdead);
    }
    params
}

/// NV2080_CTRL_CMD_GPU_ACQUIRE_COMPUTE_MODE_RESERVATION and its counterpart, of no parameters.
const ACQUIRE: u32 = 0x2080_0145;
const RELEASE: u32 = 0x2080_0146;

fn set_compute_mode(client: &Client, subdevice: u32, rules: u64) -> u32 {
    let record = "NV2080_CTRL_GPU_SET_COMPUTE_MODE_RULES_PARAMS";
    let mut params = Struct::new(record).with("rules", rules);
    client.control(subdevice, "NV2080_CTRL_CMD_GPU_SET_COMPUTE_MODE_RULES", &mut params)
}

rules! {
    registers_are_read_for_programs {
        /// NV_PTIMER_GR_TICK_FREQ, and what is no register that is simulated.
        const TICK: u64 = 0x9480;
        const NOBODYS: u64 = 0x12_3450;
        const ON_FAULTS: u64 = 0x41_88b0;
        let (client, _, subdevice) = Client::with_device();
        let read = |registers: &[u64], goes_on: u64, handles: [u64; 2]| {
            let one = Struct::new("NV2080_CTRL_GPU_REG_OP");
            let list = registers.iter().map(|register| one.clone().with("regOffset", *register));
            let mut list: Vec<u8> = list.flat_map(|operation| operation.bytes).collect();
            let mut params = Struct::new("NV2080_CTRL_GPU_EXEC_REG_OPS_PARAMS")
                .with("hClientTarget", handles[0])
                .with("hChannelTarget", handles[1])
                .with("bNonTransactional", goes_on)
                .with("regOpCount", registers.len() as u64)
                .with("regOps", list.as_mut_ptr() as u64);
            let status = client.control(subdevice, "NV2080_CTRL_CMD_GPU_EXEC_REG_OPS", &mut params);
            let answers = list.chunks(one.bytes.len()).map(|bytes| {
                let operation = Struct { bytes: bytes.to_vec(), ..one.clone() };
                (operation.get("regStatus"), operation.get("regValueLo"))
            });
            (status, answers.collect::<Vec<_>>())
        };
        let write = |register: u64, value: u64, mask: u64, of: [u64; 3]| {
            let operation = Struct::new("NV2080_CTRL_GPU_REG_OP").with("regOp", 1).with("regType", of[2]);
            let operation = operation.with("regValueLo", value).with("regAndNMaskLo", mask);
            let mut operation = operation.with("regOffset", register);
            let mut params = Struct::new("NV2080_CTRL_GPU_EXEC_REG_OPS_PARAMS")
                .with("hClientTarget", of[0])
                .with("hChannelTarget", of[1])
                .with("regOpCount", 1)
                .with("regOps", operation.bytes.as_mut_ptr() as u64);
            client.control(subdevice, "NV2080_CTRL_CMD_GPU_EXEC_REG_OPS", &mut params)
        };
        let ask = |client: &Client, subdevice, fastest: u64| {
            let name = "NV2080_CTRL_CMD_TIMER_SET_GR_TICK_FREQ";
            let mut params = Struct::new(&format!("{name}_PARAMS")).with("bSetMaxFreq", fastest);
            assert_eq!(client.control(subdevice, name, &mut params), OK);
        };
        let tick = || read(&[TICK], 0, [0, 0]);
        assert_eq!(tick(), (OK, vec![(0, 5)]));
        // Who asks for the highest frequency has it until nobody does.
        let (other, _, others) = Client::with_device();
        ask(&client, subdevice, 1);
        ask(&other, others, 1);
        ask(&client, subdevice, 0);
        assert_eq!(tick(), (OK, vec![(0, 0)]));
        other.free(others);
        assert_eq!(tick(), (OK, vec![(0, 5)]));
        let both = [NOBODYS, TICK];
        assert_eq!(read(&both, 0, [0, 0]), (INVALID_ARGUMENT, vec![(4, 0), (0, 0)]));
        assert_eq!(read(&both, 1, [0, 0]), (OK, vec![(4, 0), (0, 5)]));
        assert_eq!(read(&[], 0, [0, 0]).0, INVALID_PARAM_STRUCT);
        assert_eq!(read(&[TICK], 0, [1, 0]).0, INVALID_PARAM_STRUCT);
        // What faults do is kept, within the mask.
        assert_eq!(read(&[ON_FAULTS], 0, [0, 0]), (OK, vec![(0, 0)]));
        assert_eq!(write(ON_FAULTS, 0x31, 0xff, [0, 0, 0]), OK);
        assert_eq!(write(ON_FAULTS, 0x5, 0xf, [0, 0, 0]), OK);
        assert_eq!(read(&[ON_FAULTS], 0, [0, 0]), (OK, vec![(0, 0x35)]));
        assert_eq!(write(TICK, 1, 1, [0, 0, 0]), INVALID_ARGUMENT);
    }

    registers_of_contexts_are_those_of_channels {
        const ON_FAULTS: u64 = 0x41_88b0;
        let rig = Rig::new();
        let client = &rig.client;
        let (subdevice, _) = rig.usermode;
        let call = |is_write: bool, value: u64, [of_client, channel]: [u64; 2]| {
            let operation = Struct::new("NV2080_CTRL_GPU_REG_OP").with("regType", 1).with("regOffset", ON_FAULTS);
            let operation = operation.with("regOp", is_write.into()).with("regValueLo", value);
            let mut operation = operation.with("regAndNMaskLo", u64::from(u32::MAX));
            let mut params = Struct::new("NV2080_CTRL_GPU_EXEC_REG_OPS_PARAMS")
                .with("hClientTarget", of_client)
                .with("hChannelTarget", channel)
                .with("regOpCount", 1)
                .with("regOps", operation.bytes.as_mut_ptr() as u64);
            let status = client.control(subdevice, "NV2080_CTRL_CMD_GPU_EXEC_REG_OPS", &mut params);
            (status, operation.get("regValueLo"))
        };
        let (handle, all) = (u64::from(client.handle), [0, 0]);
        let own = [handle, rig.channel.into()];
        let read = |of| call(false, 0, of);
        for wrong in [[handle, subdevice.into()], [handle, 0x1234], [0x1234, rig.channel.into()]] {
            assert_eq!([call(true, 7, wrong).0, read(wrong).0], [INVALID_CHANNEL; 2]);
        }
        // What all have each has, until it gets its own, and all get what is written to all.
        assert_eq!((call(true, 3, all).0, read(own)), (OK, (OK, 3)));
        assert_eq!((call(true, 5, own).0, read(own), read(all)), (OK, (OK, 5), (OK, 3)));
        assert_eq!((call(true, 9, all).0, read(own)), (OK, (OK, 9)));
    }

    a_gpu_that_drains_takes_nobody {
        const GPU: u64 = 0x100;
        let client = Client::new();
        let drain = |state: u64, flags: u64| {
            let record = "NV0000_CTRL_GPU_MODIFY_DRAIN_STATE_PARAMS";
            let mut params = Struct::new(record).with("gpuId", GPU);
            params.set("newState", state);
            params.set("flags", flags);
            ask(&client, "NV0000_CTRL_CMD_GPU_MODIFY_DRAIN_STATE", &mut params)
        };
        let drains = || {
            let record = "NV0000_CTRL_GPU_QUERY_DRAIN_STATE_PARAMS";
            let mut params = Struct::new(record).with("gpuId", GPU).with("flags", 9);
            assert_eq!(ask(&client, "NV0000_CTRL_CMD_GPU_QUERY_DRAIN_STATE", &mut params), OK);
            (params.get("drainState"), params.get("flags"))
        };
        let not_found = || {
            let record = "NV0000_CTRL_GPU_QUERY_DRAIN_STATE_PARAMS";
            let mut params = Struct::new(record).with("gpuId", GPU);
            ask(&client, "NV0000_CTRL_CMD_GPU_QUERY_DRAIN_STATE", &mut params)
        };
        let probed = || {
            let mut params = Struct::new("NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS");
            assert_eq!(ask(&client, "NV0000_CTRL_CMD_GPU_GET_PROBED_IDS", &mut params), OK);
            params.get("gpuIds[0]")
        };
        assert_eq!([drain(2, 0), drain(1, 2)], [INVALID_ARGUMENT, INVALID_ARGUMENT]);
        assert_eq!(drains(), (0, 0));
        // One that is to be removed goes when nobody has it, and is found as a new one.
        let has = || std::fs::exists("/sys/bus/pci/devices/0000:01:00.0").unwrap();
        let file = open("/dev/nvidia0").unwrap();
        assert_eq!([drain(1, 3), drain(1, 1)], [IN_USE, OK]);
        assert_eq!((drains(), has()), ((1, 1), true));
        unsafe { libc::close(file) };
        assert_eq!((open("/dev/nvidia0"), has()), (Err(libc::ENODEV), false));
        assert_eq!((drain(1, 0), probed()), (INVALID_ARGUMENT, u64::from(u32::MAX)));
        assert_eq!(not_found(), OBJECT_NOT_FOUND);
        std::fs::write("/sys/bus/pci/rescan", "1\n").unwrap();
        assert_eq!((has(), probed(), drains()), (true, GPU, (0, 0)));
        assert_eq!((drain(1, 3), has()), (OK, false), "nobody has it");
        std::fs::write("/sys/bus/pci/rescan", "1\n").unwrap();
        assert!(has());
        // Somebody has it: it stays so, and nobody else gets it.
        let (owner, _, subdevice) = Client::with_device();
        assert_eq!([drain(1, 0), drain(1, 0)], [OK, IN_USE]);
        assert_eq!(drains(), (1, 0));
        let mut name = Struct::new("NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS");
        assert_eq!(owner.control(subdevice, "NV2080_CTRL_CMD_GPU_GET_NAME_STRING", &mut name), OK);
        assert_eq!(open("/dev/nvidia0"), Err(libc::EBUSY));
        let made = client.alloc(client.handle, DEVICE, Some(&mut device_params(0)));
        assert_eq!(made, Err(INVALID_ARGUMENT));
        assert_eq!(drain(0, 0), OK);
        assert!(open("/dev/nvidia0").is_ok());
    }

    persistence_opens_a_gpu_for_nobody {
        const ENABLED: u64 = 0;
        const DISABLED: u64 = 1;
        let client = Client::new();
        let drain = |state: u64| {
            let record = "NV0000_CTRL_GPU_MODIFY_DRAIN_STATE_PARAMS";
            let mut params = Struct::new(record).with("gpuId", 0x100).with("newState", state);
            assert_eq!(ask(&client, "NV0000_CTRL_CMD_GPU_MODIFY_DRAIN_STATE", &mut params), OK);
        };
        // Of a GPU that nobody has before and after.
        let with_device = |name: &str, field: &str, value: u64| {
            let file = open("/dev/nvidia0").unwrap();
            let device = client.alloc(client.handle, DEVICE, Some(&mut device_params(0))).unwrap();
            let mut params = Struct::new(&format!("NV0080_CTRL_GPU_{name}_SW_STATE_PERSISTENCE_PARAMS"));
            params.set(field, value);
            let command = format!("NV0080_CTRL_CMD_GPU_{name}_SW_STATE_PERSISTENCE");
            assert_eq!(client.control(device, &command, &mut params), OK);
            client.free(device);
            unsafe { libc::close(file) };
            params.get(field)
        };
        let space = crate::uvm::space();
        for state in [ENABLED, DISABLED] {
            with_device("MODIFY", "newState", state);
            assert_eq!(with_device("QUERY", "swStatePersistence", 9), state);
            drain(1);
            assert_eq!(open("/dev/nvidia0"), Err(libc::EIO), "{state}");
            drain(0);
            std::fs::write("/sys/bus/pci/devices/0000:01:00.0/remove", "1\n").unwrap();
            assert_eq!(crate::uvm::register(space, crate::uvm::UUID), GENERIC, "{state}");
            std::fs::write("/sys/bus/pci/rescan", "1\n").unwrap();
            assert_eq!(with_device("QUERY", "swStatePersistence", 9), DISABLED, "it is forgotten");
        }
    }

    a_gpu_that_persists_stays_until_it_is_closed {
        const ENABLED: u64 = 0;
        const DISABLED: u64 = 1;
        const REMOVE: u64 = 1;
        const LINK: u64 = 2;
        let client = Client::new();
        let drain = |state: u64, flags: u64| {
            let record = "NV0000_CTRL_GPU_MODIFY_DRAIN_STATE_PARAMS";
            let mut params = Struct::new(record).with("gpuId", 0x100).with("newState", state);
            params.set("flags", flags);
            ask(&client, "NV0000_CTRL_CMD_GPU_MODIFY_DRAIN_STATE", &mut params)
        };
        // The file that is still open.
        let persist = |state: u64| {
            let file = open("/dev/nvidia0").unwrap();
            let device = client.alloc(client.handle, DEVICE, Some(&mut device_params(0))).unwrap();
            let record = "NV0080_CTRL_GPU_MODIFY_SW_STATE_PERSISTENCE_PARAMS";
            let mut params = Struct::new(record).with("newState", state);
            let name = "NV0080_CTRL_CMD_GPU_MODIFY_SW_STATE_PERSISTENCE";
            assert_eq!(client.control(device, name, &mut params), OK);
            client.free(device);
            file
        };
        let close = |file| assert_eq!(unsafe { libc::close(file) }, 0);
        let has = || std::fs::exists("/sys/bus/pci/devices/0000:01:00.0").unwrap();
        close(persist(ENABLED));
        assert_eq!((drain(1, REMOVE), has()), (OK, true));
        assert_eq!((drain(1, REMOVE | LINK), open("/dev/nvidia0")), (IN_USE, Err(libc::EIO)));
        assert_eq!((drain(0, 0), has()), (OK, true));
        close(persist(DISABLED));
        assert_eq!((drain(1, REMOVE), has()), (OK, false));
        std::fs::write("/sys/bus/pci/rescan", "1\n").unwrap();
        let file = persist(ENABLED);
        assert_eq!((drain(1, REMOVE), has()), (OK, true));
        close(file);
        // Whoever asks next, the close has been seen.
        assert_eq!((open("/dev/nvidia0"), has()), (Err(libc::ENODEV), false));
        std::fs::write("/sys/bus/pci/rescan", "1\n").unwrap();
        close(persist(DISABLED));
    }

    persistence_is_on_or_off {
        let (client, device, _) = Client::with_device();
        let record = "NV0080_CTRL_GPU_MODIFY_SW_STATE_PERSISTENCE_PARAMS";
        for (state, status) in [(1, OK), (2, INVALID_ARGUMENT), (u64::from(u32::MAX), INVALID_ARGUMENT)] {
            let mut params = Struct::new(record).with("newState", state);
            let name = "NV0080_CTRL_CMD_GPU_MODIFY_SW_STATE_PERSISTENCE";
            assert_eq!(client.control(device, name, &mut params), status, "{state}");
        }
        let mut params = Struct::new("NV0080_CTRL_GPU_QUERY_SW_STATE_PERSISTENCE_PARAMS");
        let name = "NV0080_CTRL_CMD_GPU_QUERY_SW_STATE_PERSISTENCE";
        assert_eq!(client.control(device, name, &mut params), OK);
        assert_eq!(params.get("swStatePersistence"), 1);
    }

    only_one_client_reserves_a_gpu_that_is_exclusive {
        const ANYBODY: u64 = 0;
        const EXCLUSIVE: u64 = 3;
        const PROHIBITED: u64 = 2;
        let (first, _, own) = Client::with_device();
        let (second, _, other) = Client::with_device();
        let [acquire, release] = [ACQUIRE, RELEASE]
            .map(|command| move |client: &Client, object| client.control_with(object, command, 0, 0));
        // Whoever comes last has it, and it alone gives it back.
        assert_eq!((acquire(&first, own), acquire(&second, other)), (OK, OK));
        assert_eq!((release(&first, own), release(&second, other)), (STATE_IN_USE, OK));
        assert_eq!(set_compute_mode(&first, own, EXCLUSIVE), OK);
        assert_eq!(acquire(&first, own), OK);
        assert_eq!((acquire(&second, other), acquire(&first, own)), (STATE_IN_USE, STATE_IN_USE));
        assert_eq!(release(&first, own), OK);
        assert_eq!(acquire(&second, other), OK);
        // It goes with the subdevice of its client, and with the client.
        second.free(other);
        assert_eq!(acquire(&first, own), OK);
        first.free(first.handle);
        let (third, _, own) = Client::with_device();
        assert_eq!(acquire(&third, own), OK);
        assert_eq!(set_compute_mode(&third, own, 4), INVALID_ARGUMENT);
        assert_eq!(set_compute_mode(&third, own, PROHIBITED), OK);
        assert_eq!((release(&third, own), acquire(&third, own)), (OK, STATE_IN_USE));
        assert_eq!(set_compute_mode(&third, own, ANYBODY), OK);
        assert_eq!(acquire(&third, own), OK);
    }
    the_build_is_told_in_both_forms {
        let client = Client::new();
        let mut params = Struct::new("NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS");
        let name = "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION";
        assert_eq!(ask(&client, name, &mut params), OK);
        let longest = params.get("sizeOfStrings");
        assert!(longest > driver().tag().len() as u64);
        let mut buffers = [[0xff_u8; 64]; 3];
        for (field, buffer) in ["pDriverVersionBuffer", "pVersionBuffer", "pTitleBuffer"]
            .into_iter()
            .zip(&mut buffers)
        {
            params.set(field, buffer.as_mut_ptr() as u64);
        }
        params.set("sizeOfStrings", longest - 1);
        assert_eq!(ask(&client, name, &mut params), INVALID_PARAM_STRUCT);
        params.set("sizeOfStrings", 64);
        assert_eq!(ask(&client, name, &mut params), OK);
        assert!(buffers[0].starts_with(format!("{}\0", driver().tag()).as_bytes()));
        params.set("pTitleBuffer", 8);
        assert_eq!(ask(&client, name, &mut params), INVALID_PARAM_STRUCT, "not to be written");
        // The newer form has three texts of 256 bytes and two numbers, and since 595 four.
        let told = [776, 1032].map(|size| {
            let mut params = vec![0_u8; size];
            let at = params.as_mut_ptr() as u64;
            (client.control_with(client.handle, 0x13e, at, size), params)
        });
        let told: Vec<_> = told.into_iter().filter(|(status, _)| *status == OK).collect();
        assert_eq!(told.len(), 1, "one size is right");
        assert!(told[0].1.starts_with(format!("{}\0", driver().tag()).as_bytes()));
    }

    gpus_are_probed_and_attached {
        let client = Client::new();
        let attached = || {
            let mut params = Struct::new("NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS");
            assert_eq!(ask(&client, "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS", &mut params), OK);
            [params.get("gpuIds[0]"), params.get("gpuIds[1]")]
        };
        let mut params = Struct::new("NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS");
        assert_eq!(ask(&client, "NV0000_CTRL_CMD_GPU_GET_PROBED_IDS", &mut params), OK);
        assert_eq!((params.get("gpuIds[0]"), params.get("gpuIds[1]")), (0x100, NO_GPU));
        assert_eq!(attached(), [NO_GPU; 2], "nobody has it open");
        let gpu = open("/dev/nvidia0").unwrap();
        assert_eq!(attached(), [0x100, NO_GPU]);
        unsafe { libc::close(gpu) };
        assert_eq!(attached(), [NO_GPU; 2]);
    }

    gpus_are_asked_for_by_their_numbers {
        let client = Client::new();
        let attach = |command: &str, ids: [u64; 2]| {
            let mut params = Struct::new(&command.replace("_CMD", "").replace("IDS", "IDS_PARAMS"));
            params.set("gpuIds[0]", ids[0]);
            params.set("gpuIds[1]", ids[1]);
            params.set("gpuIds[2]", NO_GPU);
            ask(&client, command, &mut params)
        };
        let (on, off) = ("NV0000_CTRL_CMD_GPU_ATTACH_IDS", "NV0000_CTRL_CMD_GPU_DETACH_IDS");
        assert_eq!(attach(on, [0xffff, 0]), OK, "all");
        assert_eq!(attach(on, [0x100, NO_GPU]), OK);
        assert_eq!(attach(on, [0x100, 0x700]), INVALID_ARGUMENT);
        assert_eq!(attach(off, [0x100, NO_GPU]), INVALID_ARGUMENT, "it is not attached");
        open("/dev/nvidia0").unwrap();
        assert_eq!(attach(off, [0x100, NO_GPU]), OK);
    }

    gpus_tell_what_they_are {
        let client = Client::new();
        let id_info = |record: &str, name: &str, id: u64| {
            let mut params = Struct::new(record).with("gpuId", id);
            let status = ask(&client, name, &mut params);
            (status, params.get("deviceInstance"), params.get("gpuFlags") & 1)
        };
        let forms = [
            ("NV0000_CTRL_GPU_GET_ID_INFO_PARAMS", "NV0000_CTRL_CMD_GPU_GET_ID_INFO"),
            ("NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS", "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2"),
        ];
        for (record, name) in forms {
            assert_eq!(id_info(record, name, 0x100).0, INVALID_ARGUMENT, "it is not attached");
        }
        let (_user, ..) = Client::with_device();
        for (record, name) in forms {
            assert_eq!(id_info(record, name, 0x100), (OK, 0, 1), "in use");
            assert_eq!(id_info(record, name, 0x700).0, INVALID_ARGUMENT);
        }
        let mut params = Struct::new("NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS").with("gpuId", 0x100);
        assert_eq!(ask(&client, "NV0000_CTRL_CMD_GPU_GET_PCI_INFO", &mut params), OK);
        assert_eq!((params.get("domain"), params.get("bus"), params.get("slot")), (0, 1, 0));
        params.set("gpuId", 0x700);
        let status = ask(&client, "NV0000_CTRL_CMD_GPU_GET_PCI_INFO", &mut params);
        assert_eq!(status, OBJECT_NOT_FOUND);
        let mut params = Struct::new("NV0000_CTRL_GPU_GET_DEVICE_IDS_PARAMS");
        assert_eq!(ask(&client, "NV0000_CTRL_CMD_GPU_GET_DEVICE_IDS", &mut params), OK);
        assert_eq!(params.get("deviceIds"), 1);
    }

    gpus_have_an_identity {
        let (client, _, subdevice) = Client::with_device();
        let uuid = |id: u64, flags: u64| {
            let record = "NV0000_CTRL_GPU_GET_UUID_FROM_GPU_ID_PARAMS";
            let mut params = Struct::new(record).with("gpuId", id).with("flags", flags);
            let name = "NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID";
            (ask(&client, name, &mut params), params)
        };
        let (status, params) = uuid(0x100, 0);
        assert_eq!((status, params.text("gpuUuid").as_str()), (OK, UUID_TEXT));
        assert_eq!(params.get("uuidStrLen"), UUID_TEXT.len() as u64 + 1);
        let (status, params) = uuid(0x100, BINARY);
        assert_eq!((status, &params.field("gpuUuid")[..16]), (OK, UUID));
        assert_eq!(params.get("uuidStrLen"), 16);
        assert_eq!(uuid(0x700, 0).0, OBJECT_NOT_FOUND);
        let mut params = Struct::new("NV2080_CTRL_GPU_GET_GID_INFO_PARAMS").with("flags", BINARY);
        let name = "NV2080_CTRL_CMD_GPU_GET_GID_INFO";
        assert_eq!(client.control(subdevice, name, &mut params), OK);
        assert_eq!((params.get("length"), &params.field("data")[..16]), (16, UUID));
        // NV0000_CTRL_CMD_GPU_GET_UUID_INFO: 256 bytes, flags, the GPU's number, its instances.
        let by_uuid = |uuid: &[u8]| {
            let mut params = [0_u8; 272];
            params[..uuid.len()].copy_from_slice(uuid);
            params[256] = BINARY as u8;
            let at = params.as_mut_ptr() as u64;
            let status = client.control_with(client.handle, 0x274, at, params.len());
            (status, [params[260], params[261], params[264]])
        };
        assert_eq!(by_uuid(UUID), (OK, [0, 1, 0]));
        assert_eq!(by_uuid(b"another").0, OBJECT_NOT_FOUND);
    }

    subdevices_tell_of_their_gpu {
        let (client, device, subdevice) = Client::with_device();
        let mut params = Struct::new("NV0080_CTRL_GPU_GET_NUM_SUBDEVICES_PARAMS");
        let name = "NV0080_CTRL_CMD_GPU_GET_NUM_SUBDEVICES";
        assert_eq!(client.control(device, name, &mut params), OK);
        assert_eq!(params.get("numSubDevices"), 1);
        let mut params = Struct::new("NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS");
        let name = "NV2080_CTRL_CMD_GPU_GET_NAME_STRING";
        assert_eq!(client.control(subdevice, name, &mut params), OK);
        assert_eq!(params.text("gpuNameString.ascii"), "NVIDIA GeForce RTX 3090");
        params.set("gpuNameStringFlags", 1);
        let wide = client.control(subdevice, name, &mut params);
        match params.bytes.len() {
            132 => assert_eq!((wide, &params.bytes[4..8]), (OK, &b"N\0V\0"[..])),
            _ => assert_eq!(wide, INVALID_ARGUMENT, "since 595 there is one form"),
        }
        params.set("gpuNameStringFlags", 2);
        assert_eq!(client.control(subdevice, name, &mut params), INVALID_ARGUMENT);
        let mut params = Struct::new("NV2080_CTRL_BUS_GET_PCI_INFO_PARAMS");
        assert_eq!(client.control(subdevice, "NV2080_CTRL_CMD_BUS_GET_PCI_INFO", &mut params), OK);
        assert_eq!(params.get("pciDeviceId"), 0x2204_10de);
        let mut params = Struct::new("NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS");
        assert_eq!(client.control(subdevice, "NV2080_CTRL_CMD_MC_GET_ARCH_INFO", &mut params), OK);
        assert_eq!((params.get("architecture"), params.get("implementation")), (0x170, 2));
    }

    lists_are_told_in_both_forms {
        let (client, device, subdevice) = Client::with_device();
        for (object, base, count, list, member) in [
            (device, "NV0080_CTRL_GPU_GET_CLASSLIST", "numClasses", "classList", 0xc7c0),
            (subdevice, "NV2080_CTRL_GPU_GET_ENGINES", "engineCount", "engineList", 9),
        ] {
            let (command, newer) = (
                base.replace("CTRL_", "CTRL_CMD_"),
                format!("{}_V2", base.replace("CTRL_", "CTRL_CMD_")),
            );
            let mut params = Struct::new(&format!("{base}_V2_PARAMS"));
            assert_eq!(client.control(object, &newer, &mut params), OK);
            let length = params.get(count);
            let all: Vec<u32> =
                (0..length).map(|at| params.get(&format!("{list}[{at}]")) as u32).collect();
            assert!(all.contains(&member), "{all:x?}");
            if !has(&command) {
                continue;
            }
            let mut params = Struct::new(&format!("{base}_PARAMS"));
            assert_eq!(client.control(object, &command, &mut params), OK);
            assert_eq!(params.get(count), length, "how long it is");
            let mut buffer = vec![0_u32; all.len()];
            params.set(list, buffer.as_mut_ptr() as u64);
            params.set(count, length - 1);
            assert_eq!(client.control(object, &command, &mut params), INVALID_PARAM_STRUCT);
            params.set(count, length);
            assert_eq!(client.control(object, &command, &mut params), OK);
            assert_eq!(buffer, all);
            params.set(list, 8);
            assert_eq!(client.control(object, &command, &mut params), INVALID_ADDRESS);
        }
    }

    values_are_told_by_their_indices {
        let (client, device, subdevice) = Client::with_device();
        let fb = |params: &mut Struct| {
            client.control(subdevice, "NV2080_CTRL_CMD_FB_GET_INFO_V2", params)
        };
        // RAM_SIZE, BUS_WIDTH and HEAP_FREE are 7, 11 and 22 in every driver.
        let asked = || values("NV2080_CTRL_FB_GET_INFO_V2_PARAMS", "fbInfoList", &[7, 11, 22]);
        let mut params = asked();
        assert_eq!(fb(&mut params), OK);
        let told: Vec<u64> =
            (0..3).map(|at| params.get(&format!("fbInfoList[{at}].data"))).collect();
        // The driver keeps some of it, as the profile says.
        let free = told[2];
        assert_eq!((told[0], told[1], free < 24 << 20, free > 23 << 20), (24 << 20, 384, true, true));
        let mut memory = memory_params(VIDEO_MEMORY, 1 << 20);
        client.alloc(device, VIDEO_MEMORY, Some(&mut memory)).unwrap();
        let mut params = asked();
        assert_eq!(fb(&mut params), OK);
        assert_eq!(params.get("fbInfoList[2].data"), free - (1 << 10), "what is left");
        let refused = |indices: &[u64], size: u64| {
            let record = "NV2080_CTRL_FB_GET_INFO_V2_PARAMS";
            fb(&mut values(record, "fbInfoList", indices).with("fbInfoListSize", size))
        };
        assert_eq!(refused(&[0xfff], 1), INVALID_ARGUMENT, "no such index");
        assert_eq!((refused(&[], 0), refused(&[], 999)), (INVALID_ARGUMENT, INVALID_ARGUMENT));
        let record = "NV2080_CTRL_GPU_GET_INFO_V2_PARAMS";
        let mut params = values(record, "gpuInfoList", &[0x2c, 0x34]);
        let name = "NV2080_CTRL_CMD_GPU_GET_INFO_V2";
        assert_eq!(client.control(subdevice, name, &mut params), OK);
        assert_eq!(params.get("gpuInfoList[0].data"), 0x806, "the version of its processors");
    }

    values_are_told_in_a_buffer_as_well {
        let (client, _, subdevice) = Client::with_device();
        let name = "NV2080_CTRL_CMD_FB_GET_INFO";
        if !has(name) {
            return;
        }
        let mut list = [7_u32, 0xdead, 11, 0xdead];
        let mut params = Struct::new("NV2080_CTRL_FB_GET_INFO_PARAMS")
            .with("fbInfoListSize", 2)
            .with("fbInfoList", list.as_mut_ptr() as u64);
        assert_eq!(client.control(subdevice, name, &mut params), OK);
        assert_eq!(list, [7, 24 << 20, 11, 384]);
        params.set("fbInfoList", 8);
        assert_eq!(client.control(subdevice, name, &mut params), INVALID_ADDRESS);
        params.set("fbInfoList", 0);
        assert_eq!(client.control(subdevice, name, &mut params), INVALID_ARGUMENT);
    }

    commands_are_refused_in_the_drivers_order {
        let (client, device, subdevice) = Client::with_device();
        let ids = "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS";
        let mut params = Struct::new("NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS");
        let (cmd, size) = (command(ids), params.bytes.len());
        let at = params.address();
        let ask = |handle, object, at, size| control_on(client.fd, handle, object, cmd, at, size);
        assert_eq!(ask(client.handle + 0x400, 0, at, size), INVALID_CLIENT);
        assert_eq!(ask(client.handle, client.handle, at, 0), INVALID_ARGUMENT);
        assert_eq!(ask(client.handle, client.handle, 0, size), INVALID_ARGUMENT);
        assert_eq!(ask(client.handle, client.handle, 8, size), INVALID_ADDRESS);
        assert_eq!(ask(client.handle, 0x999, at, size), OBJECT_NOT_FOUND);
        for object in [device, subdevice] {
            assert_eq!(ask(client.handle, object, at, size), NOT_SUPPORTED, "of another class");
        }
        let other = control_file();
        assert_eq!(control_on(other, client.handle, client.handle, cmd, at, size), INVALID_CLIENT);
        // Since these, a size that does not fit is an argument that does not.
        let is_535 = driver().branch() == "535";
        let is_early = is_since(&[550, 40, 53]) || is_535 && is_since(&[535, 161, 7]);
        let status = ask(client.handle, client.handle, at, size - 4);
        assert_eq!(status, if is_early { INVALID_ARGUMENT } else { INVALID_PARAM_STRUCT });
        for flags in [1, 2] {
            let mut args = Struct::new("NVOS54_PARAMETERS")
                .with("hClient", client.handle.into())
                .with("hObject", client.handle.into())
                .with("cmd", cmd.into())
                .with("flags", flags)
                .with("params", at)
                .with("paramsSize", size as u64);
            assert_eq!(escape(client.fd, 0x2a, &mut args), Ok(()));
            assert_eq!(args.get("status") as u32, INVALID_ARGUMENT, "for the kernel alone");
        }
    }

    commands_must_be_there_and_played {
        let client = Client::new();
        for nothing in [0, 0x2080_0000] {
            assert_eq!(client.control_with(0x999, nothing, 0, 0), OK, "asks for nothing");
        }
        let mut bytes = [0_u8; 16];
        let at = bytes.as_mut_ptr() as u64;
        assert_eq!(client.control_with(client.handle, 0x7ff, at, 16), NOT_SUPPORTED);
        let mut params = Struct::new("NV0000_CTRL_SYSTEM_GET_CPU_INFO_PARAMS");
        let status = ask(&client, "NV0000_CTRL_CMD_SYSTEM_GET_CPU_INFO", &mut params);
        assert_eq!(status, NOT_SUPPORTED, "known, and not simulated");
    }
}

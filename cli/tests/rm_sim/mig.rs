//! Instances of a GPU, by the driver's rules, as a program meets them that knows numbers alone.

use std::fs;

use crate::client::status::*;
use crate::client::{Client, Struct, open};
use crate::{diagnostics, simulate};

const PARTITION_REF: u32 = 0xc637;
const EXEC_PARTITION_REF: u32 = 0xc638;
const SET_MODE: u32 = 0x2080_0183;
const SET_PARTITIONS: u32 = 0x2080_0174;
const CREATE: u32 = 0xc637_0101;
const DELETE: u32 = 0xc637_0102;

/// NV2080_CTRL_GPU_PARTITION_FLAG: a half of the memory with three GPCs, all, an eighth, and none that there is.
const HALF: u32 = 9;
const FULL: u32 = 0;
const EIGHTH: u32 = 0x17;
const NO_KIND: u32 = 1;

fn control(client: &Client, object: u32, command: u32, params: &mut [u8]) -> u32 {
    client.control_with(object, command, params.as_mut_ptr() as u64, params.len())
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// NV2080_CTRL_GPU_SET_PARTITIONS_PARAMS of 550.163.01: makes an instance of a kind, or destroys one by its number.
fn set(client: &Client, subdevice: u32, what: Result<u32, u32>) -> (u32, u32) {
    let mut params = [0; 392];
    put(&mut params, 0, 1);
    match what {
        Ok(flag) => {
            put(&mut params, 8 + 20, flag);
            params[8 + 24] = 1;
        }
        Err(number) => put(&mut params, 8, number),
    }
    let status = control(client, subdevice, SET_PARTITIONS, &mut params);
    (status, word(&params, 8))
}

fn set_mode(client: &Client, subdevice: u32, mode: u32) -> u32 {
    control(client, subdevice, SET_MODE, &mut mode.to_le_bytes())
}

/// NVC637_CTRL_EXEC_PARTITIONS_CREATE_PARAMS: one part with so many SMs.
fn create(client: &Client, instance: u32, sms: u32) -> (u32, u32) {
    let mut params = [0; 12 + 8 * 52 + 8 * 4];
    put(&mut params, 8, 1);
    put(&mut params, 12 + 40, sms);
    let status = control(client, instance, CREATE, &mut params);
    (status, word(&params, 12 + 8 * 52))
}

fn delete(client: &Client, instance: u32, number: u32) -> u32 {
    let mut params = [0; 36];
    put(&mut params, 0, 1);
    put(&mut params, 4, number);
    control(client, instance, DELETE, &mut params)
}

/// Parameters of 16 bytes: a descriptor, and a number.
fn of(descriptor: i32, number: u32) -> Struct {
    let mut params = Struct::new("NVOS00_PARAMETERS");
    params.bytes[..8].copy_from_slice(&u64::from(descriptor as u32).to_le_bytes());
    params.bytes[8..12].copy_from_slice(&number.to_le_bytes());
    params
}

/// The device that the text of a capability names.
fn capability(path: &str) -> i32 {
    let path = format!("/proc/driver/nvidia/capabilities/{path}/access");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let minor = text.lines().next().unwrap().strip_prefix("DeviceFileMinor: ").unwrap();
    open(&format!("/dev/nvidia-caps/nvidia-cap{minor}")).unwrap()
}

fn instances_follow_the_rules() {
    let (client, _, subdevice) = Client::with_device();
    assert_eq!(set(&client, subdevice, Ok(HALF)).0, NOT_SUPPORTED, "the mode is off");
    assert_eq!(set_mode(&client, subdevice, 2), OK);
    assert_eq!(set(&client, subdevice, Ok(NO_KIND)).0, NOT_SUPPORTED);
    assert_eq!(set(&client, subdevice, Ok(HALF)), (OK, 2));
    assert_eq!(set(&client, subdevice, Ok(FULL)).0, INSUFFICIENT_RESOURCES);
    assert_eq!(set(&client, subdevice, Err(7)).0, INVALID_ARGUMENT, "no such instance");
    assert_eq!(set_mode(&client, subdevice, 0), STATE_IN_USE);

    // Who uses an instance needs its capability, not another's.
    assert_eq!(set(&client, subdevice, Ok(EIGHTH)), (OK, 7));
    let (own, other) = (capability("gpu0/mig/gi2"), capability("gpu0/mig/gi7"));
    let refused = Err(INSUFFICIENT_PERMISSIONS);
    for wrong in [-1, client.fd, other] {
        let made = client.alloc(subdevice, PARTITION_REF, Some(&mut of(wrong, 2)));
        assert_eq!(made, refused, "{wrong}");
    }
    let absent = client.alloc(subdevice, PARTITION_REF, Some(&mut of(own, 1)));
    assert_eq!(absent, Err(INVALID_ARGUMENT));
    let instance = client.alloc(subdevice, PARTITION_REF, Some(&mut of(own, 2))).unwrap();
    assert_eq!(set(&client, subdevice, Err(2)).0, STATE_IN_USE, "it is chosen");

    // 60 SMs are the whole of it; 16 are as many as one GPC has.
    assert_eq!(create(&client, instance, 60), (OK, 0));
    assert_eq!(create(&client, instance, 16).0, INSUFFICIENT_RESOURCES);
    assert_eq!(delete(&client, instance, 1), INVALID_ARGUMENT);
    let part = capability("gpu0/mig/gi2/ci0");
    let wrong = client.alloc(instance, EXEC_PARTITION_REF, Some(&mut of(own, 0)));
    assert_eq!(wrong, refused, "the instance's is not the part's");
    let compute = client.alloc(instance, EXEC_PARTITION_REF, Some(&mut of(part, 0))).unwrap();
    assert_eq!(delete(&client, instance, 0), STATE_IN_USE);
    client.free(compute);
    assert_eq!(delete(&client, instance, 0), OK);
    client.free(instance);
    assert_eq!(set(&client, subdevice, Err(2)).0, OK);
    assert!(!fs::exists("/proc/driver/nvidia/capabilities/gpu0/mig/gi2").unwrap());
    assert_eq!(set(&client, subdevice, Err(7)).0, OK);
    assert_eq!(set_mode(&client, subdevice, 0), OK);
}

#[test]
fn instances_are_chosen_by_who_may() {
    let name = concat!(module_path!(), "::instances_are_chosen_by_who_may");
    let report = simulate(name, "550.163.01", &["--gpu", "h100"], instances_follow_the_rules);
    assert_eq!(diagnostics(&report), []);
}

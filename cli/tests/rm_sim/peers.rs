//! How GPUs reach each other's memory, on machines of two.

use nvabi::driver::AnyDriver;

use crate::channel::{WINDOW, map_dma};
use crate::client::status::*;
use crate::client::*;
use crate::simulate;

const PEERS: u32 = 0x503b;
const NO_GPU: u64 = 0xffff_ffff;
const MATRIX: &str = "NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX";

/// Identities of the GPUs, each attached by a device of the client.
fn ids(client: &Client) -> Vec<u64> {
    let name = "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS";
    let mut params = Struct::new("NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS");
    assert_eq!(client.control(client.handle, name, &mut params), OK);
    (0..2).map(|at| params.get(&format!("gpuIds[{at}]"))).collect()
}

/// What the matrix says of two groups.
fn matrix(client: &Client, first: &[u64], second: &[u64]) -> Result<Vec<u64>, u32> {
    let record = "NV0000_CTRL_SYSTEM_GET_P2P_CAPS_MATRIX_PARAMS";
    let mut params = Struct::new(record)
        .with("grpACount", first.len() as u64)
        .with("grpBCount", second.len() as u64);
    for (list, ids) in [("gpuIdGrpA", first), ("gpuIdGrpB", second)] {
        for (at, id) in ids.iter().take(8).enumerate() {
            params.set(&format!("{list}[{at}]"), *id);
        }
    }
    match client.control(client.handle, MATRIX, &mut params) {
        OK => Ok(params.field("p2pCaps").chunks(4).map(|it| u64::from(it[0])).collect()),
        status => Err(status),
    }
}

/// What each of two GPUs calls the other.
fn names(client: &Client, ids: &[u64]) -> [u64; 2] {
    let name = "NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2";
    let mut params = Struct::new("NV0000_CTRL_SYSTEM_GET_P2P_CAPS_V2_PARAMS").with("gpuCount", 2);
    params.set("gpuIds[0]", ids[0]);
    params.set("gpuIds[1]", ids[1]);
    assert_eq!(client.control(client.handle, name, &mut params), OK);
    [1, 2].map(|at| params.get(&format!("busPeerIds[{at}]")))
}

fn params(subdevices: [u32; 2]) -> Struct {
    Struct::new("NV503B_ALLOC_PARAMETERS")
        .with("hSubDevice", subdevices[0].into())
        .with("hPeerSubDevice", subdevices[1].into())
}

/// The client with both devices, and their subdevices.
fn rig() -> (Client, [u32; 2]) {
    let client = Client::new();
    let subdevices = [0, 1].map(|gpu| client.device(gpu).1);
    (client, subdevices)
}

fn peers_over_pcie() {
    /// Writes, reads, PROP and PCI; and LOOPBACK.
    const BUS: u64 = 0x47;
    const OWN: u64 = 0x67;
    let client = Client::new();
    let (device, one) = client.device(0);
    let (other_device, other) = client.device(1);
    let ids = ids(&client);
    let all = matrix(&client, &ids, &[]).unwrap();
    assert_eq!([all[0], all[1], all[8], all[9]], [OWN, BUS, BUS, OWN]);
    assert_eq!(matrix(&client, &ids[..1], &ids[1..]).unwrap()[..2], [BUS, 0]);
    for (first, second) in [(&[][..], &[][..]), (&[ids[0]; 9], &[]), (&ids, &[ids[0]; 9])] {
        assert_eq!(matrix(&client, first, second), Err(INVALID_ARGUMENT));
    }
    assert_eq!(matrix(&client, &[NO_GPU], &[]), Err(INVALID_ARGUMENT));
    assert_eq!(matrix(&client, &ids, &[NO_GPU]), Err(INVALID_ARGUMENT));

    let alloc = |parent, mut params| client.alloc(parent, PEERS, Some(&mut params));
    let pair = || params([one, other]);
    assert_eq!(alloc(one, pair()), Err(INVALID_OBJECT_PARENT));
    assert_eq!(client.alloc(client.handle, PEERS, None), Err(INVALID_ARGUMENT));
    for wrong in [
        params([client.handle, other]),
        params([one, 0x1234]),
        pair().with("subDevicePeerIdMask", 3),
        pair().with("peerSubDevicePeerIdMask", 6),
        params([one, one]).with("subDevicePeerIdMask", 1),
        pair().with("flags", 1),
    ] {
        assert_eq!(alloc(client.handle, wrong), Err(INVALID_ARGUMENT));
    }
    // Who means a peer's memory must reach it.
    const NOSLI: u64 = 2 << 20;
    let mut range = Struct::new("NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS").with("limit", (1 << 48) - 1);
    let window = client.alloc(device, WINDOW, Some(&mut range)).unwrap();
    let memory = |class| {
        let mut params = memory_params(class, 0x1_0000);
        client.alloc(other_device, class, Some(&mut params)).unwrap()
    };
    let (theirs, systems) = (memory(VIDEO_MEMORY), memory(SYSTEM_MEMORY));
    let map = |memory| map_dma(&client, device, [window, memory], [0, 0x1_0000, NOSLI, 0]).err();
    assert_eq!([map(theirs), map(systems)], [Some(INVALID_STATE), Some(INVALID_ARGUMENT)]);
    let first = alloc(client.handle, pair()).unwrap();
    assert_eq!([map(theirs), map(systems)], [None, Some(INVALID_ARGUMENT)]);
    // More than one of a pair, and each goes with a subdevice.
    let second = alloc(client.handle, params([other, one])).unwrap();
    assert_eq!(client.free(first), OK);
    assert_eq!(client.free(one), OK);
    // A device has one subdevice at a time.
    let one = client.alloc(device, SUBDEVICE, None).unwrap();
    let made = client.alloc_as(client.handle, second, PEERS, Some(&mut params([one, other])));
    assert_eq!(made, Ok(second), "it went with the subdevice, and its handle is free");
    assert_eq!(client.free(second), OK);
    // What a program wants to call them they are called, while nothing else is called that.
    let wanted = |own: u64, theirs: u64| {
        let params = params([one, other]).with("subDevicePeerIdMask", own);
        let made = alloc(client.handle, params.with("peerSubDevicePeerIdMask", theirs));
        made.map(|_| names(&client, &ids))
    };
    assert_eq!(wanted(1 << 8, 1), Err(INVALID_ARGUMENT));
    assert_eq!(wanted(1 << 5, 1 << 3), Ok([5, 3]));
    assert_eq!(wanted(1 << 5, 1 << 2), Ok([5, 3]), "the first is taken");
}

fn no_peers() {
    let (client, subdevices) = rig();
    let ids = ids(&client);
    let all = matrix(&client, &ids, &[]).unwrap();
    assert_eq!([all[0], all[1], all[8], all[9]], [0; 4]);
    let made = client.alloc(client.handle, PEERS, Some(&mut params(subdevices)));
    assert_eq!(made, Err(NOT_SUPPORTED));
    crate::ranges::nobody_is_made_a_peer();
}

fn peers_over_links() {
    let (client, subdevices) = rig();
    let all = matrix(&client, &ids(&client), &[]).unwrap();
    assert_eq!([all[1], all[8]], [0x1b; 2], "writes, reads, NVLINK and ATOMICS");
    assert!(client.alloc(client.handle, PEERS, Some(&mut params(subdevices))).is_ok());
}

#[test]
fn server_cards_reach_each_other_in_every_branch() {
    let all = AnyDriver::all();
    let newest = all
        .iter()
        .enumerate()
        .filter(|(at, driver)| all.get(at + 1).is_none_or(|next| next.branch() != driver.branch()));
    let name = "rm_sim::peers::server_cards_reach_each_other_in_every_branch";
    for (_, driver) in newest {
        simulate(name, driver.tag(), &["--gpus", "2", "--gpu", "a100"], peers_over_pcie);
    }
}

#[test]
fn what_peers_see_of_each_other_goes() {
    let name = "rm_sim::peers::what_peers_see_of_each_other_goes";
    let body = crate::ranges::what_peers_see_of_each_other_goes;
    simulate(name, "550.163.01", &["--gpus", "2", "--gpu", "a100"], body);
}

#[test]
fn other_cards_reach_nobody_without_links() {
    let name = "rm_sim::peers::other_cards_reach_nobody_without_links";
    simulate(name, "550.163.01", &["--gpus", "2", "--gpu", "rtx3090"], no_peers);
}

#[test]
fn linked_cards_reach_each_other() {
    let name = "rm_sim::peers::linked_cards_reach_each_other";
    for card in ["hgx-a100", "hgx-h100"] {
        simulate(name, "550.163.01", &["--gpus", "2", "--gpu", card], peers_over_links);
    }
}

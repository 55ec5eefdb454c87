//! How GPUs reach each other's memory (`src/nvidia/src/kernel/platform/p2p/p2p_caps.c`), and the objects by which they
//! do (`src/nvidia/src/kernel/gpu/bus/p2p_api.c`).

use std::collections::BTreeMap;

use super::{Handler, Target};
use crate::Status;
use crate::rm::Driver;
use crate::rm::failed::Result;
use crate::rm::interface::Params;
use crate::rm::server::{ObjectKind, Peers};

pub(super) fn handler(name: &str) -> Option<Handler> {
    match name {
        // The older one has the identities of peers in a buffer of the caller's.
        "NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS" | "NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2" => {
            Some(caps)
        }
        "NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX" => Some(matrix),
        _ => None,
    }
}

/// NV0000_P2P_CAPS_STATUS_OK, _CHIPSET_NOT_SUPPORTED, _NOT_SUPPORTED.
const OK: u32 = 0;
const NO_CHIPSET: u32 = 1;
const NOT_SUPPORTED: u32 = 5;
/// BUS_INVALID_PEER, and how many peers a GPU has names for (P2P_MAX_NUM_PEERS).
const NO_PEER: u32 = u32::MAX;
const MAX_PEERS: u32 = 8;

/// What GPUs call each other, by who calls whom.
type PeerNames = BTreeMap<(usize, usize), u32>;

/// By what GPUs reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rm) enum Way {
    Links,
    /// PCIe, by mailboxes.
    Bus,
    /// None, and the status that says why.
    None(u32),
}

impl Way {
    /// Bits of NV0000_CTRL_SYSTEM_GET_P2P_CAPS: writes and reads, and then NVLINK and ATOMICS, or PROP and PCI.
    fn caps(self, is_alone: bool) -> u32 {
        const LOOPBACK: u32 = 1 << 5;
        match self {
            Self::Links => 1 | 1 << 1 | 1 << 3 | 1 << 4,
            Self::Bus => 1 | 1 << 1 | 1 << 2 | 1 << 6 | if is_alone { LOOPBACK } else { 0 },
            Self::None(_) => 0,
        }
    }

    /// What is told of a capability, by its NV0000_CTRL_P2P_CAPS_INDEX.
    fn status(self, index: usize, is_alone: bool) -> u32 {
        const READ: usize = 0;
        const WRITE: usize = 1;
        const NVLINK: usize = 2;
        const ATOMICS: usize = 3;
        const PROP: usize = 4;
        const LOOPBACK: usize = 5;
        const PCI: usize = 6;
        match (self, index) {
            (Self::None(why), READ | WRITE) => why,
            (Self::Links, READ | WRITE | NVLINK | ATOMICS) => OK,
            (Self::Bus, READ | WRITE | PROP | PCI) => OK,
            (Self::Bus, LOOPBACK) if is_alone => OK,
            _ => NOT_SUPPORTED,
        }
    }
}

/// `CliGetSystemP2pCaps`. Which copy engines are best for it is not told: any is.
fn caps(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let count = params.word("gpuCount")? as usize;
    if count == 0 || count > params.count("gpuIds")? {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    let gpus = gpus(driver, params, "gpuIds", count)?;
    let is_alone = gpus.iter().all(|gpu| *gpu == gpus[0]);
    let way = driver.way(&gpus);
    params.set("p2pCaps", way.caps(is_alone))?;
    for name in ["p2pOptimalReadCEs", "p2pOptimalWriteCEs"] {
        params.set(name, 0_u32)?;
    }
    for index in 0..params.count("p2pCapsStatus")? {
        params.set(&format!("p2pCapsStatus[{index}]"), way.status(index, is_alone))?;
    }
    let names = driver.peer_names();
    let pairs = gpus.iter().flat_map(|from| gpus.iter().map(|to| (*from, *to)));
    let own: Vec<u32> = pairs.map(|pair| names.get(&pair).copied().unwrap_or(NO_PEER)).collect();
    let none = vec![NO_PEER; own.len()];
    for (name, ids) in [("busPeerIds", own), ("busEgmPeerIds", none)] {
        if !params.has(name) {
            continue;
        }
        if params.count(name)? > 1 {
            for (at, id) in ids.iter().enumerate() {
                params.set(&format!("{name}[{at}]"), *id)?;
            }
            continue;
        }
        let address = params.get(name)?;
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        if address != 0 && target.caller.client.write(address, &bytes) < bytes.len() {
            return Err(Status::INVALID_ADDRESS.into());
        }
    }
    Ok(())
}

/// `cliresCtrlCmdSystemGetP2pCapsMatrix_IMPL`: of each GPU of a group with each of another one, or of its own.
fn matrix(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let [first, second] = [params.word("grpACount")?, params.word("grpBCount")?];
    let [first, second] = [first as usize, second as usize];
    let most = params.count("gpuIdGrpA")?;
    if first == 0 || first > most || second > most {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    let rows = gpus(driver, params, "gpuIdGrpA", first)?;
    let columns = match second {
        0 => rows.clone(),
        count => gpus(driver, params, "gpuIdGrpB", count)?,
    };
    for (row, one) in rows.iter().enumerate() {
        for (column, other) in columns.iter().enumerate() {
            let at = row * most + column;
            let caps = driver.way(&[*one, *other]).caps(one == other);
            params.set(&format!("p2pCaps[{at}]"), caps)?;
            for way in ["a2b", "b2a"] {
                for what in ["Read", "Write"] {
                    params.set(&format!("{way}Optimal{what}Ces[{at}]"), 0_u32)?;
                }
            }
        }
    }
    Ok(())
}

/// The GPUs that a list names.
fn gpus(driver: &Driver, params: &Params, list: &str, count: usize) -> Result<Vec<usize>> {
    let mut gpus = Vec::new();
    for at in 0..count {
        let id = params.word(&format!("{list}[{at}]"))?;
        let found = driver.gpus.iter().position(|gpu| gpu.id() == id && gpu.is_attached());
        gpus.push(found.ok_or(Status::INVALID_ARGUMENT)?);
    }
    Ok(gpus)
}

impl Driver {
    /// `p2pGetCapsStatus`. Cards for servers reach each other over PCIe, others over NVLink alone, and those on
    /// switches not over PCIe either.
    pub(in crate::rm) fn way(&self, gpus: &[usize]) -> Way {
        let [first, others @ ..] = gpus else { return Way::None(NOT_SUPPORTED) };
        // One alone is its own peer.
        let is_alone = others.iter().all(|gpu| gpu == first);
        let others = if is_alone { std::slice::from_ref(first) } else { others };
        if gpus.iter().any(|gpu| self.is_mig_enabled(*gpu)) {
            return Way::None(NOT_SUPPORTED);
        }
        let mut linked = others.iter().filter(|other| is_alone || *other != first);
        if linked.all(|other| self.are_linked(*first, *other)) {
            return Way::Links;
        }
        let number = |gpu: usize, name: &str| self.number_of(gpu, &format!("identity.{name}"));
        let chip = |gpu: usize| ["architecture", "implementation"].map(|name| number(gpu, name));
        if gpus.iter().any(|gpu| self.is_switched(*gpu) || chip(*gpu) != chip(*first)) {
            return Way::None(NOT_SUPPORTED);
        }
        match gpus.iter().all(|gpu| number(*gpu, "is_server") == Some(1)) {
            true => Way::Bus,
            false => Way::None(NO_CHIPSET),
        }
    }

    /// What GPUs call each other, while there are objects that let one reach the other.
    fn peer_names(&self) -> PeerNames {
        let pairs = self.server.objects().filter_map(|object| match &object.kind {
            ObjectKind::Peers(peers) => Some(peers.names()),
            _ => None,
        });
        pairs.flatten().collect()
    }

    /// Whether a GPU reaches the memory of another one, or its own as that of a peer.
    pub(in crate::rm) fn has_peer(&self, from: usize, to: usize) -> bool {
        self.peer_names().contains_key(&(from, to))
    }

    /// The first name that a GPU has for no other one. Those on switches have one for all (`kbusGetNvSwitchPeerId`).
    fn unused_name(&self, names: &PeerNames, from: usize) -> Option<u32> {
        if self.is_switched(from) {
            return Some(0);
        }
        let taken = |id: &u32| names.iter().any(|((who, _), name)| *who == from && name == id);
        (0..MAX_PEERS).find(|id| !taken(id))
    }

    /// `p2papiConstruct_IMPL`.
    pub(in crate::rm) fn peers(&self, client: u32, params: &mut Params) -> Result<ObjectKind> {
        const SPA: u32 = 1;
        let mut subdevices = [0; 2];
        let mut gpus = [0; 2];
        for (at, name) in ["hSubDevice", "hPeerSubDevice"].iter().enumerate() {
            subdevices[at] = params.word(name)?;
            let object = self.server.object(client, subdevices[at]);
            let Some(ObjectKind::Subdevice(gpu)) = object.map(|object| &object.kind) else {
                return Err(Status::INVALID_ARGUMENT.into());
            };
            gpus[at] = *gpu;
        }
        let is_alone = subdevices[0] == subdevices[1];
        let mut wanted = [0; 2];
        for kind in ["PeerIdMask", "EgmPeerIdMask"] {
            let names = [format!("subDevice{kind}"), format!("peerSubDevice{kind}")];
            // Older drivers do not have the second kind.
            if !params.has(&names[0]) {
                continue;
            }
            let masks = [params.word(&names[0])?, params.word(&names[1])?];
            let is_wrong = masks.iter().any(|mask| mask.count_ones() > 1);
            if is_wrong || is_alone && masks[0] != masks[1] {
                return Err(Status::INVALID_ARGUMENT.into());
            }
            if kind == "PeerIdMask" {
                wanted = masks;
            }
        }
        // No card here takes addresses of the whole system.
        if params.word("flags")? & SPA != 0 {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let ids = match self.way(&gpus) {
            Way::None(_) => return Err(Status::NOT_SUPPORTED.into()),
            Way::Links => self.free_names(gpus),
            Way::Bus => self.wanted_names(gpus, wanted)?.or_else(|| self.free_names(gpus)),
        };
        let ids = ids.ok_or(Status::INSUFFICIENT_RESOURCES)?;
        for side in ["l2p", "p2l"] {
            params.set_if_any(&format!("{side}Bar1P2PDmaInfo.dma_address"), u64::MAX);
            params.set_if_any(&format!("{side}Bar1P2PDmaInfo.dma_size"), 0_u64);
        }
        Ok(ObjectKind::Peers(Peers { subdevices, gpus, ids }))
    }

    /// What each of two GPUs calls the other, or may.
    fn free_names(&self, [one, other]: [usize; 2]) -> Option<[u32; 2]> {
        let names = self.peer_names();
        let name =
            |from, to| names.get(&(from, to)).copied().or_else(|| self.unused_name(&names, from));
        Some([name(one, other)?, name(other, one)?])
    }

    /// The names that a program asks for by their bits, where they are free or already those
    /// (`kbusCreateP2PMappingForMailbox_GM200`).
    fn wanted_names(&self, [one, other]: [usize; 2], masks: [u32; 2]) -> Result<Option<[u32; 2]>> {
        if masks.contains(&0) {
            return Ok(None);
        }
        let wanted = masks.map(u32::trailing_zeros);
        if wanted.iter().any(|name| *name >= MAX_PEERS) {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let names = self.peer_names();
        let is_free =
            |gpu, name| !names.iter().any(|((from, _), has)| *from == gpu && *has == name);
        let are_free = is_free(one, wanted[0]) && is_free(other, wanted[1]);
        let known = [names.get(&(one, other)), names.get(&(other, one))];
        let are_theirs = known == [Some(&wanted[0]), Some(&wanted[1])];
        Ok((are_free || are_theirs).then_some(wanted))
    }
}

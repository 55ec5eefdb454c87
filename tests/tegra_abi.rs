//! What the lock and the specs say of Jetson, against what is known of its kernels.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use nvabi_pipeline::lock::{self, Lock};
use nvabi_pipeline::model::Facts;
use nvabi_pipeline::spec::{Spec, spec_of};
use nvabi_reports::list::{self, Listed};

static LOCKED: LazyLock<(Lock, Vec<Spec>)> = LazyLock::new(|| {
    let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi-specs");
    let (lock, report) = lock::read(&lock::folder(&specs, "tegra")).unwrap();
    assert_eq!(report.to_string(), "", "the lock was edited");
    (lock, Spec::load_family(&specs, "tegra").unwrap())
});

fn facts(tag: &str) -> Facts {
    LOCKED.0.facts(&tag.parse().unwrap()).expect("the tag is locked")
}

fn ioctls(tag: &str) -> Vec<Listed> {
    let facts = facts(tag);
    list::ioctls(&facts, spec_of(&LOCKED.1, &facts.tag).unwrap())
}

fn of_nvhost(call: &Listed) -> bool {
    call.node.as_ref().is_some_and(|node| node.starts_with("nvhost"))
}

/// The numbers of ioctls of nvgpu, nvmap and host1x-fence; nvhost's are beside them.
#[test]
fn every_release_has_its_ioctls() {
    for (tag, count, nvhost) in [
        ("tegra-r32.7.1", 163, 43),
        ("tegra-r34.1", 190, 46),
        ("tegra-r35.1", 185, 47),
        ("tegra-r36.2", 202, 48),
        ("tegra-r36.4", 202, 48),
    ] {
        let all = ioctls(tag);
        let of = all.iter().filter(|call| of_nvhost(call)).count();
        assert_eq!((all.len() - of, of), (count, nvhost), "{tag}");
    }
}

/// Every constant of the headers that is a request is in the spec.
#[test]
fn no_request_of_the_headers_is_forgotten() {
    for locked in &LOCKED.0.tags {
        let listed = ioctls(locked.tag.as_str());
        let listed: BTreeSet<&str> = listed.iter().map(|call| call.name.as_str()).collect();
        let facts = LOCKED.0.facts(&locked.tag).unwrap();
        let constants = facts.surfaces.iter().filter(|(name, _)| !name.contains('@'));
        for (name, constant) in constants.flat_map(|(_, surface)| &surface.constants) {
            let letter = u8::try_from(constant.value >> 8 & 0xff).unwrap();
            let is_request = name.contains("_IOC") && letter.is_ascii_uppercase();
            assert!(!is_request || listed.contains(name.as_str()), "{}: {name}", locked.tag);
        }
    }
}

/// A node knows a request by one name; nodes share letters.
#[test]
fn a_request_has_one_name_on_its_node() {
    let all = ioctls("tegra-r36.4");
    let mut names: BTreeMap<(&str, u64), Vec<&str>> = BTreeMap::new();
    for call in &all {
        let key = (call.node.as_deref().unwrap(), call.request.unwrap());
        names.entry(key).or_default().push(&call.name);
    }
    // nvmap's two ways to create are told apart by nr, its two to flush by size.
    names.retain(|_, names| names.len() > 1);
    assert!(names.is_empty(), "{names:?}");
    let nodes = |magic: u8| -> BTreeSet<&str> {
        let with = all.iter().filter(|call| call.magic == Some(u64::from(magic)));
        with.map(|call| call.node.as_deref().unwrap()).collect()
    };
    assert_eq!(nodes(b'H'), BTreeSet::from(["channel", "nvhost-channel", "nvhost-ctrl"]));
    assert_eq!(nodes(b'N'), BTreeSet::from(["nvmap", "nvsched"]));
    // What a terminal takes for TCGETS to TCSETSW without a size.
    let plain = |nr: u64| all.iter().find(|call| call.magic == Some(0x54) && call.nr == Some(nr));
    assert_eq!(plain(3).unwrap().request, Some(0x5403));
}

/// Sizes that the kernel checks, release by release.
#[test]
fn arguments_grow_where_the_kernel_says_so() {
    let size = |tag: &str, name: &str| -> u64 {
        let facts = facts(tag);
        facts.surfaces.values().find_map(|s| Some(s.records.get(name)?.size)).unwrap()
    };
    for (name, sizes) in [
        ("nvgpu_alloc_as_args", [16, 64, 64, 64]),
        ("nvgpu_as_alloc_space_args", [24, 32, 32, 32]),
        ("nvgpu_as_free_space_args", [16, 32, 32, 32]),
        ("nvgpu_gpu_characteristics", [256, 312, 312, 328]),
        ("nvgpu_gpu_open_tsg_args", [8, 8, 8, 24]),
        ("nvgpu_channel_setup_bind_args", [80, 80, 80, 104]),
        ("nvmap_alloc_handle", [16, 16, 16, 20]),
        ("nvmap_query_heap_params", [40, 40, 40, 48]),
        ("nvmap_handle_parameters", [56, 64, 64, 72]),
    ] {
        let tags = ["tegra-r32.7.1", "tegra-r34.1.1", "tegra-r35.4.1", "tegra-r36.4"];
        assert_eq!(tags.map(|tag| size(tag, name)), sizes, "{name}");
    }
}

/// r35.4 moved fields of the characteristics without changing their size.
#[test]
fn characteristics_move_at_one_size() {
    let offset = |tag: &str, field: &str| -> Option<u64> {
        let facts = facts(tag);
        let record = &facts.surfaces["nvgpu"].records["nvgpu_gpu_characteristics"];
        Some(record.fields.iter().find(|f| f.name == field)?.offset)
    };
    assert_eq!(offset("tegra-r35.3.1", "max_ltc_per_fbp"), Some(124));
    assert_eq!(offset("tegra-r35.4.1", "emc_en_mask"), Some(124));
    assert_eq!(offset("tegra-r35.4.1", "max_ltc_per_fbp"), Some(128));
    assert_eq!(offset("tegra-r36.2", "numa_domain_id"), Some(16));
}

/// The emitted types are those of the lock.
#[cfg(all(feature = "tegra-r32", feature = "tegra-r35", feature = "tegra-r36"))]
mod emitted {
    use nvabi::call::{Call, Direction, Ioctl};
    use nvabi::tegra::{self, abi, r32, r36};

    #[test]
    fn requests_are_typed() {
        type AllocAs = r36::ioctl::NVGPU_GPU_IOCTL_ALLOC_AS;
        assert_eq!(AllocAs::REQUEST, 0xc040_4708);
        assert_eq!(size_of::<<AllocAs as Call>::Params>(), 64);
        assert_eq!(r32::ioctl::NVGPU_GPU_IOCTL_ALLOC_AS::REQUEST, 0xc010_4708);
        let info = AllocAs::INFO;
        let request = info.request().unwrap();
        assert_eq!((request.magic(), request.nr(), request.size()), (b'G', 8, 64));
        assert_eq!(request.direction(), Some(Direction::InOut));
        let [fd] = info.fds else { panic!("{:?}", info.fds) };
        assert_eq!((info.node, fd.field.path, fd.opens), ("ctrl", "as_fd", Some("as")));
        let free = r36::ioctl::NVMAP_IOC_FREE::INFO.request().unwrap();
        assert_eq!((free.direction(), free.size()), (None, 0));
        assert_eq!(r36::ioctl::NVGPU_TSG_IOCTL_BIND_CHANNEL::INFO.fds[0].field.path, ".");
    }

    #[test]
    fn releases_are_chosen_at_run_time() {
        let release = abi::DRIVERS.for_version("tegra-r35.4.1").unwrap();
        let size = nvabi::with_tegra!(release, abi => size_of::<abi::nvgpu_gpu_open_tsg_args>());
        assert_eq!(size, 8);
        assert_eq!(release.layout("nvgpu_gpu_characteristics").unwrap().size, 312);
        let unknown = abi::DRIVERS.for_version("tegra-r35.3").unwrap_err();
        assert!(unknown.to_string().contains("nearest are tegra-r35.2.1 and tegra-r35.3.1"));
        assert_eq!(tegra::ABI.drivers.last().unwrap().name, "tegra-r36");
    }

    #[derive(nvabi::NvProxy)]
    #[nvproxy(name = "nvgpu_as_map_buffer_ex_args", driver = "tegra-r36")]
    #[repr(C)]
    struct MapBuffer {
        flags: u32,
        compr_kind: i16,
        incompr_kind: i16,
        dmabuf_fd: u32,
        page_size: u32,
        buffer_offset: u64,
        mapping_size: u64,
        offset: u64,
    }

    #[test]
    fn a_struct_of_a_users_own_is_checked() {
        assert_eq!(<MapBuffer as nvabi::check::NvProxy>::LAYOUT.size, 40);
    }
}

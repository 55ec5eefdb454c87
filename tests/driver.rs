//! The choice between drivers at run time.
#![cfg(feature = "all-drivers")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use nvabi::call::{CallKind, Info};
use nvabi::check::Layout;
use nvabi::driver::{Absent, AnyDriver, Choice, Compat, Driver, Record, Used, Visitor, visit};
use nvabi::{Handle, NvStatus, r515, r580, r590, with_driver};

fn driver(version: &str) -> &'static AnyDriver {
    AnyDriver::for_version(version).unwrap()
}

fn newest_of(branch: &str) -> &'static AnyDriver {
    AnyDriver::all().iter().rfind(|driver| driver.branch() == branch).unwrap()
}

/// 525.47.04 moved it into a header of its own.
#[test]
fn constants_are_there_whichever_header_has_them() {
    assert_eq!(r515::NV2080_NOTIFIERS_SW, r580::NV2080_NOTIFIERS_SW);
    assert_eq!(r515::NV2080_NOTIFIERS_SW, r590::NV2080_NOTIFIERS_SW);
}

/// The versions that the lock has.
fn locked() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi-specs/lock/tags");
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Every call of a driver.
fn calls(driver: &AnyDriver) -> impl Iterator<Item = &'static Info> {
    let kinds =
        [CallKind::Frontend, CallKind::Uvm, CallKind::Control, CallKind::Class, CallKind::Ioctl];
    let parts = kinds.map(|kind| driver.calls().of(kind)).into_iter().flatten();
    parts.flat_map(|part| part.iter().copied())
}

/// What a visitor learns of a driver: its type's tags, and a layout.
struct Learn;

impl Visitor for Learn {
    type Output = (&'static [&'static str], &'static str, Option<&'static Layout>, usize);

    fn visit<D: Driver>(self) -> Self::Output {
        let layout =
            D::NV_CHANNEL_ALLOC_PARAMS::EXISTS.then_some(D::NV_CHANNEL_ALLOC_PARAMS::LAYOUT);
        (D::TAGS, D::BRANCH, layout, size_of::<D::NV_CHANNEL_ALLOC_PARAMS>())
    }
}

#[test]
fn every_locked_version_is_there() {
    let locked = locked();
    assert_eq!(locked.len(), AnyDriver::all().len());
    for version in &locked {
        let driver = driver(version);
        assert_eq!(driver.tag(), version);
        assert_eq!(driver.branch(), version.split('.').next().unwrap());
    }
}

#[test]
fn a_version_leads_to_the_type_of_its_interface() {
    for driver in AnyDriver::all() {
        let (tags, branch, layout, size) = visit(driver, Learn);
        assert!(tags.contains(&driver.tag()), "{driver:?} is not in {tags:?}");
        assert_eq!(branch, driver.branch());
        assert_eq!(driver.layout("NV_CHANNEL_ALLOC_PARAMS"), layout);
        assert_eq!(layout.map_or(0, |layout| layout.size as usize), size);
    }
}

#[test]
fn sizes_differ_where_the_driver_changed() {
    let size = |version, name| driver(version).layout(name).map(|layout| layout.size);
    for (version, wanted) in [
        ("535.43.08", 360),
        ("535.43.28", 360),
        ("535.54.03", 304),
        ("535.86.05", 360),
        ("550.90.07", 360),
    ] {
        assert_eq!(size(version, "NV_CHANNEL_ALLOC_PARAMS"), Some(wanted), "{version}");
        assert_eq!(visit(driver(version), Learn).3, wanted as usize, "{version}");
    }
    let before = size("550.40.07", "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS");
    let after = size("550.40.53", "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS");
    assert_eq!((before, after), (Some(16), Some(24)));
    // Cut after 550.54.14, whatever their numbers say.
    let name = "NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_KEY_ROTATION_STATE_PARAMS";
    assert!(size("550.40.85", name).is_some() && size("550.54.14", name).is_none());
}

/// `NVOS21_PARAMETERS` kept its size when 535.43.02 put `paramsSize` where `status` was.
#[test]
fn fields_move_without_a_change_of_size() {
    let fields = |version| {
        let layout = driver(version).layout("NVOS21_PARAMETERS").unwrap();
        let last: Vec<_> = layout.fields.iter().map(|field| (field.offset, field.name)).collect();
        (layout.size, last[last.len() - 2..].to_vec())
    };
    let (old, new) = (fields("530.41.03"), fields("535.43.02"));
    assert_eq!((old.0, new.0), (32, 32));
    assert_eq!(old.1, [(16, "pAllocParms"), (24, "status")]);
    assert_eq!(new.1, [(24, "paramsSize"), (28, "status")]);
}

#[test]
fn code_over_all_drivers_sees_their_fields() {
    for driver in AnyDriver::all() {
        let (size, status) = with_driver!(driver, abi => {
            let call = abi::NVOS21_PARAMETERS { hRoot: Handle(7), ..Record::zeroed() };
            assert_eq!((call.hRoot, call.status), (Handle(7), 0));
            (size_of_val(&call), std::mem::offset_of!(abi::NVOS21_PARAMETERS, status))
        });
        let layout = driver.layout("NVOS21_PARAMETERS").unwrap();
        let field = layout.fields.iter().find(|field| field.name == "status").unwrap();
        assert_eq!((layout.size as usize, field.offset as usize), (size, status));
    }
}

#[test]
fn calls_are_found_by_number_with_their_parameters() {
    for driver in AnyDriver::all() {
        for info in calls(driver) {
            let found = driver.calls().find(info.kind, info.number).unwrap();
            assert_eq!(found.number, info.number);
            let params: Vec<_> = driver.params(info).collect();
            assert_eq!(params.len(), info.params.len(), "{} in {driver:?}", info.name);
        }
        let alloc = driver.frontend(0x2b).unwrap();
        assert_eq!(alloc.name, "NV_ESC_RM_ALLOC");
        assert_eq!(driver.control(0xffff_ffff), None);
    }
    // One number, two commands: 575 moved the one and gave its number to the other.
    let name = |version| driver(version).control(0x2080_1358).map(|info| info.name);
    assert_ne!(name("570.86.15"), name("575.51.02"));
}

#[test]
fn what_a_driver_has_not_is_absent() {
    struct Exists;
    impl Visitor for Exists {
        type Output = (bool, usize);
        fn visit<D: Driver>(self) -> Self::Output {
            type Of<D> = <D as Driver>::NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_KEY_ROTATION_STATE_PARAMS;
            (<Of<D>>::EXISTS, size_of::<Of<D>>())
        }
    }
    assert_eq!(visit(driver("550.40.07"), Exists), (false, 0));
    assert!(visit(driver("550.40.65"), Exists).0);
    assert!(!visit(driver("550.54.14"), Exists).0);
    assert!(visit(driver("550.90.07"), Exists).0);
    assert_eq!(Absent::LAYOUT.size, 0);
    let name = "NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_KEY_ROTATION_STATE_PARAMS";
    assert_eq!(driver("550.54.14").layout(name), None);
}

#[test]
fn an_unknown_version_is_refused_with_what_there_is() {
    let refused = AnyDriver::for_version("550.90.10").unwrap_err();
    assert_eq!(refused.version(), "550.90.10");
    let text = refused.to_string();
    let start = "driver 550.90.10 is not in this build; nearest are 550.90.07 and 550.90.12, with the \
                 same interface; this build has 515.43.04 to ";
    assert!(text.starts_with(start), "{text}");
    // Each branch with its ends.
    let locked = locked();
    let branch = |version: &str| version.split('.').next().unwrap_or_default().to_owned();
    for tags in locked.chunk_by(|a, b| branch(a) == branch(b)) {
        let told = match tags {
            [first, .., last] => format!("{first} to {last} ({} tags)", tags.len()),
            only => only[0].clone(),
        };
        assert!(text.contains(&told), "{told}: {text}");
    }
    // A packager's revision is none of the driver's.
    for version in
        ["550.90.07-0ubuntu1", "550.90.07-2", "550.90.07-1~deb12u1", "3:550.90.07-1.fc40"]
    {
        assert_eq!(AnyDriver::for_version(version).unwrap().tag(), "550.90.07", "{version}");
    }
    // Exactly that version: neither a start of one nor one that is equal by number.
    for version in ["550", "550.90", "550.90.7", "550.100.00", "", "550.90.07-custom", "x.y"] {
        assert!(AnyDriver::for_version(version).is_err(), "{version}");
    }
}

#[test]
fn a_neighbour_is_taken_when_asked_for() {
    let nearest = |version| AnyDriver::for_version(version).unwrap_err().nearest();
    let told = |version| {
        let nearest = nearest(version).unwrap();
        (nearest.driver().tag(), nearest.other().map(AnyDriver::tag), nearest.is_certain())
    };
    assert_eq!(told("550.90.10"), ("550.90.07", Some("550.90.12"), true));
    assert_eq!(told("550.90.10-0ubuntu1"), ("550.90.07", Some("550.90.12"), true));
    assert_eq!(told("550.90.07-custom").0, "550.90.07");
    // Older than all of its branch: the branch decides.
    assert_eq!(told("550.1"), ("550.40.07", Some(newest_of("545").tag()), false));
    let newest = AnyDriver::all().last().unwrap().tag();
    assert_eq!(told("999.1"), (newest, None, false));
    let oldest = AnyDriver::all().first().unwrap().tag();
    assert_eq!(told("1.0"), (oldest, None, false));
    assert!(nearest("not a version").is_none());
}

#[test]
fn drivers_with_the_same_interface_agree_in_every_layout() {
    let mut interfaces = BTreeSet::new();
    for pair in AnyDriver::all().windows(2) {
        let mut names = calls(&pair[0]).flat_map(|info| info.params);
        let agree = names.all(|name| pair[0].layout(name) == pair[1].layout(name));
        assert!(agree || !pair[0].same_interface(&pair[1]), "{pair:?}");
        interfaces.insert(pair[1].view());
    }
    assert!(interfaces.len() > 15, "{interfaces:?}");
}

#[test]
fn a_call_is_in_the_drivers_that_have_exactly_it() {
    type IdInfo = r590::control::NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2;
    type ClassList = r580::control::NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2;
    let choice = |version| Choice::new(version, Compat::Exact).unwrap();
    for driver in AnyDriver::all() {
        let choice = choice(driver.tag());
        assert!(choice.has::<IdInfo>());
        // 580 made the list longer.
        let layout = driver.layout("NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS");
        let is_same = layout == Some(r580::NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS::LAYOUT);
        assert_eq!(choice.has::<ClassList>(), is_same, "{driver:?}");
        assert_eq!((choice.version(), choice.other().is_none()), (driver.tag(), true));
    }
    let has = |version| choice(version).has::<ClassList>();
    assert!(!has("575.64.05") && has("580.65.06") && has("595.45.04"));
}

/// Behind every tag that 580 will have, before the first of 590: the two are not alike.
#[test]
fn a_version_between_two_is_taken_where_what_is_used_is_alike() {
    const ALIKE: &[Used] = &[
        Used::call::<r580::control::NV2080_CTRL_CMD_FB_GET_INFO_V2>(),
        Used::record::<r580::NV_CHANNEL_ALLOC_PARAMS>(),
    ];
    const VERSION: &str = "580.9999.01";
    let below = newest_of("580");
    let above = AnyDriver::all().iter().find(|driver| driver.branch() == "590").unwrap();
    let between = |uses| Choice::new(VERSION, Compat::SameAbi(uses));
    let taken = between(ALIKE).unwrap();
    assert_eq!((taken.version(), taken.driver().tag()), (VERSION, below.tag()));
    assert_eq!(taken.other().map(AnyDriver::tag), Some(above.tag()));
    assert!(taken.has::<r580::control::NV2080_CTRL_CMD_FB_GET_INFO_V2>());

    assert!(!below.same_interface(above));
    type Changed = r580::frontend::NV_ESC_RM_ALLOC_MEMORY;
    let used = [ALIKE[0], Used::call::<Changed>()];
    assert!(used[1].is_in(below) && !used[1].is_in(above), "it changed with 590");
    // A call that was not named is refused when it is made.
    assert!(!taken.has::<Changed>());
    let refused = between(&used).unwrap_err();
    assert_eq!(refused.item(), Some("NV_ESC_RM_ALLOC_MEMORY"));
    assert_eq!(
        refused.to_string(),
        format!(
            "driver {VERSION} is not in this build, and its neighbours {} and {} differ in \
             NV_ESC_RM_ALLOC_MEMORY",
            below.tag(),
            above.tag()
        )
    );
    let gone = Used::record::<r515::NV_CHANNELGPFIFO_ALLOCATION_PARAMETERS>();
    assert!(between(&[gone]).is_err());
    assert!(Choice::new(VERSION, Compat::Exact).is_err());
    // Newer than all, and older: there is nothing to compare with on one side.
    for version in ["999.1", "1.0", "no version"] {
        let refused = Choice::new(version, Compat::SameAbi(&[])).unwrap_err();
        assert!(refused.to_string().contains("is not between two"), "{refused}");
    }
}

#[test]
fn statuses_have_the_names_of_the_driver() {
    for driver in AnyDriver::all() {
        let statuses: Vec<_> = driver.statuses().collect();
        let numbers: BTreeSet<_> = statuses.iter().map(|(status, _)| status).collect();
        assert!(statuses.len() > 120, "{driver:?} has {}", statuses.len());
        assert_eq!(numbers.len(), statuses.len(), "{driver:?} has two names of one number");
        for (status, name) in statuses {
            assert_eq!(status.name_in(driver), Some(name));
            assert!(status.is_warning() == name.starts_with("NV_WARN_"), "{name}");
        }
    }
    assert_eq!(NvStatus::NV_ERR_INVALID_CLASS.to_string(), "NV_ERR_INVALID_CLASS (0x22)");
    // One name, two numbers: 595 put another before it.
    let name = |number, version| NvStatus(number).name_in(driver(version));
    assert_eq!(name(0x8b, "580.94.10"), Some("NV_ERR_DMA_XFER_FAILED"));
    assert_eq!(name(0x8c, "595.44.02"), Some("NV_ERR_DMA_XFER_FAILED"));
    assert_ne!(name(0x8b, "595.44.02"), Some("NV_ERR_DMA_XFER_FAILED"));
    assert_eq!(name(0x8b, "515.43.04"), None);
    // What stands for statuses in the lock is what the modules have as constants.
    assert_eq!(NvStatus(r580::NV_ERR_GPU_IS_LOST), NvStatus::NV_ERR_GPU_IS_LOST);
}

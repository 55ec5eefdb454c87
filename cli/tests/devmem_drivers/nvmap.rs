//! nvmap on a simulated Jetson, through real system calls: this test starts itself there.

use std::process::Command;

use nvabi_devmem::{Constraint, ConstraintName, Operation, Prober, Use};
use nvabi_test::{Need, only_as_child, skip};

use super::{description, device, devices, pattern, read, use_of, write};

const INSIDE: &str = "NVABI_TEST_JETSON";

/// The program on the Jetson.
#[test]
fn client() {
    only_as_child(INSIDE);
    let gpu = device("nvmap:gpu");
    let uses = vec![use_of(&*gpu, Operation::Render), Use::new("cpu", Operation::CpuRead)];
    let description = description(640, 480, uses);
    let sets = gpu.sets(&description.usage.image, Operation::Render).unwrap();
    assert!(sets.iter().all(|set| *set.capabilities == *description.set.capabilities));
    assert_eq!(gpu.sets(&description.usage.image, Operation::Scanout).unwrap(), []);

    let buffer = Prober::default().allocate(&devices(), &description).unwrap();
    let picture = pattern(9, description.layout.size as usize);
    write(&buffer, &picture);
    assert!(read(&buffer) == picture);
    let other = gpu.allocate(&description).unwrap();
    assert_ne!(other.identity(), buffer.identity());
    let mapped = gpu.import(&buffer).unwrap();
    assert_ne!(mapped.handle(), 0);
    drop(mapped);

    // Memory that nvmap did not make, and what it does not make.
    let plain = device("cpu").allocate(&description).unwrap();
    let Err(refused) = gpu.import(&plain) else { panic!("taken") };
    println!("refused: {refused}");
    let mut contiguous = description;
    contiguous.set.constraints = vec![Constraint::new(ConstraintName::CONTIGUOUS, 1)];
    let refused = gpu.allocate(&contiguous).unwrap_err().to_string();
    assert_eq!(refused, "memory in one piece asked for, 4096 bytes in one piece offered");
    println!("the client is done");
}

#[test]
fn memory_of_nvmap_is_seen_by_gpu_and_cpu() {
    let output = Command::new(env!("CARGO_BIN_EXE_nvabi"))
        .args(["tegra", "sim", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["nvmap::client", "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output();
    // In a virtual machine it is not where it was built.
    let Ok(output) = output else { skip(Need::Workspace, "the command is not there") };
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if complaint.contains("seccomp") && said.is_empty() {
        skip(Need::Supervise, complaint.trim());
    }
    assert!(output.status.success(), "{said}{complaint}");
    assert!(said.contains("the client is done"), "{said}{complaint}");
    assert!(complaint.contains("0 diagnostics"), "{complaint}");
}

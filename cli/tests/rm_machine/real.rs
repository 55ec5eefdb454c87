//! NVIDIA's own nvidia-smi beside other programs on one machine. NVABI_REAL lists folders with versions of it, as
//! `tests/real/fetch.sh` prints them.

use std::path::Path;

use nvabi_test::{Need, skip};

use crate::lab::{Done, Lab, PASSED, Program, play};
use crate::shared::hold;

#[test]
fn nvidia_smi_sees_what_others_have_and_set() {
    const TEST: &str = "rm_machine::real::nvidia_smi_sees_what_others_have_and_set";
    play("hold", hold);
    let named = std::env::var("NVABI_REAL").unwrap_or_default();
    let folders: Vec<&str> =
        named.split([':', '\n']).map(str::trim).filter(|folder| !folder.is_empty()).collect();
    if folders.is_empty() {
        skip(Need::Real, "NVABI_REAL names no folder");
    }
    for folder in folders.into_iter().map(Path::new) {
        let version = folder.file_name().unwrap().to_str().unwrap();
        let lab = Lab::up(&["--gpu", "a100", "--tag", version]);
        let smi = |args: &[&str]| -> Done {
            let mut command = lab.command(&["run", "lab", "--"]);
            command.arg(folder.join("bin/nvidia-smi")).args(args);
            command.env("LD_LIBRARY_PATH", folder.join("lib")).output().unwrap().into()
        };
        let ask = |what: &str| smi(&[what, "--format=csv,noheader"]).out;
        assert_eq!(ask("--query-compute-apps=pid,used_memory"), "", "{version}");
        let (holder, line) =
            Program::begin(lab.client(TEST, "hold"), |line| line.starts_with("held"));
        let process = line.rsplit(' ').next().unwrap();
        let apps = ask("--query-compute-apps=pid,used_memory");
        assert_eq!(apps, format!("{process}, 64 MiB\n"), "{version}");
        assert_eq!(ask("--query-gpu=memory.used"), "64 MiB\n", "{version}");
        let all = smi(&["-q", "-d", "PIDS"]).out;
        assert!(all.contains(&format!(": {process}\n")), "{version}: {all}");
        assert_eq!(smi(&["-pm", "1"]).code, Some(0), "{version}");
        assert_eq!(ask("--query-gpu=persistence_mode"), "Enabled\n", "{version}");
        assert_eq!(holder.end().code, Some(PASSED));
        lab.programs(0);
        assert_eq!(ask("--query-compute-apps=pid,used_memory"), "", "{version}");
        assert_eq!(ask("--query-gpu=persistence_mode"), "Enabled\n", "{version}");
    }
}

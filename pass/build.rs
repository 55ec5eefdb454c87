//! Compiles the device's half of the recorder to bitcode and registers the pass, where LLVM 19 is.
//! Elsewhere the crate builds to a library without a pass in it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const LLVM: &str = "19";
const DEVICE: &str = "../cuda/device/recorder.cu";

fn main() {
    for path in
        ["build.rs", "src/register.cpp", "../cuda/device", "../cuda/include", "../trace/include"]
    {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rerun-if-env-changed=LLVM_CONFIG");
    println!("cargo:rustc-check-cfg=cfg(llvm)");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    match build(&out) {
        Ok(()) => println!("cargo:rustc-cfg=llvm"),
        Err(why) => println!("cargo:warning=skipped: the LLVM pass is not built: {why}"),
    }
}

fn build(out: &Path) -> Result<(), String> {
    let llvm = Llvm::find()?;
    device(&llvm, &out.join("recorder.bc"))?;
    let flags = llvm.ask("--cxxflags")?;
    let mut shim = cc::Build::new();
    shim.cpp(true).file("src/register.cpp").include(llvm.ask("--includedir")?);
    shim.flag("-std=c++17").flag("-fno-rtti").flag("-fno-exceptions").warnings(false);
    for flag in flags.split_whitespace().filter(|flag| flag.starts_with("-D")) {
        shim.flag(flag);
    }
    shim.try_compile("nvabi_register").map_err(|error| error.to_string())?;
    Ok(())
}

/// No header of CUDA takes part: the recorder needs the compiler's own builtins alone.
fn device(llvm: &Llvm, to: &Path) -> Result<(), String> {
    let clang = llvm.tool("clang")?;
    let mut command = Command::new(&clang);
    command.args(["-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_70", "-nocudainc"]);
    command.args([
        "-nocudalib",
        "-ffreestanding",
        "-O2",
        "-emit-llvm",
        "-c",
        "-I../cuda/include",
        "-I../trace/include",
    ]);
    // Of the newest CUDA that clang knows: without one it assumes one that has no votes.
    command.args(["-Xclang", "-target-feature", "-Xclang", "+ptx75"]);
    command.arg(DEVICE).arg("-o").arg(to);
    let status = command.status().map_err(|error| format!("{}: {error}", clang.display()))?;
    if !status.success() {
        return Err(format!("{} could not compile {DEVICE}", clang.display()));
    }
    Ok(())
}

struct Llvm {
    config: PathBuf,
}

impl Llvm {
    fn find() -> Result<Self, String> {
        let named = env::var_os("LLVM_CONFIG").map(PathBuf::from);
        let usual = [format!("llvm-config-{LLVM}"), "llvm-config".to_owned()];
        for config in named.into_iter().chain(usual.map(PathBuf::from)) {
            let llvm = Self { config };
            if llvm.ask("--version").is_ok_and(|version| version.starts_with(LLVM)) {
                let headers = PathBuf::from(llvm.ask("--includedir")?);
                if headers.join("llvm/Passes/PassPlugin.h").is_file() {
                    return Ok(llvm);
                }
                return Err(format!("no headers of LLVM {LLVM} (llvm-{LLVM}-dev)"));
            }
        }
        Err(format!("no llvm-config of LLVM {LLVM} (llvm-{LLVM}-dev)"))
    }

    fn ask(&self, what: &str) -> Result<String, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", self.config.display());
        let output =
            Command::new(&self.config).arg(what).output().map_err(|error| failed(&error))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(failed(&output.status)),
        }
    }

    fn tool(&self, name: &str) -> Result<PathBuf, String> {
        let path = PathBuf::from(self.ask("--bindir")?).join(name);
        match path.is_file() {
            true => Ok(path),
            false => Err(format!("no {name} of LLVM {LLVM} ({name}-{LLVM})")),
        }
    }
}

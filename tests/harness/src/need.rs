//! What tests need that a machine may lack.

use std::borrow::Cow;

/// The variable that lists, between commas, what must be there: its lack fails tests.
pub const REQUIRE: &str = "NVABI_REQUIRE";

/// Something that a machine may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Some headers of NVIDIA's driver.
    Headers,
    /// The headers of every tag of the lock that is not Jetson's.
    AllHeaders,
    /// The headers of Jetson's drivers.
    JetsonHeaders,
    /// libclang and clang of any version.
    Clang,
    /// Two versions of libclang, to compare them.
    TwoClangs,
    /// GCC for this machine.
    Gcc,
    /// GCC for 64-bit Arm.
    CrossGcc,
    /// A C library that programs are linked to statically.
    StaticLibc,
    /// clang 19 with the headers of LLVM 19.
    Llvm,
    /// CUDA's headers and tools.
    Cuda,
    /// Machine code of GPUs that others published.
    Cubins,
    /// qemu, busybox and a kernel for them.
    Vm,
    /// A virtual machine whose GPU draws: qemu with virglrenderer, and a screen that nobody sees.
    Virgl,
    /// Supervising other processes: ptrace and seccomp's notifications.
    Supervise,
    /// Mounting file systems, which takes a privileged process.
    Mount,
    /// Programs that run as another user.
    Setuid,
    /// strace.
    Strace,
    /// Python 3.
    Python,
    /// Go 1.23 or newer.
    Go,
    /// Node.js with Kaitai Struct's compiler.
    Node,
    /// The Python package tinygrad, unpacked.
    Tinygrad,
    /// A Python with PySpark, and Java for it.
    Spark,
    /// The source of gVisor.
    Gvisor,
    /// The compiler of the fuzzer syzkaller.
    Syzkaller,
    /// A browser without a screen.
    Browser,
    /// The library that smithay links.
    Xkbcommon,
    /// The disassembler of binutils.
    Objdump,
    /// The kernel's headers for programs.
    LinuxHeaders,
    /// The packages that the examples' lock files name.
    Crates,
    /// The version of Rust whose messages are in the repository.
    Rust,
    /// The libraries that only a build of the whole workspace makes.
    Workspace,
    /// NVIDIA's own programs and libraries.
    Real,
    /// PyTorch with NVIDIA's libraries for it.
    Torch,
    /// A GPU of NVIDIA's, with its driver.
    Gpu,
    /// A device, under the name that a test calls it.
    Device(&'static str),
}

/// All but the devices.
const ALL: [Need; 34] = [
    Need::Headers,
    Need::AllHeaders,
    Need::JetsonHeaders,
    Need::Clang,
    Need::TwoClangs,
    Need::Gcc,
    Need::CrossGcc,
    Need::StaticLibc,
    Need::Llvm,
    Need::Cuda,
    Need::Cubins,
    Need::Vm,
    Need::Virgl,
    Need::Supervise,
    Need::Mount,
    Need::Setuid,
    Need::Strace,
    Need::Python,
    Need::Go,
    Need::Node,
    Need::Tinygrad,
    Need::Spark,
    Need::Gvisor,
    Need::Syzkaller,
    Need::Browser,
    Need::Xkbcommon,
    Need::Objdump,
    Need::LinuxHeaders,
    Need::Crates,
    Need::Rust,
    Need::Workspace,
    Need::Real,
    Need::Torch,
    Need::Gpu,
];

impl Need {
    /// The word for it in [`REQUIRE`].
    pub fn word(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Need::Device(name) => return Cow::Owned(format!("device:{name}")),
            Need::Headers => "headers",
            Need::AllHeaders => "all-headers",
            Need::JetsonHeaders => "jetson-headers",
            Need::Clang => "clang",
            Need::TwoClangs => "two-clangs",
            Need::Gcc => "gcc",
            Need::CrossGcc => "cross-gcc",
            Need::StaticLibc => "static-libc",
            Need::Llvm => "llvm",
            Need::Cuda => "cuda",
            Need::Cubins => "cubins",
            Need::Vm => "vm",
            Need::Virgl => "virgl",
            Need::Supervise => "supervise",
            Need::Mount => "mount",
            Need::Setuid => "setuid",
            Need::Strace => "strace",
            Need::Python => "python",
            Need::Go => "go",
            Need::Node => "node",
            Need::Tinygrad => "tinygrad",
            Need::Spark => "spark",
            Need::Gvisor => "gvisor",
            Need::Syzkaller => "syzkaller",
            Need::Browser => "browser",
            Need::Xkbcommon => "xkbcommon",
            Need::Objdump => "objdump",
            Need::LinuxHeaders => "linux-headers",
            Need::Crates => "crates",
            Need::Rust => "rust",
            Need::Workspace => "workspace",
            Need::Real => "real",
            Need::Torch => "torch",
            Need::Gpu => "gpu",
        })
    }

    /// How to get it.
    pub fn help(self) -> &'static str {
        match self {
            Need::Headers => {
                "set NVABI_HEADERS to what tests/debian_headers.sh prints, or to a clone of the driver"
            }
            Need::AllHeaders => "set NVABI_HEADERS to a clone of the driver with every tag",
            Need::JetsonHeaders => "cargo nvabi-all headers fetch TAG",
            Need::Clang => "apt-get install libclang-dev clang, or set LIBCLANG_PATH",
            Need::TwoClangs => {
                "apt-get install libclang-dev and libclang-19-dev, or another version"
            }
            Need::Gcc => "apt-get install gcc g++",
            Need::CrossGcc => "apt-get install g++-aarch64-linux-gnu",
            Need::StaticLibc => "apt-get install gcc libc6-dev",
            Need::Llvm => "apt-get install clang-19 llvm-19-dev, then build the workspace again",
            Need::Cuda => "set CUDA_PATH, or install python3-pip for cuda/toolkit.sh",
            Need::Cubins => "set NVABI_SASS_FILES to a folder with cubins or CUDA's libraries",
            Need::Vm => {
                "apt-get install qemu-system-x86 busybox-static kmod, then \
                 cli/tests/devmem_vm/kernel.sh package"
            }
            Need::Virgl => "apt-get install qemu-system-gui xvfb",
            Need::Supervise => "run where ptrace and seccomp are not forbidden",
            Need::Mount => "run as root, in a container that may mount",
            Need::Setuid => "run as root, with TMPDIR on a file system without nosuid",
            Need::Strace => "apt-get install strace",
            Need::Python => "apt-get install python3",
            Need::Go => "set NVABI_GO to what tests/go.sh prints, or install Go 1.23",
            Need::Node => "set NVABI_NODE to what tests/node.sh prints",
            Need::Tinygrad => "set NVABI_TINYGRAD to what tests/tinygrad.sh prints",
            Need::Spark => "set NVABI_SPARK to a Python that has pyspark, and install Java 17",
            Need::Gvisor => "set NVABI_GVISOR to what tests/gvisor.sh prints, or to a checkout",
            Need::Real => "set NVABI_REAL to what tests/real/fetch.sh prints",
            Need::Torch => "set NVABI_TORCH to what tests/real/torch.sh prints: 3 GB",
            Need::Syzkaller => {
                "tests/syzkaller.sh builds the program that NVABI_SYZKALLER names, where Go can download modules"
            }
            Need::Browser => "apt-get install chromium, or set CHROMIUM",
            Need::Xkbcommon => "apt-get install libxkbcommon-dev",
            Need::Objdump => "apt-get install binutils",
            Need::LinuxHeaders => "apt-get install linux-libc-dev",
            Need::Crates => "cargo fetch --manifest-path of each folder in examples/",
            Need::Rust => "rustup toolchain install the version that the test names",
            Need::Workspace => "cargo test --workspace",
            Need::Gpu => "run on a machine with a GPU of NVIDIA's and the driver",
            Need::Device(_) => "load the module that makes the device",
        }
    }
}

/// The words of [`REQUIRE`].
fn required() -> Vec<String> {
    let list = std::env::var(REQUIRE).unwrap_or_default();
    list.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

pub(crate) fn is_required(word: &str) -> bool {
    required().iter().any(|required| required == word)
}

/// Refuses words that no test asks for: a misspelt one would require nothing.
pub(crate) fn check() -> Result<(), String> {
    let words = ALL.map(Need::word);
    for word in required() {
        if !word.starts_with("device:") && !words.iter().any(|known| *known == word) {
            let words = words.join(", ");
            return Err(format!(
                "{REQUIRE} lists `{word}`, which no test needs\n  = help: it may list {words}, \
                 device:NAME"
            ));
        }
    }
    Ok(())
}

//! Which sources are the program's own.

/// Whether a path is one of a header that comes with clang or CUDA.
pub(super) fn is_of_toolkit(path: &str) -> bool {
    let is_cuda = |folder: &str| {
        let version = folder.strip_prefix("cuda-");
        folder == "cuda"
            || version
                .is_some_and(|v| v == "toolkit" || v.starts_with(|c: char| c.is_ascii_digit()))
    };
    let folders: Vec<&str> = path.split('/').collect();
    path.contains("/lib/clang/")
        || path.starts_with("/usr/include/")
        || folders.windows(2).any(|two| is_cuda(two[0]) && matches!(two[1], "include" | "targets"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_toolkit_are_told_from_the_programs_own() {
        for path in [
            "/usr/lib/llvm-19/lib/clang/19/include/__clang_cuda_device_functions.h",
            "/usr/local/cuda-12.4/include/cuda_fp16.hpp",
            "/opt/cuda/targets/x86_64-linux/include/cooperative_groups.h",
            "/usr/include/device_functions.h",
        ] {
            assert!(is_of_toolkit(path), "{path}");
        }
        for path in ["./mistakes.cu", "/home/me/cuda/src/a.cuh", "cuda-samples/include/helper.h"] {
            assert!(!is_of_toolkit(path), "{path}");
        }
    }
}
